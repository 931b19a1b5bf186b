"""What lies before and behind an append queue: a link endpoint that remembers, a partition whose answers the test
gives."""

from __future__ import annotations

from holdfast.records.record_batch import RecordBatch
from node.listener.incoming.append_queue import Deliveries
from node.partition.api import AppendDone, Appended, AppendOutcome, Begins, Failed

NOT_LEADER = Failed("not_leader", True, "not here")
UNKNOWN = Failed("unknown", True, "who knows")


class Scripted:
    """A partition whose answers the test gives, and the part of a broker that an append queue uses."""

    def __init__(self) -> None:
        self.partition = "0"
        self.leading: int | None = 1
        self.calls: list[tuple[int | None, list[bytes], AppendDone]] = []
        self.log: list[bytes] = []

    def leader(self, log: str, partition: str) -> int | None:
        return self.leading

    def handle(self, log: str, partition: str) -> Scripted:
        return self

    def append(self, batch: RecordBatch, done: AppendDone, begins: Begins | None = None) -> None:
        self.calls.append((self.leading, batch.records(), done))

    def answer(self, outcome: AppendOutcome | None = None) -> None:
        """Answers the oldest call; None: it was appended."""
        _, records, done = self.calls.pop(0)
        if outcome is None:
            self.log += records
        done(outcome or Appended(0, 0))


class QueueSender:
    """The link endpoint: remembers what became of every batch. Its first record stands for the handle of a
    delivery."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, bytes]] = []

    def accepted(self, deliveries: Deliveries, stored: Appended, partition: str) -> None:
        self.answers.append(("accepted", deliveries.handles[0]))

    def uncertain(self, deliveries: Deliveries, why: Failed, partition: str) -> None:
        self.answers.append(("uncertain", deliveries.handles[0]))

    def refused(self, deliveries: Deliveries, why: Failed) -> None:
        self.answers.append(("refused", deliveries.handles[0]))

    def turned_away(self, deliveries: Deliveries, why: str) -> None:
        self.answers.append(("turned away", deliveries.handles[0]))

    def broken(self, error: BaseException) -> None:
        raise AssertionError("a bug in the append queue") from error
