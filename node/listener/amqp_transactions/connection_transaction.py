"""One transaction of one connection: the messages sent and the deliveries accepted under it, and its end.

Problem: a client says "commit" when it has sent everything, but its messages may still be on their way into partitions,
and its accepted deliveries count only if its group's position moves with the same decision.

Rules never broken:
 - a message belongs to it if it arrives before its end is asked for, however long it waits to be looked at;
 - a commit is asked for when each message sent under it is known to be stored; one that is not makes it roll back;
 - only the transaction moves the position of a consumer group, or of a durable source, over deliveries that were
   accepted under it;
 - after a rollback these deliveries are handed out again on their link, in order (`unsettled_deliveries.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from holdfast.amqp import ACCEPTED, DeliveryState, Rejected, Transactional
from holdfast.amqp.errors import TRANSACTION_ROLLBACK, Error
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transaction import HeldTransaction, StagedPosition
from node.listener import errors
from node.listener.amqp_transactions.coordinator_attach import new_txn_id
from node.listener.amqp_transactions.transactional_append_queue import TransactionalDeliveries, TransactionQueue
from node.listener.broker_interface import Broker
from node.listener.incoming.append_queue import Deliveries, QueuedBatch
from node.partition.api import Appended, Failed

MAX_NAMED = 10_000
"""Positions that a client names under one transaction: one for each group and partition."""

MAX_RECEIVED = 100_000
"""Deliveries that are accepted under one transaction: each is remembered until its end, some 200 bytes."""


class SendingLink(Protocol):
    """A link of the connection on which messages came in under the transaction."""

    def answer_in_transaction(self, deliveries: Deliveries, state: DeliveryState) -> None: ...


class ReceivingLink(Protocol):
    """A link of the connection whose deliveries were accepted under the transaction."""

    def staged_positions(self, numbers: Sequence[int]) -> Iterable[StagedPosition]:
        """Positions of the link's group once these deliveries count. Raises KeyError: its log was deleted."""
        ...

    def committed(self, numbers: Sequence[int]) -> None: ...
    def rolled_back(self, numbers: Sequence[int]) -> None:
        """Hand out these deliveries again: the peer has settled them, and they did not count."""
        ...

    def in_doubt(self) -> None:
        """End the link, as nobody knows whether its deliveries count; a peer that attaches again begins where its group
        stands."""
        ...


class TransactionHost(Protocol):
    """The connection."""

    transactions: dict[bytes, ClientTransaction]

    def fail(self, error: BaseException) -> None: ...
    def flush_soon(self) -> None: ...


