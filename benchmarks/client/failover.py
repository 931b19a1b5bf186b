"""Benchmark of the wait of a producer whose leader is killed, for Holdfast, Kafka and Artemis.

Users wait longer than an election takes. So a producer keeps a window of events in flight, its leader is killed
(SIGKILL), and the longest time without an acknowledgement counts: from the last one of the old leader to the first one
of the new. Each kill has a log of its own, on three nodes that are all up again.

Holdfast and Kafka run with their own clients, which connect to a node that is not killed. Kafka runs twice: with its
defaults, and with the shorter time-outs below, as short as its documentation and a busy machine allow.

For Artemis the primary is killed, and its backup takes over. Its clients have both addresses; here the AMQP driver
tries them in turn (driver/reconnecting.py). The backup takes over without a vote: two brokers have no majority, and a
primary that was only cut off would go on.

    python -m benchmarks.client.failover --kills 5
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import statistics
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.wire import PeerError, Url
from benchmarks.matrix.cell import drive
from benchmarks.peers.artemis import Artemis
from benchmarks.peers.base import PeerFailed, PeerUnavailable, TargetLog, end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.peers.kafka import Kafka
from benchmarks.places import RESULTS, scratch

SIZE, WINDOW = 1024, 100
PEACE_S = 2.0  # time of work before the kill
SECONDS = 4.0  # length of a run; events in flight are then awaited, so it may end before the new leader leads
GIVEN_UP_S = 60.0
TUNED = {
    "broker.session.timeout.ms": "2000",  # 9000
    "broker.heartbeat.interval.ms": "500",  # 2000
    "controller.quorum.fetch.timeout.ms": "1000",  # 2000
    "controller.quorum.election.timeout.ms": "500",  # 1000
}
"""Time-outs of the tuned Kafka; each comment is Kafka's default."""
KILLED = psutil.STATUS_ZOMBIE


@dataclass(frozen=True)
class SurvivedKill:
    """One kill, with the wait of the producer. `problems`: why the figure is doubtful."""

    waited_s: float
    problems: tuple[str, ...]


class OfHoldfast:
    def __init__(self, directory: Path) -> None:
        self.peer = Holdfast("fsync", directory)

    def target(self) -> TargetLog:
        target = self.peer.create("own-client")
        ports = [int(address.rpartition(":")[2]) for address in self.peer.addresses]
        port = next(port for port in ports if self.peer.node_at(port) != target.leader)
        return dataclasses.replace(target, send_url=Url(target.send_url.host, port, target.send_url.address))

    def entries(self, target: TargetLog) -> tuple[Url, ...]:
        return (target.send_url,)

    def start_again(self, node: str) -> None:
        self.peer.start_again()


class OfKafka:
    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.peer = Kafka(directory, settings)

    def target(self) -> TargetLog:
        return self.peer.create("log")  # at the time of the kill its client knows all brokers

    def entries(self, target: TargetLog) -> tuple[Url, ...]:
        return (target.send_url,)

    def start_again(self, node: str) -> None:
        self.peer.start_again(node)


class OfArtemis:
    def __init__(self, directory: Path) -> None:
        self.peer = Artemis("fsync", directory)

    def target(self) -> TargetLog:
        return dataclasses.replace(self.peer.create("queue"), driver="amqp-reconnecting")

    def entries(self, target: TargetLog) -> tuple[Url, ...]:
        """Return the address of the broker that is killed, then the other one's."""
        others = [port for port in self.peer.ports.values() if port != target.send_url.port]
        return (target.send_url, *(dataclasses.replace(target.send_url, port=port) for port in others))

    def start_again(self, node: str) -> None:
        self.peer.start_again(node)


Contestant = OfHoldfast | OfKafka | OfArtemis

CONTESTANTS: dict[str, Callable[[Path], Contestant]] = {
    "Holdfast": OfHoldfast,
    "Kafka": lambda directory: OfKafka(directory, {}),
    "Kafka, tuned": lambda directory: OfKafka(directory, TUNED),
    "Artemis fsync, two replicas": OfArtemis,
}


