"""Gathers the batches of many links into few Raft entries, and answers each of them.

The problem: `append` is called thousands of times a second with a handful of records; an entry for each would cost a
replication round of work per call. The rules: batches are gathered during one turn of the loop and leave unchanged, in
the order in which they came, but for the time in their heads; every call is answered exactly once; the waiting bytes
are bounded, and the caller is told before the bound is crossed, never after. A batch that this node did not seal is
checked here, whoever else has checked it, with no more in one turn than CONTENTS_A_TURN and one batch.

A batch is in one entry, and so is stored as a whole or not at all.

A transaction may begin with its first batch: then its begin is an entry of its own, right before it, in the same round
of replication. If it cannot begin, the call fails with that reason.

Rejected: waiting for more records here before proposing. The sync of the turn before is wait enough where there is
little to do; under load `TurnInput`, which has all partitions, makes them wait for the same turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.crash_points import crash_point
from cluster.raft import Committed, Discarded, NotLeader, Outcome, Overloaded
from holdfast.records.batch_validation import MESSAGE_EFFORT, check_head, check_messages
from holdfast.records.codec import Codec
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES
from holdfast.records.record_batch import Damaged, RecordBatch
from node.partition.api import AppendDone, Appended, AppendOutcome, Begins, Failed, FailureKind
from node.partition.idempotence.producer_state import nonsense
from node.partition.limits import MAX_RECORD_BYTES, PartitionLimits
from node.partition.partition_commands import encode_transaction_command
from node.partition.raft_entry import MAX_BATCHES, join
from node.partition.raft_group import Proposer
from node.partition.reader import BatchCache
from node.partition.state_machine import AppendAccepted, AppendRejected
from node.partition.transactions.transaction_commands import Begin
from node.partition.transactions.transaction_state import TransactionRefused

log = logging.getLogger(__name__)

CONTENTS_A_TURN = 16 << 20
"""Bytes to decompress, and messages to look at (`effort_of`), in one turn of the node: some 20 ms."""

REFUSALS: dict[str, FailureKind] = {
    "producer-stolen": "producer_stolen",
    "out-of-order": "out_of_order",
    "producer-unknown": "producer_unknown",
    "invalid-producer": "producer_invalid",
    "transaction-ended": "transaction_ended",
    "transaction-too-many": "transaction_ended",
}
"""The machine's refusals of a producer, in the words of the api; any other is `rejected`."""


class _Call:
    """A batch, and the callback for its outcome."""

    __slots__ = ("batch", "begins", "done", "not_begun", "size")

    def __init__(self, batch: RecordBatch, done: AppendDone, begins: Begins | None) -> None:
        self.batch, self.done, self.begins = batch, done, begins
        self.size = batch.size
        self.not_begun: TransactionRefused | None = None  # why the transaction that was to begin with it did not


