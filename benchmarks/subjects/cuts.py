"""Benchmark of the wait of clients whose leader is cut off from the other nodes, for every kind of cut.

A new leader within a second does not help a client that does not learn of it. So this program measures the wait of
clients: from the moment at which a cut is in force to the first acknowledgement after it. One client is our idempotent
producer, the other one is plain proton with a list of servers. Both are connected to the leader when it is cut off. A
cut ends when both go on. The next one begins when the nodes have found each other and the clients are at the leader
again.

    python -m benchmarks.subjects.cuts --cuts 20
"""

from __future__ import annotations

import asyncio
import bisect
import datetime
import math
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.places import RESULTS, scratch
from chaos.cluster.links import CLIENTS, NetworkLink
from chaos.cluster.proxied import ProxiedCluster, Shape
from chaos.faults import network
from chaos.faults.fault import Scene
from chaos.proxies import HOW_TO_GET, ProxyServer, find_server
from holdfast.client import HoldfastError, ProducerClient, ProducerOptions

LOG = "cuts"
BOUND_S = 1.5
PAUSE_S = 0.01  # between an acknowledgement and the next event
IN_TIME_S = 60.0  # greatest wait; a client that was not served by then counts with it
PEACE_S = 1.0  # time of work at the leader before a cut
CLASS = "producers"

OPTIONS = ProducerOptions(idempotent=True, delivery_timeout_s=IN_TIME_S)

KINDS: Final[dict[str, tuple[str, network.How]]] = {
    "apart, bytes vanish": ("apart", "swallow"),
    "apart, bytes stand still": ("apart", "freeze"),
    "apart, connections refused": ("apart", "refuse"),
    "hears nobody, bytes vanish": ("deaf", "swallow"),
    "hears nobody, bytes stand still": ("deaf", "freeze"),
    "nobody hears it, bytes vanish": ("mute", "swallow"),
    "nobody hears it, bytes stand still": ("mute", "freeze"),
}


class WaitingClient:
    """A client under measurement, with the times of its acknowledgements."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._acknowledged_s: list[float] = []

    def acknowledged(self) -> None:
        with self._changed:
            self._acknowledged_s.append(time.monotonic())
            self._changed.notify_all()

    def until_after(self, moment_s: float, count: int = 1) -> float:
        """Return the time of the `count`-th acknowledgement after a moment; `IN_TIME_S` after it at the latest."""

        def behind() -> list[float]:
            return self._acknowledged_s[bisect.bisect_right(self._acknowledged_s, moment_s) :]

        with self._changed:
            self._changed.wait_for(lambda: len(behind()) >= count, IN_TIME_S)
            return [*behind(), *[moment_s + IN_TIME_S] * count][count - 1]


class Ours(WaitingClient):
    """An idempotent producer that follows redirects."""

    def __init__(self, servers: Sequence[str]) -> None:
        super().__init__()
        self._servers, self._over = list(servers), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="ours", daemon=True)
        self._thread.start()

    async def _work(self) -> None:
        while not self._over.is_set():
            producer = ProducerClient(self._servers, LOG, OPTIONS)
            try:
                await producer.start()
                while not self._over.is_set():
                    await producer.send_and_confirm(b"event", partition="0")
                    self.acknowledged()
                    await asyncio.sleep(PAUSE_S)
            except HoldfastError:
                continue
            finally:
                await producer.abandon()

    def end(self) -> None:
        self._over.set()
        self._thread.join(2 * IN_TIME_S)


class Stock(MessagingHandler):
    """Proton with a list of servers and its own way to reconnect; it sends unanswered events again."""

    def __init__(self, servers: Sequence[str]) -> None:
        super().__init__(auto_settle=True)
        self.waiting = WaitingClient()
        self._urls = [f"amqp://{server}" for server in servers]
        self._over, self._in_flight, self._attached = threading.Event(), False, False
        self._sender: Any = None
        self._thread = threading.Thread(target=lambda: Container(self).run(), name="stock", daemon=True)
        self._thread.start()

    def on_start(self, event: Any) -> None:
        self._sender = event.container.create_sender(event.container.connect(urls=self._urls), LOG)
        self._look(event.container)

    def on_link_error(self, event: Any) -> None:
        """Open another link: a node that does not know the outcome of an event ends the link, and we send it again."""
        event.link.close()
        self._attached = self._in_flight = False
        self._sender = event.container.create_sender(event.connection, LOG, name=str(uuid.uuid4()))

    def _look(self, container: Any) -> None:
        if self._over.is_set():
            container.stop()
        else:
            container.schedule(PAUSE_S, _Due(lambda: self._look(container)))
            self._send()

    def _send(self) -> None:
        if self._attached and not self._in_flight and self._sender.credit > 0:
            self._sender.send(Message(body=b"event"))
            self._in_flight = True

    def on_sendable(self, event: Any) -> None:
        self._send()

    def on_accepted(self, event: Any) -> None:
        self.waiting.acknowledged()

    def on_settled(self, event: Any) -> None:
        self._in_flight = False

    def on_link_opened(self, event: Any) -> None:
        self._attached = True

    def on_disconnected(self, event: Any) -> None:
        self._attached = self._in_flight = False  # the old credit is still shown, but is not valid

    def end(self) -> None:
        self._over.set()
        self._thread.join(IN_TIME_S)


class _Due:
    def __init__(self, work: Callable[[], None]) -> None:
        self.on_timer_task = lambda event: work()


def harmed(cluster: ProxiedCluster, leader: int, which: str) -> list[NetworkLink]:
    table = cluster.links
    if which == "deaf":
        return table.into(leader)
    return table.out_of(leader) if which == "mute" else table.across([leader], list(cluster.nodes))


def one_cut(cluster: ProxiedCluster, which: str, how: network.How) -> tuple[float, float] | None:
    """Cut the leader off; return the waits of our client and proton's in seconds; None if the leader changed before."""
    leader = cluster.leaders(LOG)[0]
    order = [leader, *(node for node in cluster.nodes if node != leader)]
    servers = [cluster.links.ways[CLASS, str(node), CLIENTS].address for node in order]
    ours, stock = Ours(servers), Stock(servers)
    try:
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + PEACE_S:
            ours.until_after(time.monotonic())
            stock.waiting.until_after(time.monotonic())
        if cluster.leaders(LOG).get(0) != leader:
            return None
        with network.cut(_nothing_drawn(cluster), harmed(cluster, leader, which), how):
            cut_s = time.monotonic()
            # The first one may have been on its way when the cut began; the next one was not.
            return ours.until_after(cut_s, 2) - cut_s, stock.waiting.until_after(cut_s, 2) - cut_s
    finally:
        ours.end()
        stock.end()


