"""Benchmark of time filters and SQL filters on a large log: `python -m benchmarks.subjects.filters`.

Both are promises about large logs: a start within 50 ms on five million events, and at least 100,000 events a second on
one core if 99 % are rejected. So they are measured on a large log, over the wire, on three nodes as a user starts them,
with one partition and one client.

The time filter is attached at random moments of the log. The measured time is from the first byte of the attach to the
first event that the client decodes. The SQL filter is drained from the first event to the last: the node's answer to
the drain says that it has scanned everything. The measured time is the leader's CPU time, since a node has one thread
for this and the machine is shared. Results are checked: the first event must be the first one after the time, and all
matches must come.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import statistics
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import psutil

from benchmarks import machine
from benchmarks.driver.wire import Url
from benchmarks.peers.base import PeerFailed, TargetLog, end_on_signals, running
from benchmarks.peers.holdfast import PARTITION, PARTITION_PROPERTY, Holdfast
from benchmarks.places import RESULTS, scratch
from holdfast.amqp import (
    Described,
    Drained,
    Engine,
    Event,
    LinkDetached,
    LinkOpened,
    Message,
    Settlements,
    Source,
    Transfers,
    decode_message,
    encode_message,
    symbol,
    timestamp,
    ulong,
)

T = TypeVar("T")

SEEK_LIMIT_MS = 50.0
SCAN_LIMIT_PER_S = 100_000.0

SYMBOLS = 100
"""Kinds of events, in turn: a filter for one of them rejects 99 %."""

BODY_BYTES = 64
SENT_AT_ONCE = 1000
READ_BYTES = 256 * 1024
SCAN_CREDIT = 1_000_000
TRIES = 10
"""Most tries of a measurement: leaders change on a busy machine, and an interrupted measurement is repeated."""
REDIRECT = "amqp:link:redirect"
FILTERS = (
    ("a text", "symbol = 'S42'", 1),
    ("a text among several conditions", "price > 10 AND symbol LIKE 'S4_' AND number % 10 = 2", 1),
    ("a property that no event has", "colour = 'blue'", 0),
)
"""Title, filter, and how many of SYMBOLS events match it."""


class Moved(PeerFailed):
    """Raised if the partition has another leader now."""


class FilterClient:
    """One connection to the partition's leader, with one link at a time."""

    def __init__(self) -> None:
        self.engine = Engine("client", container_id="filters", desired_capabilities=(REDIRECT,))
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self, host: str, port: int) -> FilterClient:
        self._reader, self._writer = await asyncio.open_connection(host, port)
        self.engine.open()
        self.flush()
        return self

    def flush(self) -> None:
        while data := self.engine.data_to_send():
            self._writer.write(data)

    async def events(self, detaching: bool = False) -> Sequence[Event]:
        """Return the next events of the engine. Raises Moved if the link was closed unexpectedly."""
        while True:
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise PeerFailed("the node hung up")
            self.engine.receive(data)
            found = self.engine.events()
            self.flush()
            for event in found:
                if isinstance(event, LinkDetached) and not detaching:
                    raise Moved(f"the link was closed: {event.error}")
            if found:
                return found

    async def opened(self, link: Any) -> None:
        while not any(isinstance(event, LinkOpened) and event.link is link for event in await self.events()):
            pass

    def close(self) -> None:
        self._writer.transport.abort()


def bound() -> Mapping[str, Any]:
    return {PARTITION_PROPERTY: symbol(PARTITION)}


async def leader_of(url: Url) -> tuple[str, int]:
    """Return the address of the partition's leader, to which a link is redirected."""
    client = await FilterClient().connect(url.host, url.port)
    client.engine.open_sender(url.address, properties=bound())
    client.flush()
    try:
        while True:
            for event in await client.events(detaching=True):
                if isinstance(event, LinkOpened):
                    return url.host, url.port
                if isinstance(event, LinkDetached) and event.error is not None and event.error.info:
                    return str(event.error.info["network-host"]), int(event.error.info["port"])
    finally:
        client.close()


