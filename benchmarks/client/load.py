"""One round of publishing by one kind of producer in this process, with its rate and its CPU.

Both kinds run the same loop below, over as many partitions, with as many publishers for each. With batches, one
publisher for each partition has one batch under way there, the limit of an idempotent producer.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import uvloop

from holdfast.client import Delivery, NetworkOptions, ProducerClient, ProducerOptions

US, MS = 1_000_000, 1000
TIMED_EVERY = 101  # one of so many single events is timed; no multiple of a count of partitions


@dataclass(frozen=True)
class LoadRow:
    """One way to publish, which both kinds of producer run."""

    name: str
    partitions: int
    batch_events: int | None = None  # events of a `send_batch`
    publishers: int = 1  # for each partition, with batches
    goal_per_s: int | None = None  # for both kinds
    chunk_events: int | None = None  # events of a `send_many`; without this and batches: single `send`s
    size: int | None = None  # bytes of its events, if not the size of the run


@dataclass(frozen=True)
class Round:
    """Rates of confirmed events, and CPU for each of them."""

    events_per_s: float
    client_us: float
    leader_us: float | None  # the leader of the only partition
    nodes_us: float  # all nodes together
    resent: int
    p50_ms: float | None  # from the call to the confirmation; None for batches
    p99_ms: float | None


@dataclass(frozen=True)
class LoadTarget:
    servers: Sequence[str]
    log: str
    processes: Mapping[str, psutil.Process]
    leader: str | None
    network: NetworkOptions = field(default_factory=NetworkOptions)


def run(row: LoadRow, place: LoadTarget, *, idempotent: bool, size: int, warmup_s: float, seconds: float) -> Round:
    return uvloop.run(_round(row, place, idempotent, bytes(size), warmup_s, seconds))


async def _round(
    row: LoadRow, place: LoadTarget, idempotent: bool, body: bytes, warmup_s: float, seconds: float
) -> Round:
    over = asyncio.Event()
    times_s: list[float] = []
    options = ProducerOptions(idempotent=idempotent, network=place.network)
    async with ProducerClient(list(place.servers), place.log, options) as producer:
        publishing = [asyncio.create_task(work) for work in _publishers(row, producer, body, over.is_set, times_s)]
        await asyncio.sleep(warmup_s)
        before = _Reading(producer, place)
        times_s.clear()
        await asyncio.sleep(seconds)
        found = _Reading(producer, place).since(before, place, sorted(times_s))
        over.set()
        await asyncio.gather(*publishing)
    return found


def _publishers(
    row: LoadRow, producer: ProducerClient, body: bytes, over: Callable[[], bool], times_s: list[float]
) -> list[Coroutine[Any, Any, None]]:
    if row.chunk_events is not None:
        return [_chunks(producer, [body] * row.chunk_events, over, times_s)]
    if row.batch_events is None:
        return [_singles(producer, body, over, times_s)]
    return [
        _batches(producer, partition, row.batch_events, body, over)
        for partition in producer.partitions
        for _ in range(row.publishers)
    ]


async def _singles(producer: ProducerClient, body: bytes, over: Callable[[], bool], times_s: list[float]) -> None:
    send = producer.send
    for number, partition in enumerate(itertools.cycle(producer.partitions)):
        await send(body, partition=partition, done=None if number % TIMED_EVERY else _timer(times_s))
        if over():
            return


def _timer(times_s: list[float]) -> Callable[[object], None]:
    """Make a callback that notes the time from now to the outcome."""
    began_s = time.perf_counter()
    return lambda _: times_s.append(time.perf_counter() - began_s)


async def _chunks(producer: ProducerClient, chunk: list[bytes], over: Callable[[], bool], times_s: list[float]) -> None:
    confirming: set[asyncio.Future[Any]] = set()
    for partition in itertools.cycle(producer.partitions):
        timer = _timer(times_s)
        confirmed = asyncio.ensure_future(_result_of(await producer.send_many(chunk, partition=partition)))
        confirming.add(confirmed)
        confirmed.add_done_callback(timer)
        confirmed.add_done_callback(confirming.discard)
        if over():
            await asyncio.gather(*confirming)
            return


async def _result_of(delivery: Delivery) -> None:
    await delivery


async def _batches(
    producer: ProducerClient, partition: str, events: int, body: bytes, over: Callable[[], bool]
) -> None:
    while not over():
        batch = await producer.create_batch(partition=partition)
        for _ in range(events):
            batch.add(body)
        await producer.send_batch(batch)


class _Reading:
    """Counters of a producer and its cluster at one moment."""

    def __init__(self, producer: ProducerClient, place: LoadTarget) -> None:
        self.accepted, self.resent = producer.stats.accepted, producer.stats.resent
        self.at_s, self.client_s = time.perf_counter(), time.process_time()
        self.nodes_s = {name: _cpu_s(process) for name, process in place.processes.items()}

    def since(self, before: _Reading, place: LoadTarget, times_s: Sequence[float]) -> Round:
        events = self.accepted - before.accepted
        assert events > 0, "nothing was confirmed"
        used_s = {name: self.nodes_s[name] - before.nodes_s[name] for name in self.nodes_s}
        return Round(
            events_per_s=events / (self.at_s - before.at_s),
            client_us=(self.client_s - before.client_s) * US / events,
            leader_us=None if place.leader is None else used_s[place.leader] * US / events,
            nodes_us=sum(used_s.values()) * US / events,
            resent=self.resent - before.resent,
            p50_ms=times_s[len(times_s) // 2] * MS if times_s else None,
            p99_ms=times_s[len(times_s) * 99 // 100] * MS if times_s else None,
        )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
