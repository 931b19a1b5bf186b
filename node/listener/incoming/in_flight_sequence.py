"""The sequence numbers of the batches that an append queue has under way, of an idempotent producer or a transaction.

Problem: the numbers make it safe to submit a batch again, whatever became of it. But they are no licence to submit out
of order: what comes with the next number is stored, even if what belongs in front of it has just been refused. A client
that gave up and reused its numbers for other events would find the first of them refused and the rest stored.

Rules never broken, in addition to those of `append_queue.py`:
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

from holdfast.records.record_batch import SEQUENCES
from node.partition.api import Appended, AppendOutcome, Failed


class InFlightSequence:
    """The line of numbers of one queue: which batch may join it under way, and what one answer says of the others."""

    def __init__(self) -> None:
        self._proven = False
        self._next = 0  # the number after the batch submitted last
        self._torn = False  # one of the batches under way together did not arrive

    def goes_on(self, first: int) -> bool:
        """Tell whether a batch that begins with this number may be under way together with the others."""
        return self._proven and first == self._next

    def goes(self, first: int, count: int) -> None:
        """Note a batch that is about to be submitted."""
        if not self.goes_on(first):
            self._proven = self._torn = False
        self._next = (first + count) % SEQUENCES

    def judge(self, outcome: AppendOutcome, count: int, *, repeats: bool) -> AppendOutcome:
        """The outcome of a batch of `count` records, given that numbered batches can be told apart. `repeats`: what is
        in doubt will be submitted again."""
        if isinstance(outcome, Appended):
            self._proven = self._proven or outcome.duplicates < count
            return outcome
        self._proven = False
        again = Failed("not_leader", True, outcome.detail, outcome.leader)
        if outcome.kind == "out_of_order" and self._torn:
            return again
        self._torn = self._torn or outcome.retriable
        return again if outcome.kind == "unknown" and repeats else outcome