def templates() -> list[bytes]:
    """Make one event of each kind, similar to a trade."""
    return [
        encode_message(
            Message(
                body=bytes(BODY_BYTES),
                application_properties={"symbol": f"S{kind}", "price": 100.25, "number": kind, "venue": "X"},
            )
        )
        for kind in range(SYMBOLS)
    ]


async def fill(place: tuple[str, int], log: str, count: int) -> None:
    """Send `count` events of all kinds in turn, and wait for all outcomes."""
    client = await FilterClient().connect(*place)
    link = client.engine.open_sender(log, properties=bound())
    client.flush()
    await client.opened(link)
    kinds = templates() * (SENT_AT_ONCE // SYMBOLS)
    sent = answered = 0
    while answered < count:
        while link.credit >= SENT_AT_ONCE and sent < count:
            link.send_many(kinds[: count - sent])
            sent += min(SENT_AT_ONCE, count - sent)
            client.flush()
        for event in await client.events():
            if isinstance(event, Settlements):
                answered += len(event.outcomes)
    client.close()


def offset_and_time(payload: bytes) -> tuple[int, int]:
    found = decode_message(payload).delivery_annotations
    return int(found["event-streams-offset"], 16), int(found["event-streams-timestamp"])


async def first_events(place: tuple[str, int], log: str, source_filter: Any, count: int) -> tuple[float, list[bytes]]:
    """Return the milliseconds from the attach to the first event, and the first `count` events."""
    client = await FilterClient().connect(*place)
    await client.events()  # the answer to the open
    began_s = time.perf_counter()
    source = Source(address=log, filter={symbol("f"): source_filter})
    link = client.engine.open_receiver(source, properties=bound(), snd_settle_mode=1)
    link.grant(count)
    client.flush()
    payloads: list[bytes] = []
    took_ms = 0.0
    while len(payloads) < count:
        for event in await client.events():
            if isinstance(event, Transfers):
                took_ms = took_ms or (time.perf_counter() - began_s) * 1000
                payloads += event.payloads
    client.close()
    return took_ms, payloads


def after(offset: int) -> Any:
    comparand = symbol(f"{offset - 1:016x}" if offset else "@earliest")
    return Described(ulong(0x200), {symbol("event-streams-offset"): comparand})


async def seeks(log: str, events: int, rounds: int, place: tuple[str, int]) -> dict[str, list[float]]:
    """Measure the milliseconds to the first event, by kind of filter, at `rounds` moments of the log."""
    rng = random.Random(7)
    taken: dict[str, list[float]] = {"annotations filter": [], "SQL filter": []}
    for _ in range(rounds):
        _, [probe] = await first_events(place, log, after(rng.randrange(events // 100, events * 99 // 100)), 1)
        offset, time_ms = offset_and_time(probe)
        kinds = {
            "annotations filter": Described(ulong(0x200), {symbol("event-streams-timestamp"): timestamp(time_ms)}),
            "SQL filter": Described(ulong(0x201), f"d.event-streams-timestamp > {time_ms}"),
        }
        for name, described in kinds.items():
            took_ms, [payload] = await first_events(place, log, described, 1)
            first, first_ms = offset_and_time(payload)
            _, [before] = await first_events(place, log, after(first - 1), 1)
            if not (offset_and_time(before)[1] <= time_ms < first_ms and first > offset):
                raise PeerFailed(f"after {time_ms} came event {first} of {first_ms}: not the first one")
            taken[name].append(took_ms)
    return taken


async def scan(peer: Holdfast, log: str, text: str, place: tuple[str, int]) -> tuple[float, float, int]:
    """Scan the log through a SQL filter; return seconds, seconds of a core, and the count of matches."""
    node = peer.processes()[peer.node_at(place[1])]
    client = await FilterClient().connect(*place)
    await client.events()
    used_s = core_seconds(node)
    began_s = time.perf_counter()
    source = Source(address=log, filter={symbol("f"): Described(ulong(0x201), text)})
    link = client.engine.open_receiver(source, properties=bound(), snd_settle_mode=1)
    link.drain(SCAN_CREDIT)
    client.flush()
    passed = 0
    ended = False
    while not ended:
        for event in await client.events():
            if isinstance(event, Transfers):
                passed += len(event.payloads)
            ended = ended or isinstance(event, Drained)
    took_s = time.perf_counter() - began_s
    used_s = core_seconds(node) - used_s
    client.close()
    return took_s, used_s, passed


def core_seconds(node: psutil.Process) -> float:
    used = node.cpu_times()
    return float(used.user + used.system)


def at_leader(target: TargetLog, work: Callable[[tuple[str, int]], Coroutine[Any, Any, T]]) -> T:
    """Do `work` at the leader, again from the start if the leader changes meanwhile."""
    for _ in range(TRIES):
        place = asyncio.run(leader_of(target.send_url))
        try:
            return asyncio.run(work(place))
        except Moved as moved:
            click.echo(f"once more: {moved}")
    raise PeerFailed(f"the leader changed {TRIES} times")


def measure(peer: Holdfast, target: TargetLog, events: int, rounds: int) -> list[tuple[bool, str, str]]:
    """Measure each promise, as (kept, title, figures)."""
    asyncio.run(fill(asyncio.run(leader_of(target.send_url)), target.name, events))
    rows = []
    for name, taken in at_leader(target, partial(seeks, target.name, events, rounds)).items():
        middle, p95, worst = statistics.median(taken), statistics.quantiles(taken, n=20)[-1], max(taken)
        figures = f"p50 {middle:.1f} ms, p95 {p95:.1f} ms, worst of {len(taken)} {worst:.1f} ms"
        rows.append((p95 < SEEK_LIMIT_MS, f"time, {name}", figures))
    for what, text, share in FILTERS:
        took_s, used_s, passed = at_leader(target, partial(scan, peer, target.name, text))
        if passed != events // SYMBOLS * share:
            raise PeerFailed(f"{text}: {passed} events passed of {events}")
        figures = (
            f"{events / used_s:,.0f} events per second of a core ({events / took_s:,.0f} a second at "
            f"{used_s / took_s:.2f} of a core), {passed:,} of {events:,} passed"
        )
        rows.append((events / used_s >= SCAN_LIMIT_PER_S, f"scan, {what}: `{text}`", figures))
    return rows


@click.command()
@click.option("--events", default=5_000_000, show_default=True, type=click.IntRange(SYMBOLS * 100))
@click.option(
    "--rounds", default=30, show_default=True, type=click.IntRange(1), help="Start from so many moments of the log."
)
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, show_default=False)
def main(events: int, rounds: int, results: Path) -> None:
    """Measure time filters and SQL filters on a large partition; exit status 1 when a promise is broken."""
    end_on_signals()
    events -= events % SENT_AT_ONCE
    with scratch() as directory, running(Holdfast("replicated", directory)) as peer:
        assert isinstance(peer, Holdfast)
        facts = machine.facts(directory)
        rows = measure(peer, peer.create("log"), events, rounds)
    for kept, what, figures in rows:
        click.echo(f"{'ok      ' if kept else 'BROKEN  '}{what}: {figures}")
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{day}-filters.md").write_text(_markdown(facts, events, rows), encoding="utf-8")
    if not all(kept for kept, _, _ in rows):
        raise SystemExit(1)


def _markdown(facts: Mapping[str, object], events: int, rows: list[tuple[bool, str, str]]) -> str:
    lines = [
        f"# Filters on a partition of {events:,} events of {len(templates()[0])} bytes, three nodes, one client",
        "",
        f"- {facts['cores']} cores ({facts['cpu']}), load {facts['load_before']} before, Python {facts['python']}",
        f"- Promised: a time filter delivers within {SEEK_LIMIT_MS:g} ms (judged: p95); a filter that rejects 99 % "
        f"scans at least {SCAN_LIMIT_PER_S:,.0f} events per second of one core.",
        "",
        "| what | measured | |",
        "| --- | --- | --- |",
        *(f"| {what} | {figures} | {'kept' if kept else 'BROKEN'} |" for kept, what, figures in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