class Appender:
    def __init__(
        self,
        partition: str,
        limits: PartitionLimits,
        now_ms: Callable[[], int],
        cache: BatchCache,
        on_pending: Callable[[], None],
        on_undecided: Callable[[int], None],
    ) -> None:
        """`cache`: of readers at the tail, who are spared the loading of own entries. `on_pending`: batches wait for
        `flush`. `on_undecided`: an earlier transaction of this producer id keeps the next one from beginning."""
        self._partition = partition
        self._limits = limits
        self._now_ms = now_ms
        self._cache = cache
        self._on_pending = on_pending
        self._on_undecided = on_undecided
        self._group: Proposer | None = None
        self._closed: Failed | None = None
        self._waiting: list[_Call] = []
        self._waiting_bytes = 0
        self.proposed_bytes = 0
        """Bytes of records in entries without outcome."""
        self.refuse: Failed | None = None  # set while the node must not take more (disk nearly full)
        self.compression = Codec.NONE  # of what came uncompressed, from now on

    @property
    def in_flight_bytes(self) -> int:
        return self._waiting_bytes + self.proposed_bytes

    def bind(self, group: Proposer) -> None:
        """Attach the Raft group, before anything is appended."""
        self._group = group

    def close(self, failure: Failed) -> None:
        """Fail what waits, and whatever comes."""
        self._closed = failure
        self.fail_waiting(failure)

    # ------------------------------------------------------------ in

    def append(self, batch: RecordBatch, done: AppendDone, begins: Begins | None = None) -> None:
        """Store a batch, as `PartitionHandle` says it."""
        refused = self._closed or _nonsense(batch) or self._refusal(batch)
        if refused is not None:
            done(refused)
            return
        if not self._waiting:
            self._on_pending()
        self._waiting.append(_Call(batch, done, begins))
        self._waiting_bytes += batch.size

    def _refusal(self, batch: RecordBatch) -> Failed | None:
        group, size = self._group, batch.size
        assert group is not None, "bound"
        if not group.is_leader:
            return self.not_leader(group.leader)
        if self.refuse is not None:
            return self.refuse
        if size > MAX_RECORD_BYTES and max(batch.bytes_of(at, at + 1) for at in range(len(batch))) > MAX_RECORD_BYTES:
            return Failed("too_large", False, f"a record exceeds {MAX_RECORD_BYTES} bytes; send smaller ones")
        if size > self._limits.call_bytes:
            return Failed("too_large", False, f"{size} bytes at once exceed an entry; send less at a time")
        in_flight = self.in_flight_bytes
        if in_flight and in_flight + size > self._limits.in_flight_bytes:
            return Failed("overloaded", True, f"{in_flight} bytes wait for replication; slow down and retry")
        return None

    def not_leader(self, leader: int | None) -> Failed:
        where = "no leader is known; retry soon" if leader is None else f"node {leader} leads; retry there"
        return Failed("not_leader", True, f"this node does not lead partition {self._partition}: {where}", leader)

    # ------------------------------------------------------------ out

    def flush(self) -> None:
        """Propose the waiting batches, in order. Behind one that cannot be proposed all are refused: its link may have
        sent them, too."""
        if not self._waiting:
            return
        group = self._group
        assert group is not None, "bound"
        calls, now_ms = self._take_waiting(), self._now_ms()
        while calls:
            count = self._fit(calls)
            try:
                if calls[0].begins is not None:
                    self._propose_begin(group, calls[0], calls[0].begins, now_ms)
                self._propose(group, calls[:count], now_ms)
            except (NotLeader, Overloaded) as error:
                calls += self._waiting
                self._waiting, self._waiting_bytes = [], 0
                _tell(calls, self._not_proposed(error))
                return
            calls = calls[count:]

    def _fit(self, calls: list[_Call]) -> int:
        """The number of calls that go into one entry: the first, and what fits in behind it."""
        size = calls[0].size
        for count, call in enumerate(calls[1:MAX_BATCHES], 1):
            size += call.size
            if size > self._limits.entry_bytes or call.begins is not None:
                return count
        return min(len(calls), MAX_BATCHES)

    def _take_waiting(self) -> list[_Call]:
        """Take the waiting batches that are sound. Those that are too much for this turn wait for the next."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        sound: list[_Call] = []
        effort = place = 0
        while place < len(waiting) and effort < CONTENTS_A_TURN:
            call = waiting[place]
            effort += effort_of(call.batch)
            place += 1
            try:
                _check_contents(call.batch)
            except Damaged as problem:
                _answer(call.done, Failed("malformed", False, f"the batch cannot be read: {problem}"))
            else:
                sound.append(call)
        if place < len(waiting):
            if not self._waiting:
                self._on_pending()
            self._waiting[:0] = waiting[place:]
            self._waiting_bytes += sum(call.size for call in waiting[place:])
        return sound

    def _propose(self, group: Proposer, entry: list[_Call], now_ms: int) -> None:
        """Propose the calls of one entry. Raises NotLeader, Overloaded."""
        for call in entry:
            batch = call.batch.compressed(self.compression) if self.compression else call.batch
            call.batch = batch.stamped(now_ms)
        size = sum(call.size for call in entry)

        def resolved(outcome: Outcome) -> None:
            self.proposed_bytes -= size
            self._resolve(outcome, entry)

        self.proposed_bytes += size
        try:
            group.propose(join(call.batch for call in entry), resolved)
        except (NotLeader, Overloaded):
            self.proposed_bytes -= size
            raise

    def _not_proposed(self, error: NotLeader | Overloaded) -> Failed:
        if isinstance(error, NotLeader):
            return self.not_leader(error.leader)
        return Failed("overloaded", True, str(error))

    def _propose_begin(self, group: Proposer, call: _Call, begins: Begins, now_ms: int) -> None:
        """Propose the begin of a transaction; it is answered before its batch, which follows it. Raises NotLeader,
        Overloaded."""
        head = call.batch.head
        begin = Begin(head.producer_id, head.producer_epoch, *begins, now_ms)

        def begun(outcome: Outcome) -> None:
            if isinstance(outcome, Committed):
                crash_point("partition-after-begin")
                if isinstance(outcome.result, TransactionRefused):
                    call.not_begun = outcome.result

        group.propose(encode_transaction_command(begin), begun)

    def _resolve(self, outcome: Outcome, entry: list[_Call]) -> None:
        if isinstance(outcome, Committed):
            results = outcome.result
            for place, call in enumerate(entry):
                self._resolve_call(results[place] if isinstance(results, tuple) else results, call)
            return
        if isinstance(outcome, Discarded):
            detail = f"another leader of partition {self._partition} went on without these records; retry"
            failure = Failed("not_leader", True, detail)
        else:
            detail = f"leadership of partition {self._partition} was lost before the records were known to be stored"
            failure = Failed("unknown", True, detail, entry=(outcome.index, outcome.term))
        _tell(entry, failure)

    def _resolve_call(self, result: object, call: _Call) -> None:
        batch = call.batch
        if isinstance(result, AppendAccepted):
            if self._cache.is_used and not result.known:
                self._cache.add(batch.placed(result.base_offset, result.timestamp_ms, 0, result.count))
            _answer(call.done, _appended(result, batch.head.record_count))
        elif isinstance(result, AppendRejected) and call.not_begun is not None:
            _answer(call.done, self._not_begun(call.not_begun, batch))
        elif isinstance(result, AppendRejected) and result.code in REFUSALS:
            known = sum(place.events for place in result.known)
            _answer(call.done, Failed(REFUSALS[result.code], False, result.detail, known=known))
        else:
            detail = f"partition {self._partition} refused the records: {result}"
            _answer(call.done, Failed("rejected", False, detail))

    def _not_begun(self, why: TransactionRefused, batch: RecordBatch) -> Failed:
        """The failure of a batch whose transaction did not begin: the end of an earlier one of the producer is on its
        way here, or this one is over."""
        if why.code != "undecided":
            return Failed("transaction_ended", False, why.detail)
        self._on_undecided(batch.head.producer_id)
        return Failed("overloaded", True, why.detail)

    def fail_waiting(self, failure: Failed) -> None:
        """Fail all batches that were not proposed; they never will be."""
        calls, self._waiting, self._waiting_bytes = self._waiting, [], 0
        _tell(calls, failure)


def _nonsense(batch: RecordBatch) -> Failed | None:
    """The failure for a batch whose head or numbers are nonsense, from a producer or another node; None: it is
    sound."""
    try:
        check_head(batch.head)
    except Damaged as problem:
        return Failed("malformed", False, f"the batch cannot be read: {problem}")
    numbering = batch.head.numbering
    wrong = None if numbering is None else nonsense(*numbering)
    return None if wrong is None else Failed("producer_invalid", False, wrong)


def effort_of(batch: RecordBatch) -> int:
    """Cost of a look at the contents, known before: bytes to decompress, and messages to look at."""
    if batch.is_own:
        return 0
    bytes_out = batch.uncompressed_bytes if batch.codec else 0
    return bytes_out if batch.are_bodies else bytes_out + MESSAGE_EFFORT * batch.head.record_count


def _check_contents(batch: RecordBatch) -> None:
    """Raise Damaged if the batch cannot be stored as it is. No more is decompressed than the table of lengths says,
    which was compared with a limit before, and what comes out is not kept.

    Bodies may hold any bytes, so one thing is checked of them only: exactly as many come out as the table says."""
    if batch.is_own:
        return
    batch.check_content(MAX_UNCOMPRESSED_BYTES)
    if batch.are_bodies and not batch.codec:
        return
    looked_at = batch.afresh()
    looked_at.open()
    if not batch.are_bodies:
        check_messages(looked_at.records())


def _appended(result: AppendAccepted, count: int) -> Appended:
    """The outcome of a batch of `count` records whose first ones may have been stored before."""
    known = sum(place.events for place in result.known)
    rows = result.rows(0, count) if known else ()
    return Appended(*result.place_of(0), known, rows if len(rows) > 1 else ())


def _tell(calls: list[_Call], failure: Failed) -> None:
    for call in calls:
        _answer(call.done, failure)


def _answer(done: AppendDone, outcome: AppendOutcome) -> None:
    try:
        done(outcome)
    except Exception:  # one link's defect must not cost the other links of the entry their answers
        log.exception("the callback of an append failed")
