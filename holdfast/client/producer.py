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

Events with a key go to the partition that the node itself would choose (`holdfast.amqp.key_partitioner`), over a link
of that partition to its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType

from holdfast.client.errors import (
    ClosedError,
    ConfigurationError,
    InvalidOperationError,
)
from holdfast.client.events import Event
from holdfast.client.options import (
    PartitionPublishingOptions,
    PartitionPublishingProperties,
    ProducerOptions,
    check_log,
    options_of,
)
from holdfast.client.produce.delivery import Delivery, DeliveryResult, publication_of
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.produce.partition_routing import Partitions
from holdfast.client.produce.partition_sender import PartitionSender, ProducerStats
from holdfast.client.produce.send_api import Sending
from holdfast.client.transact.group_member import (
    DEFAULT_LEASE_S,
    GroupMember,
    MemberNames,
    MemberTransactor,
)
from holdfast.client.transact.transaction import Transaction
from holdfast.client.transact.transaction_manager import LastTransaction, Transactor
from holdfast.client.transport.network import Network
from holdfast.client.waits.close_once import CloseOnce


class ProducerClient(Sending):
    """Publishes events to one log.

    async with ProducerClient("127.0.0.1:5672", "trades") as producer:
        await producer.send(b"...", key="IBM")      # returns when it is buffered
        await producer.flush()                      # returns when everything is confirmed
    """

    log: str
    options: ProducerOptions
    stats: ProducerStats

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
        self._network = Network(servers, options.network)
        self._partitions = Partitions(self._network, log, options, self.stats)
        self._accumulator = self._partitions.accumulator
        self._numbered, self._named = options.idempotent, bool(options.partition_options)
        self._servers = servers
        self._transactor: Transactor | None = None
        if options.transactional_id is not None:
            self._transactor, self._barred = Transactor(servers, log, options, self._network), True
        self._closing = False
        self._release = CloseOnce(self._let_go, f"close the producer for {log}")

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Learn the log's partitions; raises `NotFoundError` when there is no such log. With a `transactional_id`:
        nobody else has it from now on, and what its last holder has left open is rolled back."""
        self._check_open()
        await self._partitions.learn()
        if self._transactor is not None:
            await self._transactor.connect()

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
        transactor = self._transactor if not self._closing else None
        self._closing = self._barred = True
        try:
            await self.flush()
        finally:
            is_open = transactor is not None and transactor.in_use and transactor.ending is None
            await self.abandon()
        if is_open:
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
            await self._partitions.close()

    def _check_open(self) -> None:
        if self._closing:
            raise ClosedError("the producer was closed")

    def _check_takes(self) -> None:
        """Raise if no event is taken in: it is closed, the program has not seen a failure, or a transaction is open.
        Whoever sends within a transaction means to send under it: an event that counts at once, whatever becomes of
        the transaction, would be a duplicate after the next try."""
        self._check_open()
        self._accumulator.failures.check()
        if self._transactor is not None and self._transactor.in_use:
            raise InvalidOperationError(
                "a transaction of this producer is open, and this would not be part of it",
                advice="send under it, by the same method of the transaction (await tx.send(...)); for what does not"
                " belong to it open another producer",
            )

    def _sender(self, partition: str) -> PartitionSender:
        sender = self._partitions.sender(partition)
        sender.check_usable()
        return sender

    def _took_a_part(self) -> None:
        """Let it go out: each event of a producer counts by itself."""

    @property
    def partitions(self) -> list[str]:
        """The log's partitions, known after `start`."""
        return list(self._partitions.names)

    def partition_of(self, key: str) -> str:
        """Return the partition of events with this key. Known after `start`."""
        return self._partitions.place_for(key, None)

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

    # ---------------------------------------------------------------- sending

    async def flush(self) -> None:
        """Return when nothing is outstanding. Raises the first failure that the program has not seen; afterwards events
        are taken in again, and it is for the program to say whether they may stand behind the one that failed.

        Bounded: each event is confirmed, refused, or given up after the delivery timeout without any progress.
        """
        await self._accumulator.finished()
        self._accumulator.failures.tell()

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
        self._check_place(partition, keyed=key is not None)
        if partition is not None:
            self._partitions.check(partition)
        return EventBatch(partition, key, max_bytes=most, named=self._named)

    async def _send_together(
        self, batch: EventBatch | Sequence[Event | bytes | str], key: str | None, place: str
    ) -> DeliveryResult:
        if not self._numbered:
            return await super()._send_together(batch, key, place)
        sender = self._sender(place)
        in_doubt = isinstance(batch, EventBatch) and sender.check_again(batch)
        pending = publication_of(batch, key, place, named=self._named)
        pending.in_doubt = in_doubt
        if isinstance(batch, EventBatch) and batch.key is None:
            batch.partition = place  # given again after a failure, it goes where its numbers are known
        sender.queue.put(pending)
        self._accumulator.took_in(sender, pending.events, pending.size)
        try:
            return await Delivery(pending, 0, pending.events)
        except asyncio.CancelledError:
            if not pending.is_settled:
                await sender.until_decided(pending)
            raise

    # ---------------------------------------------------------------- transactions

    def transaction(self) -> Transaction:
        """A transaction, one at a time: `async with` begins it, and leaving the block commits it; an exception rolls it
        back."""
        self._check_open()
        if self._transactor is None:
            self._transactor = Transactor(self._servers, self.log, self.options, self._network)
            self._barred = True
        return Transaction(self._partitions, self._transactor)

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
        names = MemberNames(writer, batch, run, part, attempt, lease_s, idle_s)
        transactor = MemberTransactor(self._servers, self.log, self.options, self._network, names)
        return GroupMember(self._partitions, transactor)

    @property
    def last_transaction(self) -> LastTransaction | None:
        """The last transaction of the `transactional_id` and its end, as the node told when the id was taken."""
        return None if self._transactor is None else self._transactor.last

    # ---------------------------------------------------------------- idempotence

    async def get_partition_publishing_properties(self, partition: str) -> PartitionPublishingProperties:
        """Tell group, level and last published number of this producer in a partition."""
        self._check_open()
        self._partitions.check(partition)
        return await self._partitions.sender(partition).properties()
