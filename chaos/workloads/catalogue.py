"""Catalogue of workloads, with the clients of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from chaos.history import moments
from chaos.history.tables import UNCOMMITTED
from chaos.workloads import spark
from chaos.workloads.group_members import ConsumerMember
from chaos.workloads.operators import Operator
from chaos.workloads.producers import BatchProducer, EventProducer
from chaos.workloads.readers import TailReader, Watcher
from chaos.workloads.transactions import TransactionWriter, Worker
from chaos.workloads.world import LogName, World

STOP_WITHIN_S = 60.0
"""Bound from `over` to the end of every client: a patient producer waits 20 s for its last acknowledgements."""


OPERATORS = 3

LONG_S = 120.0
"""Shortest run in which all hopes of a workload must come true."""


class ClientTask(Protocol):
    """A client that works until the run is over."""

    def run(self) -> Coroutine[Any, Any, None]: ...


@dataclass(frozen=True)
class Workload:
    """A workload: its clients, and the requirements for them and for their history.

    `needed`: checkers that must have something to judge, in addition to those that always must. `logs`: count of logs.
    `hopes`: moments that must occur in a long run (`chaos/history/moments.py`). `is_transactional`: some clients have
    transactional ids, so there are coordinators. `missing`: says why the workload cannot run here, or "".
    `needs_own_nodes`: why it needs nodes that the run has started, or ""."""

    title: str
    cast: Callable[[World], Sequence[ClientTask]]
    needed: tuple[str, ...] = ()
    logs: int = 1
    hopes: tuple[str, ...] = ()
    is_transactional: bool = False
    stop_within_s: float = STOP_WITHIN_S
    missing: Callable[[], str] = lambda: ""
    needs_own_nodes: str = ""

    def hopes_in(self, seconds: float) -> tuple[str, ...]:
        return self.hopes if seconds >= LONG_S else ()


def _produce_and_drain(world: World) -> list[ClientTask]:
    producers = [EventProducer(world, world.log, f"p{one}", one) for one in world.log.own]
    return [*producers, *_readers(world), *_operators(world)]


def _idempotent_with_retries(world: World) -> list[ClientTask]:
    """Return the clients of W2: two producers in each partition, whose batches alternate, and readers."""
    producers = [
        BatchProducer(world, world.log, f"b{number}", number % world.log.partitions, 1000 + number)
        for number in range(2 * world.log.partitions)
    ]
    return [*producers, *_readers(world)]


def _groups(world: World) -> list[ClientTask]:
    producers = [EventProducer(world, world.log, f"p{one}", one) for one in world.log.own]
    members = [ConsumerMember(world, world.log, "g", f"m{number}") for number in range(1, 4)]
    return [*producers, *members, *_watchers(world, world.log)]


def _transactions(world: World) -> list[ClientTask]:
    source, target = world.logs
    return [
        *(EventProducer(world, source, f"p{one}", one) for one in source.own),
        *(TransactionWriter(world, target, f"t{number}") for number in range(2)),
        *(Worker(world, source, target, "pipeline", f"w{number}") for number in range(2)),
        TailReader(world, target, "tail-1"),
        TailReader(world, target, "dirty-1", UNCOMMITTED),
        *_watchers(world, target),
    ]


def _spark(world: World) -> list[ClientTask]:
    source, target = world.logs
    return [
        *(EventProducer(world, source, f"p{one}", one) for one in source.own),
        spark.SparkQuery(world, source, target, "spark"),
        TailReader(world, target, "tail-1"),
        TailReader(world, target, "dirty-1", UNCOMMITTED),
        *_watchers(world, target),
    ]


def _readers(world: World) -> list[ClientTask]:
    tails = [TailReader(world, world.log, f"tail-{number}") for number in (1, 2)]
    return [*tails, *_watchers(world, world.log)]


def _operators(world: World) -> list[ClientTask]:
    """Return operators at the first few nodes; with more, calls overlap so much that the checker can prove less."""
    count = min(OPERATORS, len(world.servers["consumers"]))
    return [Operator(world, world.log, node, node) for node in range(1, count + 1)]


def _watchers(world: World, log: LogName) -> list[ClientTask]:
    return [Watcher(world, log, node) for node in range(1, len(world.servers["consumers"]) + 1)]


WORKLOADS: Final[dict[str, Workload]] = {
    "W1": Workload(
        "idempotent producers, event by event; consumers at the tail; operators change a log and look at it",
        _produce_and_drain,
        ("C4", "C6", "C22"),
    ),
    "W2": Workload(
        "impatient producers send again, crash, and are fenced",
        _idempotent_with_retries,
        ("C4", "C6"),
        hopes=(moments.SENT_AGAIN,),
    ),
    "W3": Workload("a consumer group whose members come, commit, leave and crash", _groups, ("C4", "C10", "C11")),
    "W4": Workload(
        "transactions over partitions; workers consume, transform and produce",
        _transactions,
        ("C8", "C10", "C11", "C12", "C13", "G1B", "LSO"),
        logs=2,
        hopes=(moments.ROLLED_BACK,),
        is_transactional=True,
    ),
    "W5": Workload(
        "a query of Spark writes each event of a log to another one, once; its driver crashes",
        _spark,
        ("C12", "C13"),
        logs=2,
        stop_within_s=spark.ENDS_WITHIN_S,
        missing=spark.missing,
        needs_own_nodes="its query of Spark knows no login, and no TLS",
    ),
}


async def play(workload: Workload, world: World, until: Awaitable[None]) -> None:
    """Run all clients until `until` ends; then each ends, within bounds."""
    cast = workload.cast(world)
    readers = [asyncio.ensure_future(one.run()) for one in cast if isinstance(one, TailReader)]
    others = [asyncio.ensure_future(one.run()) for one in cast if not isinstance(one, TailReader)]
    try:
        await until
    finally:
        world.over.set()
        ended = await _end(others, workload.stop_within_s)
        world.quiet.set()
        ended |= await _end(readers, STOP_WITHIN_S)
    for task in ended:
        task.result()


async def _end(tasks: list[asyncio.Task[None]], within_s: float) -> set[asyncio.Task[None]]:
    """Wait for clients and cancel late ones; return those that ended by themselves."""
    done, late = await asyncio.wait(tasks, timeout=within_s) if tasks else (set(), set())
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    return done