def _nothing_drawn(cluster: ProxiedCluster) -> Scene:
    return Scene(cluster, LOG, random.Random(0), 0.0)


def settle(cluster: ProxiedCluster) -> None:
    """Wait until every node sees all others up and names the same leader."""

    def level() -> bool:
        named = set()
        for node in cluster.nodes:
            try:
                told = cluster.call(lambda admin: admin.list_nodes(), [node])
                described = cluster.call(lambda admin: admin.describe_log(LOG), [node])
            except HoldfastError:
                return False
            if not all(one["up"] for one in told):
                return False
            named.add(described["partitions"][0]["leader"])
        return len(named) == 1 and None not in named

    cluster.wait_for(level, "the nodes to find each other")


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def measure(cluster: ProxiedCluster, cuts: int, say: Callable[[str], None]) -> dict[str, list[tuple[float, float]]]:
    """Measure the waits of each kind of cut. Kinds alternate, so that other load on the machine affects all of them."""
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for number in range(1, cuts + 1):
        for kind, (which, how) in KINDS.items():
            waited = None
            while waited is None:
                settle(cluster)
                waited = one_cut(cluster, which, how)
            found[kind].append(waited)
            say(f"{number} of {cuts}, {kind}: {waited[0]:.2f} s, {waited[1]:.2f} s")
    return found


CLIENTS_NAMES = ("ours, idempotent", "proton")


Row = tuple[str, str, float, float, float]


def rows(found: Mapping[str, Sequence[tuple[float, float]]]) -> list[Row]:
    told: list[Row] = []
    for kind, waited in found.items():
        for place, name in enumerate(CLIENTS_NAMES):
            times = [one[place] for one in waited]
            told.append((kind, name, quantile(times, 0.5), quantile(times, 0.95), max(times)))
    return told


@click.command()
@click.option("--cuts", default=20, show_default=True, type=click.IntRange(1), help="Make so many cuts of each kind.")
@click.option("--bound", default=BOUND_S, show_default=True, help="Fail if the p95 of a kind is above so many seconds.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, show_default=False)
def main(cuts: int, bound: float, results: Path) -> None:
    """Cut the leader off again and again; exit status 1 when clients waited longer than the bound."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    program = find_server()
    if program is None:
        sys.exit(f"there is no Toxiproxy server: {HOW_TO_GET}")
    load_before = os.getloadavg()[0]
    with scratch() as directory, ProxyServer(program, directory / "toxiproxy.log") as server:
        cluster = ProxiedCluster(directory / "cluster", server, Shape())
        try:
            facts = machine.facts(directory)
            cluster.start()
            cluster.create_log(LOG, 1)
            found = measure(cluster, cuts, lambda text: console.print(text, highlight=False))
        finally:
            cluster.close()
    table = Table("cut of the leader", "client", "p50 s", "p95 s", "longest s")
    told = rows(found)
    for kind, name, *values in told:
        table.add_row(kind, name, *(f"{value:.2f}" for value in values))
    console.print(table)
    broken = [f"{kind}, {name}: {p95:.2f} s" for kind, name, _, p95, _ in told if p95 > bound]
    console.print(f"BROKEN  above {bound:g} s: {'; '.join(broken)}" if broken else f"ok      p95 within {bound:g} s")
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    results.mkdir(parents=True, exist_ok=True)
    loads = (load_before, os.getloadavg()[0])
    (results / f"{day}-cuts.md").write_text(_markdown(facts, loads, cuts, told), encoding="utf-8")
    sys.exit(1 if broken else 0)


def _markdown(
    facts: Mapping[str, object], loads: tuple[float, float], cuts: int,
    told: Sequence[Row],
) -> str:  # fmt: skip
    lines = [
        "# From a cut of the leader to the next acknowledgement",
        "",
        f"- three nodes, {cuts} cuts of each kind in turns, the clients at the leader",
        f"- {facts['cores']} cores, Python {facts['python']}, load {loads[0]:.1f} before and {loads[1]:.1f} after",
        "",
        "| cut of the leader | client | p50 s | p95 s | longest s |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {kind} | {name} | {p50:.2f} | {p95:.2f} | {most:.2f} |" for kind, name, p50, p95, most in told]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
