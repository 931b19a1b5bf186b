"""One round: a producer of one kind publishes for a while, in this process; what it achieved, and at whose expense.

Fairness: both kinds run the very same loop below, over as many partitions, with as many publishers for each. In
batches, one publisher for each partition has one batch under way there: what an idempotent producer allows itself.
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

from holdfast.client import NetworkOptions, ProducerClient, ProducerOptions

US = 1_000_000


@dataclass(frozen=True)
class Row:
    """What is published how; each is run by both kinds of producer."""

    name: str
    partitions: int
    batch_events: int | None  # None: single `send`s
    publishers: int = 1  # for each partition, of batches
    goal_per_s: int | None = None  # of either kind


@dataclass(frozen=True)
class Round:
    """Rates of confirmed events, and CPU for each of them."""

    events_per_s: float
    client_us: float
    leader_us: float | None  # of the node that leads the only partition
    nodes_us: float  # of all nodes together
    resent: int


@dataclass(frozen=True)
class Place:
    servers: Sequence[str]
    log: str
    processes: Mapping[str, psutil.Process]
    leader: str | None
    network: NetworkOptions = field(default_factory=NetworkOptions)


def run(row: Row, place: Place, *, idempotent: bool, size: int, warmup_s: float, seconds: float) -> Round:
    return uvloop.run(_round(row, place, idempotent, bytes(size), warmup_s, seconds))


async def _round(row: Row, place: Place, idempotent: bool, body: bytes, warmup_s: float, seconds: float) -> Round:
    over = asyncio.Event()
    options = ProducerOptions(idempotent=idempotent, network=place.network)
    async with ProducerClient(list(place.servers), place.log, options) as producer:
        publishing = [asyncio.create_task(work) for work in _publishers(row, producer, body, over.is_set)]
        await asyncio.sleep(warmup_s)
        before = _Reading(producer, place)
        await asyncio.sleep(seconds)
        found = _Reading(producer, place).since(before, place)
        over.set()
        await asyncio.gather(*publishing)
    return found


def _publishers(
    row: Row, producer: ProducerClient, body: bytes, over: Callable[[], bool]
) -> list[Coroutine[Any, Any, None]]:
    if row.batch_events is None:
        return [_singles(producer, body, over)]
    return [
        _batches(producer, partition, row.batch_events, body, over)
        for partition in producer.partitions
        for _ in range(row.publishers)
    ]


async def _singles(producer: ProducerClient, body: bytes, over: Callable[[], bool]) -> None:
    send = producer.send
    for partition in itertools.cycle(producer.partitions):
        await send(body, partition=partition)
        if over():
            return


async def _batches(
    producer: ProducerClient, partition: str, events: int, body: bytes, over: Callable[[], bool]
) -> None:
    while not over():
        batch = await producer.create_batch(partition=partition)
        for _ in range(events):
            batch.add(body)
        await producer.send_batch(batch)


class _Reading:
    """Counters at one moment."""

    def __init__(self, producer: ProducerClient, place: Place) -> None:
        self.accepted, self.resent = producer.stats.accepted, producer.stats.resent
        self.at_s, self.client_s = time.perf_counter(), time.process_time()
        self.nodes_s = {name: _cpu_s(process) for name, process in place.processes.items()}

    def since(self, before: _Reading, place: Place) -> Round:
        events = self.accepted - before.accepted
        assert events > 0, "nothing was confirmed"
        used_s = {name: self.nodes_s[name] - before.nodes_s[name] for name in self.nodes_s}
        return Round(
            events_per_s=events / (self.at_s - before.at_s),
            client_us=(self.client_s - before.client_s) * US / events,
            leader_us=None if place.leader is None else used_s[place.leader] * US / events,
            nodes_us=sum(used_s.values()) * US / events,
            resent=self.resent - before.resent,
        )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
