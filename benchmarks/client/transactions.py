"""Command `python -m benchmarks.client.transactions`: compares transactional with idempotent publishing.

The cost of a transaction depends on how many are under way at once and on its size: each waits for three rounds of
replication (the events, the decision, the markers). So transactional writers are compared with as many idempotent ones.
Each writer has one batch of a hundred events under way; a transaction has one batch or several. Both kinds take turns,
as in `benchmarks.client`. The commits of a round are timed, too. On a shared machine times tell little, but the CPU
time of an event does.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import psutil
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.peers.base import end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch
from holdfast.client import ProducerClient, ProducerOptions
from holdfast.client.options import CommitAnswer

BATCH_EVENTS = 100
PARTITIONS = 4
WORTH_RATIO = 0.7  # least share of the rate of idempotent publishing
COMMIT_P50_MS = 15.0


@dataclass
class TransactionRound:
    events_per_s: float
    nodes_cpu_us: float = 0.0  # per event, all nodes together; other load changes it little
    client_cpu_us: float = 0.0
    commit_p50_ms: float = 0.0
    commit_p99_ms: float = 0.0


@dataclass
class Counted:
    events: int = 0

    def __post_init__(self) -> None:
        self.commits_ms: list[float] = []
        self._confirmed_by: set[int] = set()
        self._more = asyncio.Event()

    def confirmed(self, writer: int, events: int) -> None:
        self.events += events
        self._confirmed_by.add(writer)
        self._more.set()

    async def by_each(self, writers: int) -> None:
        """Wait until each writer has newly confirmed events.

        On a busy machine sixteen large transactions take longer than a round."""
        while len(self._confirmed_by) < writers:
            self._more.clear()
            await self._more.wait()
        self._confirmed_by.clear()


async def _idempotent(
    servers: list[str], log: str, number: int, body: bytes, counted: Counted, over: Callable[[], bool]
) -> None:
    async with ProducerClient(servers, log, ProducerOptions(idempotent=True)) as producer:
        while not over():
            batch = await producer.create_batch(partition=str(number % PARTITIONS))
            for _ in range(BATCH_EVENTS):
                batch.add(body)
            await producer.send_batch(batch)
            counted.confirmed(number, BATCH_EVENTS)


async def _transactional(
    servers: list[str],
    log: str,
    number: int,
    body: bytes,
    counted: Counted,
    over: Callable[[], bool],
    *,
    batches: int,
    answer: CommitAnswer = "visible",
) -> None:
    options = ProducerOptions(transactional_id=f"bench-{os.getpid()}-{log}-{number}", commit_answer=answer)
    async with ProducerClient(servers, log, options) as producer:
        while not over():
            tx = producer.transaction()
            await tx.begin()
            for _ in range(batches):
                await tx.send_batch([body] * BATCH_EVENTS, partition=str(number % PARTITIONS))
            asked_s = time.perf_counter()
            await tx.commit()
            counted.commits_ms.append((time.perf_counter() - asked_s) * 1000)
            counted.confirmed(number, batches * BATCH_EVENTS)


def _cpu_s(processes: Iterable[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (one.cpu_times() for one in processes))


async def _round(
    work: Callable[..., Coroutine[Any, Any, None]],
    peer: Holdfast,
    log: str,
    writers: int,
    size: int,
    warmup_s: float,
    seconds: float,
) -> TransactionRound:
    servers, nodes, own = list(peer.addresses), list(peer.processes().values()), [psutil.Process()]
    over, counted = asyncio.Event(), Counted()
    each = [servers[number % len(servers) :] + servers[: number % len(servers)] for number in range(writers)]
    tasks = [
        asyncio.create_task(work(each[number], log, number, bytes(size), counted, over.is_set))
        for number in range(writers)
    ]
    await asyncio.sleep(warmup_s)
    await counted.by_each(writers)
    before, since_s, nodes_s, own_s = counted.events, time.perf_counter(), _cpu_s(nodes), _cpu_s(own)
    counted.commits_ms.clear()
    await asyncio.sleep(seconds)
    await counted.by_each(writers)
    done = counted.events - before
    found = TransactionRound(
        done / (time.perf_counter() - since_s),
        (_cpu_s(nodes) - nodes_s) * 1e6 / done,
        (_cpu_s(own) - own_s) * 1e6 / done,
    )
    if counted.commits_ms:
        ordered = sorted(counted.commits_ms)
        found.commit_p50_ms, found.commit_p99_ms = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    over.set()
    await asyncio.gather(*tasks)
    return found


@click.command()
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Run so many pairs for each number of writers.",
)
@click.option(
    "--seconds", default=3.0, show_default=True, help="Measured seconds of a round; longer if a writer needs it."
)
@click.option(
    "--warmup", "warmup_s", default=1.5, show_default=True, help="Seconds before a round that are not measured."
)
@click.option("--size", default=1024, show_default=True, type=click.IntRange(0), help="Bytes in the body of an event.")
@click.option("--writers", default=(1, 4, 16), show_default=True, multiple=True, type=click.IntRange(1))
@click.option(
    "--batches",
    default=(1, 10),
    show_default=True,
    multiple=True,
    type=click.IntRange(1),
    help="Batches of a transaction.",
)
@click.option("--durability", type=click.Choice(["fsync", "replicated"]), default="fsync", show_default=True)
@click.option(
    "--commit-answer",
    "answer",
    type=click.Choice(["visible", "decided"]),
    default="visible",
    show_default=True,
    help="Let a commit wait for this.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all rounds as JSON, for programs.")
def main(
    rounds: int,
    seconds: float,
    warmup_s: float,
    size: int,
    writers: tuple[int, ...],
    batches: tuple[int, ...],
    durability: str,
    answer: CommitAnswer,
    as_json: bool,
) -> None:
    """Compare idempotent and transactional publishing by the Python client, in turns."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 160)
    found: dict[tuple[int, int], dict[str, list[TransactionRound]]] = {}
    with scratch() as directory, running(Holdfast(durability, Path(directory))) as peer:
        assert isinstance(peer, Holdfast)
        for count, each in product(writers, batches):
            works: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
                "idempotent": _idempotent,
                "transactional": partial(_transactional, batches=each, answer=answer),
            }
            rows = found[count, each] = {kind: [] for kind in works}
            for number in range(rounds):
                for kind in works if number % 2 == 0 else reversed(works):
                    log, _ = peer.create_log(PARTITIONS)
                    rows[kind].append(uvloop.run(_round(works[kind], peer, log, count, size, warmup_s, seconds)))
                    peer.delete_log(log)
    if as_json:
        plain = {
            f"{count} writers, {each} batches": {kind: list(map(asdict, rows)) for kind, rows in kinds.items()}
            for (count, each), kinds in found.items()
        }
        print(json.dumps(plain))
        return
    console.print(_table(found))
    console.print(f"load of the machine: {os.getloadavg()[0]:.1f}", highlight=False)