class ClientTransaction:
    """Implements `QueueOwner`."""

    def __init__(self, host: TransactionHost, transaction: HeldTransaction, leader_wait_s: float) -> None:
        self.txn_id = new_txn_id(transaction.pair)
        self.transaction = transaction
        self._host = host
        self._wait_s = leader_wait_s
        self._queues: dict[int, TransactionQueue] = {}  # by Raft group
        self._unanswered = 0
        self._answered: asyncio.Event = asyncio.Event()
        self._ending = False
        self._deciding = False  # its positions were reckoned, or are being
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received: dict[ReceivingLink, dict[int, bool]] = {}  # numbers -> whether the peer has settled them
        self._count_received = 0
        self._positions: dict[tuple[int, str, int], StagedPosition] = {}  # that its client has named

    @property
    def is_open(self) -> bool:
        """True until the end is asked for: the transaction takes more."""
        return not self._ending

    @property
    def is_over(self) -> bool:
        """True once the transaction is known to have ended, and its links were told."""
        return self._over.done()

    # ------------------------------------------------------------------------------------------------- sent

    def send(self, link: SendingLink, broker: Broker, log: str, partition: str, batch: QueuedBatch) -> None:
        """Take a batch of a link on its way into a partition. It arrived while the transaction was open. It may have
        waited since then, and a commit with it."""
        try:
            group = broker.raft_group(log, partition)
        except KeyError:
            gone = errors.log_deleted(log)
            self.refuse(gone.description or gone.condition)
            link.answer_in_transaction(batch.deliveries, Transactional(self.txn_id, Rejected(gone)))
            return
        batch.deliveries = own = TransactionalDeliveries(batch.deliveries, link, log, group)
        self._unanswered += 1
        if self.transaction.rollback_only:
            self._answer(own, Rejected(self._must_roll_back()))
            return
        queue = self._queues.get(group)
        if queue is None:
            queue = TransactionQueue(self, broker, log, partition, self.transaction, wait_s=self._wait_s)
            self._queues[group] = queue
        queue.submit(batch)

    def refuse(self, why: str) -> None:
        """Note a message that was not taken: the transaction can only be rolled back."""
        self.transaction.must_roll_back(why)

    def accepted(self, deliveries: Deliveries, stored: Appended, partition: str) -> None:
        self._begun(deliveries, None)
        self._answer(deliveries, ACCEPTED)

    def uncertain(self, deliveries: Deliveries, why: Failed, partition: str) -> None:
        self._not_stored(deliveries, why)

    def refused(self, deliveries: Deliveries, why: Failed) -> None:
        self._not_stored(deliveries, why)

    def turned_away(self, deliveries: Deliveries, why: str) -> None:
        self._not_stored(deliveries, Failed("not_leader", True, why))

    def _not_stored(self, deliveries: Deliveries, why: Failed) -> None:
        self.transaction.must_roll_back(why.detail)
        self._begun(deliveries, why)
        assert isinstance(deliveries, TransactionalDeliveries)
        self._answer(deliveries, Rejected(errors.append_refused(why, deliveries.log)))

    def _begun(self, deliveries: Deliveries, failed: Failed | None) -> None:
        assert isinstance(deliveries, TransactionalDeliveries)
        if deliveries.begins:
            self.transaction.begun(deliveries.group, failed)

    def broken(self, error: BaseException) -> None:
        self._host.fail(error)

    def _answer(self, deliveries: Deliveries, outcome: Any) -> None:
        assert isinstance(deliveries, TransactionalDeliveries)
        deliveries.link.answer_in_transaction(deliveries, Transactional(self.txn_id, outcome))
        self.heard()

    def _must_roll_back(self) -> Error:
        return Error(TRANSACTION_ROLLBACK, f"the transaction can only be rolled back: {self.transaction.rollback_only}")

    def on_change(self) -> None:
        """Submit waiting batches again: leaders may have changed."""
        for queue in self._queues.values():
            queue.attempt()

    # ------------------------------------------------------------------------------------------------- received

    def received(self, link: ReceivingLink, number: int, *, settled: bool) -> bool:
        """Note a delivery accepted under this transaction. False: it cannot be remembered, so the link must end, and
        the transaction roll back."""
        numbers = self._received.setdefault(link, {})
        if number not in numbers:
            if self._count_received >= MAX_RECEIVED:
                self.transaction.must_roll_back(f"more than {MAX_RECEIVED} deliveries were accepted under it")
                return False
            self._count_received += 1
        numbers[number] = settled
        return True

    def taken_back(self, link: ReceivingLink, number: int) -> None:
        """Forget a delivery of which the peer says something else now."""
        if self._received.get(link, {}).pop(number, None) is not None:
            self._count_received -= 1

    def settled(self, link: ReceivingLink, number: int) -> None:
        """Note that the peer has settled an accepted delivery while the end is being decided: the decision says what
        counts."""
        numbers = self._received.get(link, {})
        if number in numbers:
            numbers[number] = True

    def expects(self) -> None:
        """Hold the commit until `heard`: a request is being looked at."""
        self._unanswered += 1

    def heard(self) -> None:
        self._unanswered -= 1
        if self._unanswered == 0:
            self._answered.set()

    def stage(self, position: StagedPosition) -> bool:
        """Stage the position that the client names for a consumer group; of several in one place the furthest counts.
        False: it has named too many."""
        place = (position.group, position.key, position.claim)
        before = self._positions.get(place)
        if before is None and len(self._positions) >= MAX_NAMED:
            return False
        if before is None or before.position < position.position:
            self._positions[place] = position
        return True

    # ------------------------------------------------------------------------------------------------- the end

    def ends(self) -> None:
        """Close the transaction to what its client says from now on; `commit` or `abort` follows."""
        self._ending = True

    async def commit(self) -> None:
        """Commit. Raises TransactionFailed: it was rolled back."""
        self.ends()
        try:
            while self._unanswered:
                self._answered.clear()
                await self._answered.wait()
            await self._behind_others()
            if not self.transaction.producer.decides and (self._received or self._positions):
                self.refuse("a member of a group takes no positions and no deliveries along: events only")
            await self.transaction.commit(self._all_positions())
        except TransactionFailed as failed:
            self._close(committed=False if failed.decided else None)
            raise
        self._close(committed=True)

    async def abort(self) -> None:
        self.ends()
        self.refuse("its rollback was asked for")
        for queue in self._queues.values():
            queue.close()
        try:
            await self.transaction.abort()
        finally:
            self._close(committed=False)

    def give_up(self) -> None:
        """Roll back a commit whose client is gone: messages that wait for a leader are waited for no more."""
        for queue in self._queues.values():
            queue.close()

    async def _behind_others(self) -> None:
        """Wait until no other transaction with events of the same link is being decided: how far a position may move
        depends on how that ends. Those that are being decided wait for nobody here."""
        while others := [
            other._over
            for other in self._host.transactions.values()
            if other._deciding and not other.is_over and other._received.keys() & self._received.keys()
        ]:
            await asyncio.wait(others)
        self._deciding = True

    def _all_positions(self) -> list[StagedPosition]:
        found: list[StagedPosition] = []
        for link, numbers in self._received.items():
            try:
                found += link.staged_positions(list(numbers))
            except KeyError:
                self.transaction.must_roll_back("a log was deleted, of which events were accepted under it")
        return [*found, *self._positions.values()]

    def _close(self, *, committed: bool | None) -> None:
        """Tell the links how the transaction ended. `committed` None: nobody knows."""
        if not self._over.done():
            self._over.set_result(None)
        for queue in self._queues.values():
            queue.close()
        received, self._received = self._received, {}
        for link, numbers in received.items():
            if committed:
                link.committed(list(numbers))
            elif committed is None:
                link.in_doubt()
            else:
                link.rolled_back([number for number, settled in numbers.items() if settled])
        self._host.flush_soon()
