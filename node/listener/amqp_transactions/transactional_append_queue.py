"""One transaction's messages on their way into one partition, from all links of its connection.

Problem: the node numbers them, from 0 in each transaction and partition, so that it may submit a batch again whatever
became of it; so there is one line of numbers, whichever link a message came on.

Rules never broken, in addition to those of `in_flight_sequence.py`:
 - the partition takes part in the transaction before anything is stored: it has joined, or it begins with the first
   batch, after which everything waits for its answer, as with all numbers;
 - a batch that cannot be written makes the transaction roll back: the answer of its client's commit says so, too.
"""

from __future__ import annotations

from typing import Any

from holdfast.records.record_batch import Numbering
from node.client_transactions.transaction import HeldTransaction
from node.listener.broker_interface import Broker
from node.listener.incoming.append_queue import AppendQueue, Deliveries, QueuedBatch, QueueOwner
from node.partition.api import Failed


class TransactionalDeliveries(Deliveries):
    """`link`: whose deliveries they are. `log`: where they go, for people; `group`: the same as a Raft group. `begins`:
    the partition begins to take part with them."""

    __slots__ = ("begins", "group", "link", "log")

    def __init__(self, deliveries: Deliveries, link: Any, log: str, group: int) -> None:
        super().__init__(deliveries.handles, deliveries.count, deliveries.size, deliveries.events)
        self.in_row = deliveries.in_row
        self.link = link
        self.log = log
        self.group = group
        self.begins = False


class TransactionQueue(AppendQueue):
    def __init__(
        self,
        owner: QueueOwner,
        broker: Broker,
        log: str,
        partition: str,
        transaction: HeldTransaction,
        *,
        wait_s: float,
    ) -> None:
        super().__init__(owner, broker, log, partition, wait_s=wait_s, follow=True, numbered=True)
        self._transaction = transaction
        self._number = 0
        group = broker.raft_group(log, partition)
        self._begins = transaction.begins_with_events(group)
        self._early: list[QueuedBatch] | None = None  # what waits until the partition has joined; None: nothing need
        if self._begins is None:
            self._early = []
            transaction.join(group).add_done_callback(lambda done: self._joined(done.result()))

    def submit(self, batch: QueuedBatch) -> None:
        if batch.sealed.head.transaction is None:  # else it has waited, and keeps its place in the line
            deliveries = batch.deliveries
            assert isinstance(deliveries, TransactionalDeliveries)
            numbering = Numbering(*self._transaction.pair, self._number)
            batch.sealed = batch.sealed.numbered(numbering, transactional=True)
            batch.begins, self._begins = self._begins, None
            deliveries.begins = batch.begins is not None
            self._number += deliveries.events
        if self._early is None:
            super().submit(batch)
        else:
            self._early.append(batch)

    def _joined(self, failed: Failed | None) -> None:
        early, self._early = self._early or [], None
        for batch in early:
            if failed is None:
                super().submit(batch)
            else:
                self._owner.refused(batch.deliveries, failed)

    def close(self) -> None:
        """Take in nothing more: the transaction is over."""
        early, self._early = self._early or [], None
        super().close()
        for batch in early:
            self._owner.turned_away(batch.deliveries, "the transaction is over")
