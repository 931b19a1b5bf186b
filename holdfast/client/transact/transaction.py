"""A transaction as a program uses it: its events, the positions that move with it, and its one end.

After each failure a program must know whether to do its work again. It need not know where the failure was. And it must
never hear "committed" of a transaction that is not.

Rules:
 - the transaction asks for its commit only when every event was accepted;
 - after any failure it rolls back, whatever its owner asks for;
 - it ends once. `commit` returns only if the transaction was committed; its errors tell the outcome.

| state        | begin | send, commit_offsets | commit | abort | fails        |
| ------------ | ----- | -------------------- | ------ | ----- | ------------ |
| new          | open  |                      |        |       |              |
| open         |       | open                 | ended  | ended | open, doomed |
| open, doomed |       |                      | ended  | ended | open, doomed |
| ended        |       |                      |        |       | ended        |

New is without `txn_id`, doomed with `_why`, ended with `ending`. What the table leaves empty raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Self

from holdfast import protocol
from holdfast.amqp.links.delivery_states import Accepted, DeliveryState, OtherState, Rejected, Transactional
from holdfast.client.consume.uncommitted_events import HandedOut
from holdfast.client.consumer import ConsumerClient
from holdfast.client.errors import (
    NO_ROOM,
    RETRIABLE_CONDITIONS,
    AdminError,
    HoldfastError,
    InvalidOperationError,
    OwnershipLostError,
    ProducerFencedError,
    RejectedError,
    TimeoutExpiredError,
    TransactionRolledBackError,
)
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.accumulator import Accumulator
from holdfast.client.produce.batch_queue import NO_LIMIT, BatchQueue
from holdfast.client.produce.delivery import PendingBatch
from holdfast.client.produce.partition_routing import Partitions
from holdfast.client.produce.send_api import Sending
from holdfast.client.transact.transaction_manager import ROLLED_BACK, Transactor, pair_of
from holdfast.client.transport.links import Sender
from holdfast.client.transport.management_requests import Exchange
from holdfast.client.transport.network import ATTACH_BOUND_S
from holdfast.client.waits.close_once import heard
from holdfast.records.codec import Codec

# Most events of a transaction in flight to a partition: half of those that the partition remembers. So after a change
# of leaders its node can ask the new leader about all events that were in flight.
MOST_UNDER_WAY = 2000
NOTED_AT_ONCE = 8  # positions: each needs two links, and a connection has a limit of links


class BaseTransaction(Sending):
    """A transaction of a producer, or a member of a group; these differ in their ends."""

    txn_id: bytes = b""
    _barred = True

    def __init__(self, partitions: Partitions, transactor: Transactor) -> None:
        self._partitions, self._transactor, self._options = partitions, transactor, transactor.options
        self._accumulator = Accumulator(self._options)
        self._why: HoldfastError | None = None  # why it is doomed, and can only be rolled back
        self._touched = False  # something was sent under it, or is about to be
        self._answers = 0
        self._positions: list[HandedOut] = []
        self._senders: dict[str, TransactionalSender] = {}
        self._beginning, self._attaching = asyncio.Lock(), asyncio.Lock()
        self.ending: asyncio.Future[None] | None = None

    # ---------------------------------------------------------------- life

    @property
    def is_open(self) -> bool:
        """True while events can be sent."""
        return self._may_end and self._why is None

    @property
    def producer_id(self) -> int | None:
        """Producer id of the transaction; with `epoch`, its name in the cluster."""
        return pair_of(self.txn_id)[0]

    @property
    def epoch(self) -> int | None:
        return pair_of(self.txn_id)[1]

    async def begin(self) -> None:
        """Begin the transaction; `async with` does it."""
        if self.txn_id:
            raise InvalidOperationError("the transaction was begun before", advice="begin another one")
        await self._transactor.take()
        try:
            self.txn_id = await self._transactor.declare()
        except BaseException:
            self._is_over()
            raise

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """Roll back what has not ended."""
        await self.abort()

    @property
    def _may_end(self) -> bool:
        return bool(self.txn_id) and self.ending is None

    def _check_open(self, what: str) -> None:
        if not self.txn_id:
            raise InvalidOperationError("the transaction was not begun", advice="use `async with`, or await begin()")
        if self.ending is not None:
            advice = "begin another one: producer.transaction()"
            raise InvalidOperationError(f"the transaction was ended: it cannot be {what}", advice=advice)

    # ---------------------------------------------------------------- sending

    def _check_takes(self) -> None:
        self._check_open("sent under")
        if self._why is not None:
            raise self._why.with_traceback(None)

    def _sender(self, partition: str) -> TransactionalSender | None:
        sender = self._senders.get(partition)
        if sender is not None and sender.ended is None and self._transactor.ended is None:
            return sender
        link = self._transactor.link(partition)
        return None if link is None else self._takes_over(TransactionalSender(self, partition, self._options), link)

    def _takes_over(self, sender: TransactionalSender, link: Sender) -> TransactionalSender:
        sender.take_over(link)
        self._senders[sender.queue.partition] = sender
        self._touched = True
        return sender

    async def _open(self, partition: str) -> None:
        """Attach a link to the partition, on a new connection if nothing can be lost with the old one."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.delivery_timeout_s
        while True:
            await self._ready()
            try:
                async with self._attaching:
                    self._check_takes()
                    if self._sender(partition) is None:
                        sender = TransactionalSender(self, partition, self._options)
                        bound_s = min(ATTACH_BOUND_S, max(0.1, deadline_s - loop.time()))
                        self._takes_over(sender, await self._transactor.attach(partition, sender, bound_s))
                return
            except HoldfastError as error:
                broke = self._transactor.ended is not None  # `_ready` decides what to do
                if loop.time() >= deadline_s or not (error.retriable or broke):
                    raise
                await asyncio.sleep(0)  # else the node has held the attach for as long as it may: try again

    async def _ready(self) -> None:
        """Begin again on another connection if this one broke before anything was sent."""
        async with self._beginning:
            self._check_takes()
            if self._transactor.ended is not None:
                if self._touched:
                    self.fail(self._transactor.ended)
                    self._check_takes()
                self.txn_id = await self._transactor.declare()

    async def _wait_for_room(self) -> None:
        await self._in_time(self._accumulator.wait_for_room)

    async def _in_time(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait; doom the transaction if nothing is answered within the delivery timeout."""
        answers = -1
        while answers != self._answers:
            answers = self._answers
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.delivery_timeout_s):
                    await wait()
                return
        self.fail(TimeoutExpiredError(f"no event was taken for {self._options.delivery_timeout_s:g} s"))

    def _took_a_part(self) -> None:
        self.fail(TransactionRolledBackError("only a part of the events of one call was sent under it"))

    # ---------------------------------------------------------------- from the links

    def answered(self, batch: PendingBatch, state: DeliveryState) -> None:
        outcome = state.outcome if isinstance(state, Transactional) else state
        if isinstance(outcome, Accepted) or (isinstance(outcome, OtherState) and outcome.code == protocol.STORED_CODE):
            self.settle(batch, None)
            return
        error = outcome.error if isinstance(outcome, Rejected) else None
        condition = "" if error is None else error.condition
        text = f"an event was not taken: {error if error is not None else type(outcome).__name__}"
        refusal = RejectedError(text, condition=condition)
        self.settle(batch, refusal)
        again = condition in ROLLED_BACK or condition in RETRIABLE_CONDITIONS or not isinstance(outcome, Rejected)
        advice = refusal.advice if not again or condition == NO_ROOM else None
        self.fail(TransactionRolledBackError(text, condition=condition, retriable=again, advice=advice))

    def settle(self, batch: PendingBatch, error: HoldfastError | None) -> None:
        self._answers += 1
        batch.settle(error)
        self._accumulator.settled(batch.partition, batch.events, batch.size, error is None)

    def fail(self, why: HoldfastError) -> None:
        """Doom the transaction: it can only be rolled back, and nothing of it is waited for. The first reason stays."""
        if self._why is None:
            known = isinstance(why, TransactionRolledBackError | ProducerFencedError | OwnershipLostError)
            self._why = why if known else TransactionRolledBackError(f"the transaction is rolled back: {why}")
        self._give_up(why)

    def _give_up(self, why: HoldfastError) -> None:
        for sender in self._senders.values():
            sender.give_up(why)

    # ---------------------------------------------------------------- the end

    async def abort(self) -> None:
        """Roll the transaction back: none of it counts when this returns."""
        await self._end("aborted", self._abort)

    async def _end(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """End the transaction, even if the caller is cancelled, since no other task can end it."""
        self._check_open(what)

        async def whole() -> None:
            try:
                async with self._beginning:  # what is being begun anew is what ends
                    await work()
            finally:
                self._is_over()

        self.ending = self._transactor.ending = asyncio.ensure_future(whole())
        self.ending.add_done_callback(heard)
        await asyncio.shield(self.ending)

    def _is_over(self) -> None:
        self._transactor.in_use = False

    async def _commit(self) -> None:
        await self._in_time(self._accumulator.finished)
        if self._why is not None:
            await self._abort()
            self._transactor.check_not_fenced()
            raise self._why.with_traceback(None)
        await self._transactor.commit(self.txn_id, self._senders, empty=not self._touched)
        for one in self._positions:
            one.committed()

    async def _abort(self) -> None:
        self._give_up(TransactionRolledBackError("the transaction was rolled back before the event was confirmed"))
        await self._transactor.abort(self.txn_id)


class Transaction(BaseTransaction):
    """A transaction of a producer, made by `ProducerClient.transaction`.

    async with producer.transaction() as tx:
        await tx.send(b"...", key="IBM")
        await tx.commit_offsets(consumer)
    """

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        if self._may_end:
            await (self.commit() if kind is None else self.abort())

    async def commit(self) -> None:
        """Commit the transaction: all of it counts when this returns.

        Raises TransactionRolledBackError (do the work again), ProducerFencedError (stop) or
        TransactionOutcomeUnknownError. Cancelling the call leaves the outcome open."""
        await self._end("committed", self._commit)

    async def commit_offsets(self, consumer: ConsumerClient) -> None:
        """Add the consumer's positions to the transaction: with its commit the group goes on after the events that the
        consumer has handed out.

        Raises OwnershipLostError if another member has one of the partitions by now, and works on the same events; then
        the transaction can only be rolled back."""
        try:
            positions = consumer.handed_out()
        except OwnershipLostError as error:
            self.fail(error)
            raise
        await self._add(positions)

    async def _add(self, positions: Sequence[HandedOut]) -> None:
        """Let the node note positions as part of the transaction, before it is asked for a commit."""
        if not positions:
            return
        await self._ready()
        connection, at_once = self._transactor.connection, asyncio.Semaphore(NOTED_AT_ONCE)
        self._touched = True

        async def note(one: HandedOut) -> None:
            async with at_once:
                bound_s = self._options.delivery_timeout_s
                exchange = Exchange(connection, f"group commit {one.log!r}", bound_s, self.txn_id)
                try:
                    await exchange.run("group", "commit", one.log, one.arguments)
                except AdminError as error:
                    if error.code == "not-owner":
                        raise OwnershipLostError(str(error)) from error
                    raise
                finally:
                    await exchange.close()

        for failure in await asyncio.gather(*map(note, positions), return_exceptions=True):
            if isinstance(failure, HoldfastError):
                self.fail(failure)
            if isinstance(failure, BaseException):
                raise failure
        self._positions += positions


class TransactionalSender:
    """Sends the events of a transaction to one partition. Implements `SenderOwner`, of a link that many transactions
    have, one after the other. It never resends: a transaction that may lack an event is rolled back as a whole."""

    def __init__(self, transaction: BaseTransaction, partition: str, options: ProducerOptions) -> None:
        self.link: Sender | None = None
        self.ended: HoldfastError | None = None
        most_unanswered = min(options.window, MOST_UNDER_WAY)
        self.queue = BatchQueue(partition, most_unanswered, lambda _: None)  # the end of the transaction tells
        self._transaction, self._codec = transaction, Codec.named(options.compression)

    def take_over(self, link: Sender) -> None:
        """Send over this link from now on. Raises why it has ended, if it did right after its attach."""
        if self.ended is not None:
            raise self.ended
        self.link, link.owner = link, self
        self.queue.largest = link.max_event_bytes or NO_LIMIT

    def give_up(self, why: HoldfastError) -> None:
        """Wait for nothing any more; nothing is sent from now on."""
        for batch in [*self.queue.sent, *self.queue.withdraw(lambda _: True)]:
            if not batch.is_settled:
                self._transaction.settle(batch, why)

    def pump(self) -> None:
        """The turn is over: send what may be sent now."""
        self.queue.release()
        self.on_credit()

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        while self.link is not None and (batch := self.queue.next_for(self.link)) is not None:
            sealed = batch.seal(self._codec, with_digests=False)
            self.queue.leaves(self.link.send_batch(sealed, txn_id=self._transaction.txn_id))

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for number, state in outcomes:
            batch = self.queue.sent.settled(number)
            if batch is not None and not batch.is_settled:
                self._transaction.answered(batch, state)
        self.on_credit()

    def on_closed(self, error: HoldfastError) -> None:
        self.link, self.ended = None, error
        if not all(batch.is_settled for batch in self.queue):
            self._transaction.fail(error)