def one_kill(contestant: Contestant) -> SurvivedKill:
    target = contestant.target()
    plan = LoadPlan(
        senders=1, send_urls=contestant.entries(target), send_options=target.send_options, size=SIZE, window=WINDOW,
        seconds=SECONDS, warmup_s=0.0, drain_s=GIVEN_UP_S, name="failover",
    )  # fmt: skip
    leader = contestant.peer.processes()[target.leader]
    killer = threading.Timer(PEACE_S, leader.kill)
    try:
        report = drive(target, plan, killer.start)
    finally:
        killer.cancel()
    found = judged(report, was_killed=not leader.is_running() or leader.status() == KILLED)
    contestant.start_again(target.leader)
    contestant.peer.delete(target)
    return found


def judged(report: Mapping[str, Any], *, was_killed: bool) -> SurvivedKill:
    sent = report["send"]
    problems = [] if was_killed else ["the leader was not killed"]
    problems += [f"{number} {outcome}" for outcome, number in sent["outcomes"].items()]
    if sent["unsettled"]:
        problems.append(f"{sent['unsettled']} never settled: none was acknowledged within {GIVEN_UP_S:g} s")
        return SurvivedKill(GIVEN_UP_S, tuple(problems))
    return SurvivedKill(sent["longest_gap_ms"] / 1000, tuple(problems))


def rows(found: Mapping[str, Sequence[SurvivedKill]]) -> list[tuple[str, ...]]:
    """Make the rows: contestant, kills, median, shortest, longest, and the ratio to the first contestant's median."""
    medians = {name: statistics.median(kill.waited_s for kill in kills) for name, kills in found.items() if kills}
    told = []
    for name, median in medians.items():
        waited = [kill.waited_s for kill in found[name]]
        ratio = median / next(iter(medians.values()))
        told.append((name, str(len(waited)), *(f"{s:.2f}" for s in (median, min(waited), max(waited))), f"{ratio:.1f}"))
    return told


def measured(
    directory: Path, names: Sequence[str], kills: int, console: Console
) -> tuple[dict[str, list[SurvivedKill]], list[str]]:
    """Measure the kills of each contestant; return them with notes."""
    found: dict[str, list[SurvivedKill]] = {}
    notes: list[str] = []
    for name in names:
        found[name] = []
        try:
            contestant = CONTESTANTS[name](directory)
            with running(contestant.peer):
                for number in range(1, kills + 1):
                    kill = one_kill(contestant)
                    found[name].append(kill)
                    notes += [f"{name}, kill {number}: {problem}" for problem in kill.problems]
                    console.print(f"{name}, {number} of {kills}: {kill.waited_s:.2f} s", highlight=False)
        except PeerUnavailable as error:
            notes.append(str(error))
        except (PeerError, PeerFailed, OSError) as error:
            notes.append(f"{name}: no more figures: {error}")
    return found, notes


COLUMNS = ("contestant", "kills", "p50 s", "shortest s", "longest s", "x the first")


def markdown(facts: Mapping[str, object], told: Sequence[tuple[str, ...]], notes: Sequence[str]) -> str:
    lines = ["# From a kill of the leader to the next acknowledgement", ""]
    lines += [f"- {name.replace('_', ' ')}: {facts[name]}" for name in ("cores", "load_before", "sync_ms", "python")]
    lines += [f"- tuned: {', '.join(f'{name}={value}' for name, value in TUNED.items())}", ""]
    lines += ["| " + " | ".join(values) + " |" for values in (COLUMNS, ("---",) * len(COLUMNS), *told)]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]).rstrip() + "\n"


@click.command()
@click.option(
    "--kills", default=5, show_default=True, type=click.IntRange(1), help="Kill so many leaders of each contestant."
)
@click.option("--only", multiple=True, type=click.Choice(list(CONTESTANTS)), help="Measure only this contestant.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, show_default=False)
def main(kills: int, only: Sequence[str], results: Path) -> None:
    """Kill the leader that a producer sends to, again and again."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with scratch() as directory:
        facts = machine.facts(directory)
        found, notes = measured(directory, only or tuple(CONTESTANTS), kills, console)
    told = rows(found)
    table = Table(*COLUMNS)
    for values in told:
        table.add_row(*values)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)
    console.print(f"load of the machine: {os.getloadavg()[0]:.1f}", highlight=False)
    if not told:
        raise click.ClickException("nothing could be measured")
    results.mkdir(parents=True, exist_ok=True)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    (results / f"{day}-failover.md").write_text(markdown(facts, told, notes), encoding="utf-8")


if __name__ == "__main__":
    main()
