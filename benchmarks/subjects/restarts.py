"""Benchmark of a rolling restart, as an upgrade does it: what producers notice of it.

One program sends single events at a fixed rate to all partitions of a log, and never waits for an answer before it
sends the next one (open loop), so that a pause counts for every event that it delays. It does so for as long without
restarts, and then while each node hands its leaderships over, ends and comes back. The next node follows when the
cluster is whole again and `--every` seconds have passed, as Ansible's play takes them for its checks.

    python -m benchmarks.subjects.restarts
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.driver.measure import percentiles_ms
from benchmarks.peers.base import end_on_signals
from benchmarks.places import scratch
from holdfast.cli.local_cluster.lifecycle import create, start
from holdfast.cli.local_cluster.processes import LocalCluster
from holdfast.cli.shared.output import Output
from holdfast.client import AdminClient, HoldfastError, ProducerClient, ProducerOptions
from holdfast.client.transport.security.credentials import Security

LOG, PARTITIONS, NODES = "restarts", 6, 3
BODY = b"x" * 1024
START_WAIT_S = 60.0
GOAL = 3.0
"""The p99 with restarts may be so many times that without."""


@dataclass
class RestartPart:
    """Latencies of the events of one part, in ns, and when each was acknowledged."""

    latencies_ns: list[int] = field(default_factory=list)
    answered_ns: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def longest_gap_ms(self) -> float:
        pairs = zip(self.answered_ns, self.answered_ns[1:], strict=False)
        return max((later - sooner for sooner, later in pairs), default=0) / 1e6


async def send(producer: ProducerClient, rate: int, over: asyncio.Event) -> RestartPart:
    """Send at a rate until told to stop, and wait for what is on its way."""
    sent, began_ns, number = RestartPart(), time.monotonic_ns(), 0
    while not over.is_set():
        due_ns = began_ns + number * 1_000_000_000 // rate
        if (wait_s := (due_ns - time.monotonic_ns()) / 1e9) > 0:
            await asyncio.sleep(wait_s)

        def done(error: HoldfastError | None, due_ns: int = due_ns) -> None:
            now_ns = time.monotonic_ns()
            if error is None:
                sent.latencies_ns.append(now_ns - due_ns)
                sent.answered_ns.append(now_ns)
            else:
                sent.failed.append(str(error))

        await producer.send(BODY, partition=str(number % PARTITIONS), done=done)
        number += 1
    await producer.flush()
    return sent


async def part(local: LocalCluster, rate: int, seconds: float, every_s: float | None) -> RestartPart:
    """Measure one part: quiet for so many seconds, or with a restart of each node, `every_s` apart."""
    async with ProducerClient(local.plan.servers, LOG, ProducerOptions(latency_target_s=None)) as producer:
        for partition in range(PARTITIONS):
            await producer.send_and_confirm(BODY, partition=str(partition))
        over = asyncio.Event()
        sending = asyncio.create_task(send(producer, rate, over))
        if every_s is None:
            await asyncio.sleep(seconds)
        else:
            for node in local.plan.nodes:
                began_s = time.monotonic()
                await asyncio.to_thread(restart, local, node.id)
                await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began_s)))
        over.set()
        return await sending


def restart(local: LocalCluster, node: int) -> None:
    process = local.process(node)
    assert process is not None, f"node {node} does not run"
    process.signal(signal.SIGTERM)
    process.wait(START_WAIT_S)
    start(local, Output(as_json=True, progress=False), START_WAIT_S, Security())


async def measure(local: LocalCluster, rate: int, every_s: float) -> tuple[RestartPart, RestartPart]:
    async with AdminClient(local.plan.servers) as admin:
        await admin.create_log(LOG, partitions=PARTITIONS, replicas=NODES)
    quiet = await part(local, rate, NODES * every_s, None)
    return quiet, await part(local, rate, 0.0, every_s)


@click.command()
@click.option("--rate", type=click.IntRange(1), default=500, show_default=True, help="Send so many events a second.")
@click.option(
    "--every", "every_s", type=click.FloatRange(1), default=60.0, show_default=True,
    help="Restart a node every so many seconds.",
)  # fmt: skip
def main(rate: int, every_s: float) -> None:
    """Measure what producers notice of a rolling restart of three nodes. Exit status 1 if it is too much."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with scratch() as directory:
        local = create(Path(directory) / "cluster", NODES, None, 0, "bench", "fsync", usual_ports=False, tied=True)
        try:
            start(local, Output(as_json=True, progress=False), START_WAIT_S, Security())
            parts = asyncio.run(measure(local, rate, every_s))
        finally:
            local.stop()
    table = Table(title=f"{rate:,} events/s of 1 KiB, {PARTITIONS} partitions, fsync; a restart every {every_s:g} s")
    for head in ("", "events", "p50 ms", "p99 ms", "p99.9 ms", "longest gap ms", "failed"):
        table.add_column(head, justify="right")
    found = []
    for title, one in zip(("quiet", "rolling restart"), parts, strict=True):
        told = percentiles_ms(array("q", one.latencies_ns))
        found.append(told["p99"])
        cells = (len(one.latencies_ns), told["p50"], told["p99"], told["p99.9"], one.longest_gap_ms, len(one.failed))
        table.add_row(title, *(f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}" for cell in cells))
    console.print(table)
    ratio = found[1] / found[0]
    console.print(f"p99 {ratio:.1f} times that of the quiet part; the goal is at most {GOAL:g}")
    sys.exit(ratio > GOAL or bool(parts[1].failed))


if __name__ == "__main__":
    main()
