"""Idempotent producers at a partition's leader: opened, watched, listed.

The rule: all that a producer is told was applied from the replicated log, so a deposed leader can grant and fence
nothing. `apply` tells the watches of this node's links, on followers too, inside a turn; they only note it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from node.partition.api import Failed, ProducerInfo, ProducerOpened, ProducerRequest
from node.partition.appender import REFUSALS
from node.partition.idempotence.producer_state import (
    NOTHING,
    Producer,
    ProducerTable,
    batches_of,
    nonsense,
)
from node.partition.partition_commands import OpenProducer
from node.partition.raft_group import Proposer, propose
from node.partition.state_machine import AppendRejected, Fence, Opened

Stolen = Callable[[int], None]


async def open_producer(group: Proposer, wish: ProducerRequest, now_ms: int) -> ProducerOpened | Failed:
    """Open a producer. Failures other than the producer's own fault may be tried again: opening twice does no harm."""
    wrong = nonsense(wish.producer_id, wish.epoch, wish.last_sequence)
    if wrong is not None:
        return Failed("producer_invalid", False, wrong)
    command = OpenProducer(wish.producer_id, wish.epoch, wish.last_sequence, now_ms, wish.renews)
    result = await propose(group, command.encode(), "the partition")
    if isinstance(result, Opened):
        return ProducerOpened(result.producer_id, result.epoch, result.last_sequence)
    if isinstance(result, AppendRejected) and result.code in REFUSALS:
        return Failed(REFUSALS[result.code], False, result.detail)
    return result if isinstance(result, Failed) else Failed("rejected", False, f"the producer was not opened: {result}")


class Watches:
    """Callbacks of links that want to know when a producer is opened with a higher epoch."""

    def __init__(self) -> None:
        self._by_producer: dict[int, list[Stolen]] = {}

    def add(self, producer_id: int, stolen: Stolen) -> Callable[[], None]:
        watching = self._by_producer.setdefault(producer_id, [])
        watching.append(stolen)

        def end() -> None:
            if stolen in watching:
                watching.remove(stolen)
            if not watching and self._by_producer.get(producer_id) is watching:
                del self._by_producer[producer_id]

        return end

    def tell(self, fence: Fence) -> None:
        for stolen in list(self._by_producer.get(fence.producer_id, ())):
            stolen(fence.epoch)


def describe(producers: ProducerTable, after: int, limit: int) -> list[ProducerInfo]:
    rows = sorted(producers.rows(), key=lambda row: row.producer_id)
    first = bisect_right(rows, after, key=lambda row: row.producer_id)
    return [_info(row) for row in rows[first : first + limit]]


def _info(row: Producer) -> ProducerInfo:
    last = None
    for last in batches_of(row):  # noqa: B007 - only the newest is of interest
        pass
    return ProducerInfo(
        producer_id=row.producer_id,
        epoch=row.epoch,
        last_sequence=None if row.last == NOTHING else row.last,
        last_offset=None if last is None else last.base_offset + last.events - 1,
        last_active_ms=row.touched_ms,
        remembered=row.remembered,
    )
