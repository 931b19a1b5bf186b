"""Command `python -m benchmarks.client.reading`: measures how fast the Python client reads a log from its start.

It reads record batches and single deliveries, as events, as columns, and as arrays of numpy. All ways read the same
events of the same nodes, in turns, in one run. Nodes send single deliveries to readers with a filter, so here they also
check a condition that all events meet. Nodes and client share the machine's cores. The CPU for each event is reported
beside the rate, since other load on the machine changes it less.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import click
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.client.spark import PARTITIONS, SENT_AT_ONCE, fill
from benchmarks.peers.base import end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch
from holdfast.client import ConsumerClient, ConsumerOptions, EventBlock, RangeClient, Start
from holdfast.client.blocks.event_arrays import arrays_of

Read = Callable[[list[str], str], Coroutine[Any, Any, int]]

SINGLE = "1 = 1 OR a.x = 2"
"""A condition that every event meets."""


async def _events(servers: list[str], log: str, *, where: str | None = None) -> int:
    options = ConsumerOptions(until_end=True)
    seen = 0
    async with ConsumerClient(servers, log, start=Start.earliest(), filter=where, options=options) as consumer:
        async for events in consumer.batches():
            for event in events:
                seen += len(event.body) >= 0
    return seen


async def _blocks(
    servers: list[str], log: str, look: Callable[[EventBlock], object], *, where: str | None = None
) -> int:
    seen = 0
    async with RangeClient(servers) as client:

        async def read(partition: str, start: int, end: int) -> None:
            nonlocal seen
            async for block in client.read(log, partition, start, end, filter=where):
                look(block)
                seen += len(block)

        extents = await client.extents(log)
        await asyncio.gather(*(read(each.partition, each.start, each.end) for each in extents))
    return seen


WAYS: dict[str, Read] = {
    "events, single deliveries": lambda servers, log: _events(servers, log, where=SINGLE),
    "events, batches": _events,
    "columns, single deliveries": lambda servers, log: _blocks(servers, log, EventBlock.columns, where=SINGLE),
    "columns, batches": lambda servers, log: _blocks(servers, log, lambda block: block.columns()),
    "arrays, single deliveries": lambda servers, log: _blocks(servers, log, arrays_of, where=SINGLE),
    "arrays, batches": lambda servers, log: _blocks(servers, log, arrays_of),
}


class Cpu:
    """CPU meter of this process and of the nodes, in seconds."""

    def __init__(self, peer: Holdfast) -> None:
        self._nodes = list(peer.processes().values())

    def __call__(self) -> tuple[float, float]:
        return time.process_time(), sum(sum(process.cpu_times()[:2]) for process in self._nodes)


@click.command()
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(SENT_AT_ONCE))
@click.option("--size", default=100, show_default=True, type=click.IntRange(0), help="Bytes in the body of an event.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print all rounds as JSON, for programs.")
def main(events: int, size: int, rounds: int, as_json: bool) -> None:
    """Read a log from its start, in each way."""
    end_on_signals()
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    load = os.getloadavg()[0]
    with scratch() as directory, running(Holdfast("replicated", directory)) as peer:
        assert isinstance(peer, Holdfast)
        log, _ = peer.create_log(PARTITIONS)
        servers, cpu_s = list(peer.addresses), Cpu(peer)
        fill(servers, log, events, size)
        for _ in range(rounds):
            for way, read in WAYS.items():
                before, began_s = cpu_s(), time.perf_counter()
                seen = uvloop.run(read(servers, log))
                took_s, after = time.perf_counter() - began_s, cpu_s()
                client_us, nodes_us = ((used - was) / seen * 1e6 for used, was in zip(after, before, strict=True))
                found[way].append((seen / took_s, client_us, nodes_us))
    if as_json:
        click.echo(json.dumps({"load_before": load, "events": events, "size": size, "rounds": found}))
        return
    table = Table(title=f"{events:,} events of {size} bytes, {PARTITIONS} partitions, load {load:.1f} before; medians")
    for name in ("", "events/s", "client us/event", "nodes us/event"):
        table.add_column(name, justify="right" if name else "left")
    for way, rows in found.items():
        rate, client_us, nodes_us = (statistics.median(column) for column in zip(*rows, strict=True))
        table.add_row(way, f"{rate:,.0f}", f"{client_us:.2f}", f"{nodes_us:.2f}")
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    main()
