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
    InternalError,
    RejectedError,
    UndeliveredError,
)
from holdfast.client.produce.chunks.chunk import Chunk, Run
from holdfast.client.produce.chunks.delivery import ChunkDelivery
from holdfast.client.produce.idempotent.partition_publisher import FATAL, PartitionPublisher
from holdfast.client.produce.idempotent.producer_identity import PartitionPublishingProperties
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.produce.round_trips import RoundTrips
from holdfast.client.produce.transfers import (
    Room,
    Transfer,
    next_transfers,
    transfer_of,
    weight_of,
    without_too_large,
    worth_waiting,
)

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
    ) -> None:
        """`settled`: as of a `PartitionSender`, for what is buffered. `confirmed`: for batches."""
        self._publisher = publisher
        self.check_usable = publisher.check_usable  # raises what ended publishing to this partition, if something did
        self._confirmed, self._stats = confirmed, stats
        self._buffer = _Buffer(publisher.partition, stats, settled)
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
            if publisher.publishes(source):
                await self._to_its_end(publication, source)
            else:
                self._ended(publication, source, False)
            if isinstance(error, HoldfastError):
                publisher.gave_up(source.missing, error)
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

    # ---------------------------------------------------------------- the buffer: as a PartitionSender has it

    def waits_since(self, since_s: float) -> bool:
        return self._publisher.progress_s <= since_s and self.outstanding()[0] > 0

    def outstanding(self) -> tuple[int, int]:
        events, size = weight_of(self._buffer.waiting)
        if not self._publisher.publishes(self._buffer):
            return events, size
        sent_events, sent_size = self._publisher.sent()
        return events + sent_events, size + sent_size

    @property
    def round_trips(self) -> RoundTrips:
        return self._publisher.round_trips

    def put(self, runs: Iterable[Run]) -> None:
        self._buffer.waiting.extend(runs)

    def pump(self) -> None:
        """See to it that what is buffered gets published."""
        if self._task is None or self._task.done():
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
                    self._fail(error)
                except Exception as error:  # noqa: BLE001  or whoever waits for what is here would wait for ever
                    self._fail(InternalError.of(error))

    def _fail(self, error: HoldfastError) -> None:
        """Everything that is buffered."""
        self._publisher.gave_up(weight_of(self._buffer.waiting)[0], error)
        self._buffer.fail(error)

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
    return UndeliveredError.of(
        f"{count} events for {what} were not confirmed",
        count,
        error,
        advice="send the same batch again, by this producer: what had arrived is not stored twice",
    )


class _Batch:
    """Published as a whole."""

    one_by_one = False

    def __init__(self, contents: list[bytes], confirmed: Callable[[int], None]) -> None:
        self._delivery = ChunkDelivery(len(contents), _nobody)
        run = Chunk.of_messages(contents, self._delivery, leads=True, numbered=True).whole()
        self._waiting: deque[Run] = deque([run])
        self._largest = run.largest
        self.missing = len(contents)
        self._confirmed = confirmed

    def __len__(self) -> int:
        return self._delivery.count

    @property
    def first_number(self) -> int | None:
        return self._delivery.sequence_number

    @property
    def offset(self) -> str | None:
        """Of the first event."""
        return self._delivery.offset_text

    def check(self, most_bytes: int) -> None:
        if 0 < most_bytes < self._largest:
            raise EventTooLargeError.of(self._largest, most_bytes)

    @property
    def has_more(self) -> bool:
        return bool(self._waiting)

    def take(self, room: Room, *, wait: bool) -> list[Transfer]:
        waiting = self._waiting
        if not waiting or (wait and worth_waiting(waiting, room)):
            return []
        return next_transfers(waiting, room)

    def accepted(self, transfers: list[Transfer]) -> None:
        for transfer in transfers:
            self.missing -= transfer.events
            for run in transfer.runs:
                run.settle(None)
        self._confirmed(sum(transfer.events for transfer in transfers))

    def refused(self, run: Run, error: RejectedError) -> None:
        raise AssertionError("a batch is accepted as a whole")

    def given_up(self, runs: list[Run]) -> None:
        pass


def _nobody(_: ChunkDelivery) -> None:
    """Who publishes a batch hears of its failure."""


class _Buffer:
    """What `send` and `send_many` have taken: events that stand each for itself."""

    one_by_one = True

    def __init__(
        self,
        partition: str,
        stats: ProducerStats,
        settled: Callable[[str | None, int, int, bool], None],
    ) -> None:
        self.waiting: deque[Run] = deque()
        self.in_line = 0  # batches that wait for their turn
        self.taken = 0  # events, since the buffer has its turn
        self._partition, self._stats = partition, stats
        self._settled = settled
        self._most_bytes = 0

    def check(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes

    @property
    def has_more(self) -> bool:
        return bool(self.waiting) and not (self.in_line and self.taken >= FAIR_EVENTS)

    def take(self, room: Room, *, wait: bool) -> list[Transfer]:
        transfers: list[Transfer] = []
        while self.has_more and not transfers:
            if wait and worth_waiting(self.waiting, room):
                break
            transfers = next_transfers(self.waiting, room)
            if self._most_bytes:
                transfers = without_too_large(self.waiting, transfers, self._most_bytes, self._too_large)
        self.taken += sum(transfer.events for transfer in transfers)
        return transfers

    def _too_large(self, transfer: Transfer, error: EventTooLargeError) -> None:
        self._stats.rejected += transfer.events
        self._finish(transfer, error)

    def accepted(self, transfers: list[Transfer]) -> None:
        events = size = 0
        for transfer in transfers:
            events += transfer.events
            size += transfer.size
            for run in transfer.runs:
                run.settle(None)
        self._settled(self._partition, events, size, True)

    def refused(self, run: Run, error: RejectedError) -> None:
        self._finish(transfer_of([run]), error)

    def given_up(self, runs: list[Run]) -> None:
        self.waiting.extendleft(reversed(runs))

    def fail(self, error: HoldfastError) -> None:
        """Everything that is here."""
        failed = transfer_of(self.waiting)
        self.waiting.clear()
        if not failed.events:
            return
        self._stats.failed += failed.events
        if not isinstance(error, FATAL):
            text = f"{failed.events} events for partition {self._partition} were not confirmed"
            error = UndeliveredError.of(text, failed.events, error)
        self._finish(failed, error)

    def _finish(self, transfer: Transfer, error: HoldfastError) -> None:
        for run in transfer.runs:
            run.settle(error)
        self._settled(self._partition, transfer.events, transfer.size, False)
