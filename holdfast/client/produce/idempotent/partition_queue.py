"""What an idempotent producer keeps for each partition: batches and buffered events, waiting for their turn.

Rules never broken:
 - batches and the buffer are published one after the other, in the order in which they came to the line;
 - a batch is locked from the call on, and what became of it stands in it whatever happens to the caller: published with
   its number, or unlocked without one;
 - a caller who gives up is let go at once while nothing of his batch was sent; otherwise only when its outcome is
   known, or after `CANCEL_BOUND_S`.
Rejected: cancelling in the middle. Nobody would know then which number comes next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from holdfast.client.errors import (
    ClosedError,
    EventTooLargeError,
    HoldfastError,
    RejectedError,
    UndeliveredError,
)
from holdfast.client.produce.delivery import Delivery
from holdfast.client.produce.idempotent.partition_publisher import FATAL, PartitionPublisher
from holdfast.client.produce.idempotent.producer_identity import NUMBERING_BYTES, PartitionPublishingProperties
from holdfast.client.produce.partition_sender import ProducerStats

# Who cancels a publish waits so long for its outcome: longer than a change of leaders takes.
CANCEL_BOUND_S = 2.0
# Buffered events that are published without a pause while a batch waits for its turn.
FAIR_EVENTS = 4096


class Publication(Protocol):
    """A batch, or a list of events, as the line sees it."""

    @property
    def contents(self) -> list[bytes]: ...
    def published(self, starting_number: int | None) -> None: ...
    def unlock(self) -> None: ...


class PartitionQueue:
    """One partition's."""

    def __init__(
        self,
        publisher: PartitionPublisher,
        *,
        stats: ProducerStats,
        settled: Callable[[str | None, int, int, bool], None],
        confirmed: Callable[[str | None, int], None],
        unclaimed: Callable[[Delivery], None],
    ) -> None:
        """`settled`, `unclaimed`: as of a `Lane`, for what is buffered; `confirmed` for events of batches."""
        self._publisher = publisher
        self.check_usable = publisher.check_usable  # raises what ended publishing to this partition, if something did
        self._confirmed, self._stats = confirmed, stats
        self._buffer = _Buffer(publisher.partition, stats, settled, unclaimed)
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def partition(self) -> str:
        return self._publisher.partition

    async def properties(self) -> PartitionPublishingProperties:
        """Opens the partition if that has not been done. What was known before an end can still be read."""
        publisher = self._publisher
        if not publisher.identity.known:
            async with publisher.turn:
                publisher.check_usable()
                await publisher.ready()
        return publisher.identity.properties()

    # ---------------------------------------------------------------- batches

    async def publish(self, publication: Publication) -> str | None:
        """Return the first event's offset, if the node tells it, when all is accepted. It comes locked."""
        publisher = self._publisher
        self._buffer.in_line += 1
        try:
            await publisher.turn.acquire()
        except BaseException:
            publication.unlock()
            raise
        finally:
            self._buffer.in_line -= 1
        source = _Batch(publication.contents, partial(self._confirmed, publisher.partition))
        try:
            await publisher.publish(source, leave_in_doubt=True)
        except BaseException as error:
            if publisher.left_in_doubt(source):
                await self._to_its_end(publication, source)
            else:
                self._ended(publication, source, False)
            if isinstance(error, HoldfastError) and error.retriable:
                raise _undelivered(len(source), publisher.what, error) from error
            raise
        self._ended(publication, source, True)
        return source.offset

    async def _to_its_end(self, publication: Publication, source: _Batch) -> None:
        """Of a batch whose publisher was cancelled when something of it had been sent."""
        task = self._loop.create_task(self._publisher.resume(source), name=f"publish to {self._publisher.what}")
        # Before anybody else hears of it: who is called back later finds the batch in its final state.
        task.add_done_callback(
            lambda task: self._ended(publication, source, not task.cancelled() and task.exception() is None)
        )
        try:
            await asyncio.wait({task}, timeout=CANCEL_BOUND_S)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        finally:
            task.cancel()  # does nothing to a task that has ended

    def _ended(self, publication: Publication, source: _Batch, good: bool) -> None:
        if good:
            publication.published(source.first_number)
        else:
            publication.unlock()
            self._stats.failed += source.missing
        self._publisher.turn.release()

    # ---------------------------------------------------------------- the buffer: as a Lane has it

    @property
    def outstanding(self) -> int:
        return len(self._buffer)

    def put(self, deliveries: Iterable[Delivery]) -> None:
        self._buffer.waiting.extend(deliveries)

    def pump(self) -> None:
        """See to it that what is buffered gets published."""
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name=f"buffer of {self._publisher.what}")
        self._has_work.set()
        self._publisher.has_more(self._buffer)

    async def _run(self) -> None:
        publisher, buffer = self._publisher, self._buffer
        while True:
            self._has_work.clear()
            if not buffer.waiting:
                await self._has_work.wait()
            async with publisher.turn:
                buffer.taken = 0
                try:
                    await publisher.publish(buffer)
                except HoldfastError as error:
                    buffer.fail(error)

    async def close(self) -> None:
        """What is not published yet is not any more, and its owners are told."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._publisher.close()
        self._buffer.fail(ClosedError("the producer was closed"))

    async def ended(self) -> None:
        """After `close`, and that of the network: when nobody is at work here any more."""
        async with self._publisher.turn:
            pass


def _undelivered(count: int, what: str, error: HoldfastError) -> UndeliveredError:
    return UndeliveredError(
        f"{count} events for {what} were not confirmed: {error}",
        count=count,
        advice="send the same batch again, by this producer: what had arrived is not stored twice",
    )


class _Batch:
    """Published as a whole."""

    one_by_one = False

    def __init__(self, contents: list[bytes], confirmed: Callable[[int], None]) -> None:
        self._deliveries = deque(Delivery(content) for content in contents)
        self._first = self._deliveries[0]
        self._count = self.missing = len(contents)
        self._largest = max(map(len, contents))
        self._confirmed = confirmed

    def __len__(self) -> int:
        return self._count

    @property
    def first_number(self) -> int | None:
        return self._first.sequence_number

    @property
    def offset(self) -> str | None:
        """Of the first event."""
        return self._first.offset_text

    def check(self, most_bytes: int) -> None:
        size = self._largest + NUMBERING_BYTES
        if 0 < most_bytes < size:
            raise EventTooLargeError.of(size, most_bytes)

    @property
    def has_more(self) -> bool:
        return bool(self._deliveries)

    def take(self, most: int, most_bytes: int) -> list[Delivery]:
        return _taken(self._deliveries, most, most_bytes)[0]

    def accepted(self, deliveries: list[Delivery]) -> None:
        self.missing -= len(deliveries)
        self._confirmed(len(deliveries))

    def refused(self, delivery: Delivery, error: RejectedError) -> None:
        raise AssertionError("a batch is accepted as a whole")

    def given_up(self, deliveries: list[Delivery]) -> None:
        pass


class _Buffer:
    """What `send` has taken: events that stand each for itself."""

    one_by_one = True

    def __init__(
        self,
        partition: str,
        stats: ProducerStats,
        settled: Callable[[str | None, int, int, bool], None],
        unclaimed: Callable[[Delivery], None],
    ) -> None:
        self.waiting: deque[Delivery] = deque()
        self.in_line = 0  # batches that wait for their turn
        self.taken = 0  # since the buffer has its turn
        self._partition, self._stats = partition, stats
        self._settled, self._unclaimed = settled, unclaimed
        self._most_bytes = 0
        self._out = 0

    def __len__(self) -> int:
        return len(self.waiting) + self._out

    def check(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes

    @property
    def has_more(self) -> bool:
        return bool(self.waiting) and not (self.in_line and self.taken >= FAIR_EVENTS)

    def take(self, most: int, most_bytes: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        limit = self._most_bytes - NUMBERING_BYTES
        while self.has_more and not deliveries:
            deliveries, largest = _taken(self.waiting, most, most_bytes)
            if self._most_bytes and largest > limit:
                deliveries = self._without_too_large(deliveries, limit)
        self.taken += len(deliveries)
        self._out += len(deliveries)
        return deliveries

    def _without_too_large(self, deliveries: list[Delivery], limit: int) -> list[Delivery]:
        for one in deliveries:
            if len(one.content) > limit:
                self._stats.rejected += 1
                self._finish(one, EventTooLargeError.of(len(one.content), limit))
        return [one for one in deliveries if len(one.content) <= limit]

    def accepted(self, deliveries: list[Delivery]) -> None:
        size = 0
        for one in deliveries:
            size += len(one.content)
            if one.event is not None:
                one.event.published_sequence_number = one.sequence_number
                one.event.being_published = False
            one.settle(None)
        self._out -= len(deliveries)
        self._settled(self._partition, len(deliveries), size, True)

    def refused(self, delivery: Delivery, error: RejectedError) -> None:
        self._out -= 1
        self._finish(delivery, error)

    def given_up(self, deliveries: list[Delivery]) -> None:
        self._out -= len(deliveries)
        self.waiting.extendleft(reversed(deliveries))

    def fail(self, error: HoldfastError) -> None:
        """Everything that is here."""
        failed = list(self.waiting)
        self.waiting.clear()
        if not failed:
            return
        self._stats.failed += len(failed)
        if not isinstance(error, FATAL):
            text = f"{len(failed)} events for partition {self._partition} were not confirmed: {error}"
            error = UndeliveredError(text, count=len(failed))
        for one in failed:
            self._finish(one, error)

    def _finish(self, delivery: Delivery, error: HoldfastError) -> None:
        if delivery.event is not None:
            delivery.event.being_published = False
        delivery.settle(error)
        if not delivery.claimed:
            self._unclaimed(delivery)
        self._settled(self._partition, 1, len(delivery.content), False)


def _taken(waiting: deque[Delivery], most: int, most_bytes: int) -> tuple[list[Delivery], int]:
    """The next ones, and the size of the largest of them."""
    taken: list[Delivery] = []
    total, largest, next_one, take = 0, 0, waiting.popleft, taken.append
    for _ in range(min(most, len(waiting))):
        delivery = next_one()
        take(delivery)
        size = len(delivery.content)
        total += size
        if size > largest:
            largest = size
        if total >= most_bytes:
            break
    return taken, largest