def _table(found: dict[tuple[int, int], dict[str, list[TransactionRound]]]) -> Table:
    cpu = ("CPU us/event", "idempotent", "client")
    columns = (
        "writers",
        "batches",
        "idempotent/s",
        "transactional/s",
        "ratio",
        "ratios",
        *cpu,
        "commit p50 ms",
        "commit p99 ms",
    )
    table = Table(*columns, title="in batches of 100; medians of rounds", title_justify="left")
    for (count, each), kinds in found.items():
        pairs = list(zip(kinds["idempotent"], kinds["transactional"], strict=True))
        ratios = [two.events_per_s / one.events_per_s for one, two in pairs]
        table.add_row(
            str(count),
            str(each),
            f"{statistics.median(one.events_per_s for one, _ in pairs):,.0f}",
            f"{statistics.median(two.events_per_s for _, two in pairs):,.0f}",
            f"{statistics.median(ratios):.2f}",
            " ".join(f"{ratio:.2f}" for ratio in ratios),
            f"{statistics.median(two.nodes_cpu_us for _, two in pairs):.1f}",
            f"{statistics.median(one.nodes_cpu_us for one, _ in pairs):.1f}",
            f"{statistics.median(two.client_cpu_us for _, two in pairs):.1f}"
            f" ({statistics.median(one.client_cpu_us for one, _ in pairs):.1f})",
            f"{statistics.median(two.commit_p50_ms for _, two in pairs):.1f}",
            f"{statistics.median(two.commit_p99_ms for _, two in pairs):.1f}",
        )
    return table


if __name__ == "__main__":
    main()
