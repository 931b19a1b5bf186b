"""Trace of lone events: how long each step takes on the way through three nodes, at the median.

A program sends single events of 1 KiB at a rate, as in `benchmarks.client.lone`. Each node notes when it does each step
(`sitecustomize.py` beside this file). An event's steps are the first of each kind after the step before, at the
follower that answered first. Noting costs a little, so the sum is some percent more than what `lone` measures.

    python -m benchmarks.client.hops.event_hops --rate 200
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.client.lone import BODY, WARM_EVENTS
from benchmarks.peers.base import PeerFailed, end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch
from holdfast.client import ProducerClient, ProducerOptions

ROOT = Path(__file__).resolve().parents[3]

TO_FOLLOWERS = ("received from the client", "gathered", "turn begun", "written to a node")
"""Steps of the leader, and then of a follower, and then of the leader again."""
AT_FOLLOWER = (
    "received from a node", "turn begun", "in the sync's thread", "synced", "back in the loop", "written to a node",
)  # fmt: skip
TO_CLIENT = ("received from a node", "turn begun", "written to clients")

Steps = Mapping[str, Sequence[int]]
"""Times in ns of one process, by step, in order."""


def follow(steps: Steps, names: Sequence[str], from_ns: int) -> list[int] | None:
    """Find the first time of each step, one after the other. None: one is missing."""
    found: list[int] = []
    for name in names:
        times = steps[name]
        at = bisect_left(times, from_ns)
        if at == len(times):
            return None
        found.append(from_ns := times[at])
    return found


def way(leader: Steps, followers: Sequence[Steps], sent_ns: int, answered_ns: int) -> list[int] | None:
    """Find the times of one event's steps, the client's included. None: they are not all to be found."""
    there = follow(leader, TO_FOLLOWERS, sent_ns)
    if there is None:
        return None
    answers = [found for steps in followers if (found := follow(steps, AT_FOLLOWER, there[-1])) is not None]
    if not answers:
        return None
    first = min(answers, key=lambda found: found[-1])
    back = follow(leader, TO_CLIENT, first[-1])
    if back is None or back[-1] > answered_ns:
        return None
    return [sent_ns, *there, *first, *back, answered_ns]


NAMES = (
    *(f"leader: {name}" for name in TO_FOLLOWERS),
    *(f"follower: {name}" for name in AT_FOLLOWER),
    *(f"leader: {name}" for name in TO_CLIENT),
    "client: acknowledged",
)
"""Names of the times that `way` finds, without the first."""


async def send(server: str, log: str, rate: int, seconds: float) -> list[tuple[int, int]]:
    """Send events at a rate. Returns when each was sent, and acknowledged, in ns."""
    times: list[tuple[int, int]] = []

    def acknowledged(sent_ns: int, problem: object) -> None:
        if problem is not None:
            raise PeerFailed(f"an event failed: {problem}")
        times.append((sent_ns, time.perf_counter_ns()))

    async with ProducerClient(server, log, ProducerOptions()) as producer:
        for _ in range(WARM_EVENTS):
            await (await producer.send(BODY))
        began_s = time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began_s + number / rate - time.perf_counter()))
            await producer.send(BODY, done=partial(acknowledged, time.perf_counter_ns()))
        await producer.flush()
    return times


def trace(directory: Path, rate: int, seconds: float) -> list[list[int]]:
    """Start three nodes, send, and return the ways of the events. Raises PeerFailed."""
    paths = [str(Path(__file__).parent), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"HOLDFAST_HOPS": str(directory), "PYTHONPATH": os.pathsep.join(paths)}
    with running(Holdfast("fsync", directory, environment)) as peer:
        log = peer.create("log")
        times = uvloop.run(send(f"{log.send_url.host}:{log.send_url.port}", log.name, rate, seconds))
    nodes: list[Steps] = [json.loads(path.read_text()) for path in directory.glob("*.json")]
    if len(nodes) < 2:
        raise PeerFailed("the nodes wrote no steps (do they run Python's exit handlers when told to end?)")
    leader = max(nodes, key=lambda steps: len(steps["gathered"]))
    followers = [steps for steps in nodes if steps is not leader]
    return [found for sent, answered in times if (found := way(leader, followers, sent, answered)) is not None]


@click.command()
@click.option("--rate", type=click.IntRange(1, 5000), default=200, show_default=True, help="Send so many a second.")
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True, help="Send for so long.")
def main(rate: int, seconds: float) -> None:
    """Trace lone events."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with scratch() as directory:
        ways = trace(directory, rate, seconds)
    if not ways:
        raise click.ClickException("no event's steps could be told from those of others: send fewer a second")
    table = Table(title=f"medians of {len(ways)} events, {rate} a second")
    for head, justify in (("step", "left"), ("after the step before, us", "right")):
        table.add_column(head, justify="right" if justify == "right" else "left")
    for number, name in enumerate(NAMES):
        table.add_row(name, f"{statistics.median(found[number + 1] - found[number] for found in ways) / 1000:.0f}")
    table.add_row("all", f"{statistics.median(found[-1] - found[0] for found in ways) / 1000:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
