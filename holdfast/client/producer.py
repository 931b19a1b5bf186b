"""The producer: events in, confirmed events out, in order per key, through failures.

Problem: a confirmed event must be in the log whatever dies meanwhile; the price of asking for each confirmation alone
would be a round trip per event.
Rules never broken:
 - what `flush` or `close` returned without an error for is stored; what failed is told to who asks for it, or raised by
   the next `flush`, once, and by each `send` before that (see `failures`);
 - memory is bounded: `send` waits when the buffer is full, `send_nowait` raises;
 - events of one key stay in order, and none is stored twice (see `partition_sender`). With `idempotent=False` delivery
   is at least once: copies after a failover are counted.
Rejected: a thread of its own with a lock per event.

Events with a key go to the partition that the node itself would choose (`holdfast.amqp.partition_key`), over a link
of that partition to its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from holdfast.client.errors import (
    ClosedError,
    ConfigurationError,
    InvalidOperationError,
)
from holdfast.client.events import Event
from holdfast.client.options import ProducerOptions, check_log, options_of
from holdfast.client.produce.accumulator import Accumulator
from holdfast.client.produce.delivery import Delivery, DeliveryResult, Done
from holdfast.client.produce.event_batch import EventBatch, contents_of, place_of, publication_of
from holdfast.client.produce.intake import Intake
from holdfast.client.produce.partition_sender import PartitionSender, ProducerStats
from holdfast.client.produce.producer_identity import (
    PartitionPublishingOptions,
    PartitionPublishingProperties,
)
from holdfast.client.transact.control_link import LastTransaction
from holdfast.client.transact.group_member import (
    DEFAULT_LEASE_S,
    GroupMember,
    GroupNames,
    MemberTransactor,
    MemberWish,
)
from holdfast.client.transact.transaction import ProducerSide, Transaction
from holdfast.client.transact.transactor import Transactor
from holdfast.client.transport.network import Network
from holdfast.client.waits.release import Release


class ProducerClient:
    """Publishes events to one log.

    async with ProducerClient("127.0.0.1:5672", "trades") as producer:
        await producer.send(b"...", key="IBM")      # returns when it is buffered
        await producer.flush()                      # returns when everything is confirmed
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        options: ProducerOptions | None = None,
        *,
        idempotent: bool | None = None,
        partition_options: Mapping[str, PartitionPublishingOptions] | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """`idempotent`, `partition_options`, `transactional_id`: those of `options`, for short."""
        check_log(log)
        self.log = log
        options = options_of(ProducerOptions, options)
        if idempotent is not None:
            options = replace(options, idempotent=idempotent)
        if partition_options is not None:
            options = replace(options, partition_options=dict(partition_options))
        if transactional_id is not None:
            options = replace(options, transactional_id=transactional_id)
        options.check()
        self.options = options
        self.stats = ProducerStats()
        self._accumulator = Accumulator(Network(servers, options.network), log, options, self.stats)
        self._intake = Intake(self._accumulator, options)
        self._servers = servers
        self._transactor = None if options.transactional_id is None else Transactor(servers, log, options)
        self._transaction: Transaction | None = None  # the one that is open
        self._closing = False
        self._barred = False  # it closes, or a transaction is open: one flag to look at for each event
        self._release = Release(self._let_go, f"close the producer for {log}")

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Learn the log's partitions; raises `NotFoundError` when there is no such log. With a `transactional_id`:
        nobody else has it from now on, and what its last holder has left open is rolled back."""
        self._check_open()
        await self._accumulator.partitions.learn()
        if self._transactor is not None:
            await self._transactor.hold()

    async def __aenter__(self) -> ProducerClient:
        try:
            await self.start()
        except BaseException:
            await self.abandon()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abandon()

    async def close(self) -> None:
        """Take nothing more, wait until everything is confirmed (bounded by the delivery timeout), then let go. Raises
        what failed, and InvalidOperationError if a transaction is open: it is rolled back. Idempotent. A caller that is
        cancelled while it waits stops waiting, first for what is unconfirmed, then for the rest; all is let go
        nevertheless, and a second call waits for that."""
        open_transaction = self._transaction if not self._closing else None
        self._closing = self._barred = True
        try:
            await self.flush()
        finally:
            await self.abandon()
        if open_transaction is not None and open_transaction.ending is None:
            raise InvalidOperationError(
                "a transaction was open when its producer was closed: it is rolled back, with all that was sent in it",
                advice="commit it before, or write `async with producer.transaction() as tx`",
            )

    async def abandon(self) -> None:
        """Close without waiting: what is unconfirmed may or may not be stored, and its owners are told. Idempotent."""
        self._closing = self._barred = True
        await self._release.done()

    async def _let_go(self) -> None:
        try:
            if self._transactor is not None:
                await self._transactor.close()
        finally:
            await self._accumulator.close()

    def _check_open(self) -> None:
        if self._closing:
            raise ClosedError("the producer was closed")

    def _check_takes(self) -> None:
        """Raise if no event is taken in: it is closed, nobody has heard of a failure, or a transaction is open. Whoever
        sends within a transaction means to send under it: an event that counts at once, whatever becomes of the
        transaction, would be a duplicate after the next try."""
        self._check_open()
        self._accumulator.failures.check()
        if self._transaction is not None:
            raise InvalidOperationError(
                "a transaction of this producer is open, and this would not be part of it",
                advice="send under it, by the same method of the transaction (await tx.send(...)); for what does not"
                " belong to it open another producer",
            )

    @property
    def partitions(self) -> list[str]:
        """The log's partitions, known after `start`."""
        return list(self._accumulator.partitions.names)

    def partition_of(self, key: str) -> str:
        """Where events with this key go. Known after `start`."""
        return self._accumulator.partitions.place_for(key, None)

    @property
    def outstanding(self) -> int:
        """Events that are buffered or on their way, not yet confirmed."""
        return self._accumulator.events

    @property
    def on_confirmed(self) -> Callable[[str, int], None] | None:
        """Called with a partition and the number of its events just confirmed. What it raises goes to the event loop's
        exception handler, and stops nothing."""
        return self._accumulator.on_confirmed

    @on_confirmed.setter
    def on_confirmed(self, callback: Callable[[str, int], None] | None) -> None:
        self._accumulator.on_confirmed = callback

    # ---------------------------------------------------------------- single events, buffered

    async def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event, waiting for room if need be. What became of it: await the `Delivery` that is returned, or
        give `done`: it is called with None (confirmed) or with the error. Where nobody asked, the next calls raise what
        failed, until `flush` has."""
        accumulator = self._accumulator
        if not accumulator.has_room:
            await accumulator.wait_for_room()
        if self._barred or accumulator.failures.stopped:
            self._check_takes()
        delivery = self._intake.one(event, key, partition, properties, done)
        if accumulator.turn_is_over:
            await accumulator.give_way()
        return delivery

    def send_nowait(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event or raise `BufferFullError`."""
        self._check_takes()
        self._accumulator.check_room()
        return self._intake.one(event, key, partition, properties, done)

    async def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> Delivery:
        """Buffer these events, waiting for room if need be: what `send` of each does, in the same order, at a fraction
        of its cost where the events are `bytes`. What became of them all: await what is returned. They go to one
        partition, but for events with keys of their own, where none is named. Cancelled while it waits, it has taken
        in the first ones."""
        accumulator = self._accumulator
        self._check_takes()
        pieces = self._intake.many(events, key, partition)
        parts: list[Delivery] = []
        while pieces.left:
            if not accumulator.has_room:
                await accumulator.wait_for_room()
                self._check_takes()
            parts += self._intake.take_next(pieces)
            if accumulator.turn_is_over:
                await accumulator.give_way()
                if pieces.left:
                    self._check_takes()
        return Delivery.of(parts, pieces.routes[0].partition if pieces.routes else "")

    async def send_and_confirm(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> DeliveryResult:
        """Send one event and return when it is stored; raises if it is not."""
        return await (await self.send(event, key=key, partition=partition, properties=properties))

    async def flush(self) -> None:
        """Return when nothing is outstanding. Raises the first failure that nobody has heard of; afterwards events are
        taken in again, and it is for the program to say whether they may stand behind the one that failed.

        Bounded: each event is confirmed, refused, or given up after the delivery timeout without any progress.
        """
        await self._accumulator.finished()
        self._accumulator.failures.tell()

    # ---------------------------------------------------------------- batches

    async def create_batch(
        self, *, partition: str | None = None, key: str | None = None, max_bytes: int | None = None
    ) -> EventBatch:
        """An empty batch for one partition, for the partition of a key, or for whichever has its turn."""
        self._check_open()
        most = self.options.max_batch_bytes if max_bytes is None else max_bytes
        if most <= 0:
            raise ConfigurationError(f"max_bytes must be more than 0, not {most}")
        if partition is not None and key is not None:
            raise ConfigurationError("a batch is for a partition or for a key, not for both")
        self._intake.check_place(key, partition)
        if partition is not None:
            self._accumulator.partitions.check(partition)
        return EventBatch(partition, key, max_bytes=most, named=bool(self.options.partition_options))

    async def send_batch(
        self,
        batch: EventBatch | Sequence[Event | bytes | str],
        *,
        partition: str | None = None,
        key: str | None = None,
    ) -> DeliveryResult:
        """Publish a batch, or a list of events, and return when all of it is confirmed.

        Idempotent: it is published as a whole or raises; after a failure the same batch may be given again, and what
        had arrived is not stored twice. Otherwise single events may have failed (`UndeliveredError` tells how many).
        """
        self._check_takes()
        partition, key = place_of(batch, partition, key, named=bool(self.options.partition_options))
        if not isinstance(batch, EventBatch):
            batch = list(batch)
        self._intake.check_places(() if isinstance(batch, EventBatch) else batch, key, partition)
        await self._accumulator.wait_for_room()
        self._check_takes()
        sender = self._intake.sender(key, partition)
        if not len(batch):
            return DeliveryResult(sender.partition, None, None, 0)
        if self.options.idempotent:
            return await self._publish(batch, key, sender)
        return await self._send_together(batch, key, sender)

    async def _publish(
        self, batch: EventBatch | Sequence[Event | bytes | str], key: str | None, sender: PartitionSender
    ) -> DeliveryResult:
        in_doubt = isinstance(batch, EventBatch) and sender.check_again(batch)
        pending = publication_of(batch, key, sender.partition, _nothing, named=bool(self.options.partition_options))
        pending.in_doubt = in_doubt
        if isinstance(batch, EventBatch):
            batch.partition = sender.partition  # given again after a failure, it goes where its numbers are known
        self._accumulator.take_alone(sender, pending)
        try:
            return await Delivery(pending, 0, pending.events)
        except asyncio.CancelledError:
            if not pending.is_settled:
                await sender.until_decided(pending)
            raise

    async def _send_together(
        self, batch: EventBatch | Sequence[Event | bytes | str], key: str | None, sender: PartitionSender
    ) -> DeliveryResult:
        """Send over one sender, together; it is pipelined with whatever else is sent."""
        contents = contents_of(batch, key)
        if isinstance(batch, EventBatch):
            batch.lock()
        try:
            parts = self._accumulator.take(sender, contents, (), bodies=False)
            return await Delivery.of(parts, sender.partition)
        finally:
            if isinstance(batch, EventBatch):
                batch.unlock()

    # ---------------------------------------------------------------- transactions

    def transaction(self) -> Transaction:
        """A transaction, one at a time: `async with` begins it, and leaving the block commits it; an exception rolls it
        back."""
        self._check_open()
        if self._transactor is None:
            self._transactor = Transactor(self._servers, self.log, self.options)
        side = self._transaction_side(self._transaction_begins, self._transaction_over)
        return Transaction(side, self._transactor)

    def member(
        self,
        *,
        writer: str,
        batch: int,
        run: str,
        part: str,
        attempt: str = "",
        lease_s: float = DEFAULT_LEASE_S,
        idle_s: float | None = None,
    ) -> GroupMember:
        """A member of a transaction group (`TransactionGroup`), which writes a part of the batch to this log, over a
        connection of its own; as many as are wanted at a time. `part`: of what has one winner; `attempt` is for people.
        `lease_s`: a process that hangs for so long loses what it has written. `idle_s`: so does a program that asks
        nothing of the member for so long; None: it may take its time."""
        self._check_open()
        wish = MemberWish(None, 0, names=GroupNames(writer, batch, run), part=part, attempt=attempt, lease_s=lease_s)
        wish.check()
        side = self._transaction_side(_no_turn, _nothing)
        return GroupMember(side, MemberTransactor(self._servers, self.log, self.options, wish, idle_s))

    @property
    def last_transaction(self) -> LastTransaction | None:
        """How the last transaction of the `transactional_id` ended, as it was told when the id was taken."""
        return None if self._transactor is None else self._transactor.last

    async def _transaction_begins(self, transaction: Transaction) -> None:
        self._check_open()
        if self._transaction is not None and self._transaction.ending is not None:
            # Who asked for its end may have been cancelled, and cannot wait for it.
            await asyncio.wait({self._transaction.ending}, timeout=self.options.delivery_timeout_s)
            self._check_open()
        if self._transaction is not None:
            raise InvalidOperationError(
                "another transaction of this producer is open", advice="end it first, or open another producer"
            )
        self._transaction, self._barred = transaction, True

    def _transaction_over(self, transaction: Transaction) -> None:
        if self._transaction is transaction:
            self._transaction, self._barred = None, self._closing

    def _transaction_side(
        self, begins: Callable[[Transaction], Awaitable[None]], over: Callable[[Transaction], None]
    ) -> ProducerSide:
        partitions = self._accumulator.partitions
        return ProducerSide(partitions.place_for, partitions.turn_passes, begins, over)

    # ---------------------------------------------------------------- idempotence

    async def get_partition_publishing_properties(self, partition: str) -> PartitionPublishingProperties:
        """Who this producer is in a partition, and the number of the last event that it published there."""
        self._check_open()
        self._accumulator.partitions.check(partition)
        return await self._accumulator.partitions.sender_for(None, partition).properties()


async def _no_turn(_: Transaction) -> None:
    """As many members as are wanted are open at a time."""


def _nothing(_: object) -> None:
    """Members of groups are no concern of the producer's: each has a connection of its own. And of a batch that fails
    its publisher hears."""
