"""Batches with sequence numbers on their way into one partition, from an idempotent producer or a transaction.

Problem: the numbers make it safe to submit a batch again, whatever became of it. But they are no licence to submit out
of order: what comes with the next number is stored, even if what belongs in front of it has just been refused. A client
that gave up and reused its numbers for other events would find the first of them refused and the rest stored.

Rules never broken, in addition to those of an append queue:
 - batches are under way together only while each goes on where the one before it ended, and one of them has been stored
   as new. Until then one batch at a time is submitted, and its answer awaited: a link proves its place in the line of
   numbers before it is trusted to have one. So nothing is stored after a refusal;
 - `unknown` is submitted again, in the old place, as long as the append queue follows its leader. When the append queue
   gives up, what was in doubt once is still in doubt, unless its last answer says otherwise;
 - the producer is not told "out of order" for an order that was lost here: a batch that met a gap because the one in
   front of it never arrived (two leaders took them) is as good as never submitted.

Rejected: marking each batch in the log with the one that must precede it. The numbers say that already, but for the
first batches of a link, and those cost one round trip.
"""

from __future__ import annotations

from typing import Any

from node.listener.incoming.append_queue import AppendQueue, QueuedBatch
from node.partition.api import Appended, AppendOutcome, Failed


class NumberedQueue(AppendQueue):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._proven = False
        self._next = 0  # the number after the batch submitted last
        self._torn = False  # one of the batches under way together did not arrive

    def _goes_on(self, batch: QueuedBatch) -> bool:
        return self._proven and batch.first_number == self._next

    def _goes(self, batch: QueuedBatch) -> None:
        if not self._goes_on(batch):
            self._proven = self._torn = False
        self._next = batch.next_number

    def _take_answer(self, batch: QueuedBatch, outcome: AppendOutcome) -> None:
        if isinstance(outcome, Appended):
            self._proven = self._proven or outcome.duplicates < batch.events
        else:
            self._proven = False
            outcome = self._judge(batch, outcome)
        super()._take_answer(batch, outcome)

    def _judge(self, batch: QueuedBatch, outcome: Failed) -> Failed:
        """The outcome to report for a failure, given that numbered batches can be told apart."""
        again = Failed("not_leader", True, outcome.detail, outcome.leader)
        if outcome.kind == "out_of_order" and self._torn:
            return again
        self._torn = self._torn or outcome.retriable
        if outcome.kind == "unknown":
            batch.in_doubt = True
            if self._follow and not self._closed:
                return again
        return outcome
