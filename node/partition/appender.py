"""From the records of many links to few Raft entries, and back to an answer for each call.

The problem: `append` is called thousands of times a second with a handful of records; an entry for each would cost a
replication round of work per call. The rules: calls are gathered during one turn of the loop and leave in the order in
which they came; the records of one call have consecutive offsets; every call is answered exactly once; what is waiting
is bounded in bytes, and the caller is told before the bound is crossed, never after. A batch that was not opened is
opened here (`PackedBodies`), when there is room for what is in it: by nobody else's word.

A call is in one entry, and so is stored as a whole or not at all. Calls without numbers share a batch; a call of a
producer with numbers is a batch of its own, and its number in the head is that of the call.

A transaction may begin with its first events: then its begin is an entry of its own, right in front of them, in the
same round of replication. If it cannot begin, that is what the call is told.

Rejected: waiting for more records here before proposing. The sync of the turn before is wait enough where little is to
do; where much is under way, whoever has all partitions sees to it (`TurnInput`), so that they wait for the
same turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import chain

from cluster.crash_points import crash_point
from cluster.raft import Committed, Discarded, NotLeader, Outcome, Overloaded
from holdfast.amqp.errors import MalformedMessage
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import bytes_in, put_together
from holdfast.records.packed_bodies import PackedBodies, opened
from holdfast.records.record_batch import DIGEST_BYTES, MAX_RECORDS, Numbering, RecordBatch
from node.partition.api import AppendDone, Appended, AppendOutcome, Failed, FailureKind, Numbers
from node.partition.commands import encode_transaction_command
from node.partition.entry import MAX_BATCHES, join, sealed
from node.partition.idempotence.producer_state import nonsense
from node.partition.limits import MAX_RECORD_BYTES, PartitionLimits
from node.partition.machine import AppendAccepted, AppendRejected
from node.partition.raft_group import Proposer
from node.partition.transactions.transaction_commands import Begin
from node.partition.transactions.transaction_state import TransactionRefused

log = logging.getLogger(__name__)

_Call = tuple[Sequence[bytes], int, AppendDone, Numbers | None]  # records, their bytes, whom to tell
_Told = list[tuple[int, int, AppendDone]]  # (place of the call's first record in the batch, records, whom to tell)

REFUSALS: dict[str, FailureKind] = {
    "producer-stolen": "producer_stolen",
    "out-of-order": "out_of_order",
    "producer-unknown": "producer_unknown",
    "invalid-producer": "producer_invalid",
    "transaction-ended": "transaction_ended",
    "transaction-too-many": "transaction_ended",
}
"""What the machine refuses a producer for, in the words of the api; anything else is `rejected`."""


class _Gathered:
    """Calls that will be one batch: many without numbers, or one with."""

    __slots__ = ("count", "not_begun", "numbers", "parts", "sealed", "size", "told")

    def __init__(self, numbers: Numbers | None) -> None:
        self.numbers = numbers
        self.not_begun: TransactionRefused | None = None  # why the transaction that was to begin with it did not
        self.parts: list[Sequence[bytes]] = []  # the records of each call
        self.sealed: list[RecordBatch] = []  # what was made of them: more than one only for a call of very many
        self.count = 0  # of records
        self.size = 0
        self.told: _Told = []

    def add(self, call: _Call) -> None:
        records, size, done, _ = call
        self.told.append((self.count, len(records), done))
        self.parts.append(records)
        self.count += len(records)
        self.size += size

    def seal(self, now_ms: int, compression: Codec) -> list[RecordBatch]:
        records, numbers = put_together(self.parts), self.numbers
        self.parts = []
        if numbers is not None:
            numbering = Numbering(numbers.producer_id, numbers.epoch, numbers.first)
            batch = sealed(records, compression, numbers.digests)
            self.sealed = [batch.numbered(numbering, transactional=numbers.transactional).stamped(now_ms)]
        else:
            parts = [records[first : first + MAX_RECORDS] for first in range(0, self.count, MAX_RECORDS)]
            self.sealed = [sealed(part, compression).stamped(now_ms) for part in parts]
        return self.sealed


class Appender:
    def __init__(
        self,
        partition: str,
        limits: PartitionLimits,
        now_ms: Callable[[], int],
        on_pending: Callable[[], None],
        on_committed: Callable[[RecordBatch], None],
        on_undecided: Callable[[int], None],
    ) -> None:
        """`on_pending`: records wait for `flush`. `on_committed`: a batch of ours was applied; spares readers on this
        node the loading. `on_undecided`: an earlier transaction of this producer id keeps the next one from beginning.
        """
        self._partition = partition
        self._limits = limits
        self._now_ms = now_ms
        self._on_pending = on_pending
        self._on_committed = on_committed
        self._on_undecided = on_undecided
        self._waiting: list[_Call] = []
        self._waiting_bytes = 0
        self.proposed_bytes = 0
        """Of entries without outcome."""
        self.refuse: Failed | None = None  # set while the node must not take more (disk nearly full)
        self.compression = Codec.NONE  # of entries that are proposed from now on

    @property
    def in_flight_bytes(self) -> int:
        return self._waiting_bytes + self.proposed_bytes

    # ------------------------------------------------------------ in

    def append(
        self, group: Proposer, records: Sequence[bytes], done: AppendDone, numbers: Numbers | None = None
    ) -> None:
        if not records:
            raise ValueError("an append needs at least one record")
        size = records.size if isinstance(records, PackedBodies) else bytes_in(records)
        refused = None if numbers is None else _nonsense(numbers, len(records))
        refused = refused or self._refusal(group, records, size)
        if refused is not None:
            done(refused)
            return
        try:
            records = opened(records)
        except MalformedMessage as problem:
            done(Failed("malformed", False, f"the batch cannot be read: {problem}"))
            return
        if not self._waiting:
            self._on_pending()
        self._waiting.append((records, size, done, numbers))
        self._waiting_bytes += size

    def _refusal(self, group: Proposer, records: Sequence[bytes], size: int) -> Failed | None:
        if not group.is_leader:
            return self.not_leader(group.leader)
        if self.refuse is not None:
            return self.refuse
        if size > MAX_RECORD_BYTES and max(map(len, records)) > MAX_RECORD_BYTES:
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

    def flush(self, group: Proposer) -> None:
        """Propose what is waiting, in order."""
        if not self._waiting:
            return
        calls, self._waiting, self._waiting_bytes = self._waiting, [], 0
        limits, now_ms = self._limits, self._now_ms()
        entry: list[_Gathered] = []
        plain: _Gathered | None = None  # the batch of this entry that calls without numbers share
        size = count = batches = 0
        for call in calls:
            records, call_bytes, done, numbers = call
            begins = numbers is not None and numbers.begins is not None
            full = size + call_bytes > limits.entry_bytes or count + len(records) > limits.entry_records
            if entry and (full or begins or batches >= MAX_BATCHES):
                self._propose(group, entry, now_ms)
                entry, plain, size, count, batches = [], None, 0, 0, 0
            batch = plain if numbers is None else None
            if batch is None:
                batch = _Gathered(numbers)
                if numbers is None:
                    plain = batch
                elif begins and not self._propose_begin(group, batch, numbers, now_ms, done):
                    continue
                entry.append(batch)
                batches += 1
            batch.add(call)
            size += call_bytes
            count += len(records)
        if entry:
            self._propose(group, entry, now_ms)

    def _propose(self, group: Proposer, entry: list[_Gathered], now_ms: int) -> None:
        size = sum(batch.size for batch in entry)

        def resolved(outcome: Outcome) -> None:
            self.proposed_bytes -= size
            self._resolve(outcome, entry)

        self.proposed_bytes += size
        try:
            data = join(chain.from_iterable(batch.seal(now_ms, self.compression) for batch in entry))
            group.propose(data, resolved)
        except (NotLeader, Overloaded) as error:
            self.proposed_bytes -= size
            for batch in entry:
                _tell(batch.told, self._not_proposed(error))

    def _not_proposed(self, error: NotLeader | Overloaded) -> Failed:
        if isinstance(error, NotLeader):
            return self.not_leader(error.leader)
        return Failed("overloaded", True, str(error))

    def _propose_begin(
        self, group: Proposer, batch: _Gathered, numbers: Numbers, now_ms: int, done: AppendDone
    ) -> bool:
        """The begin is answered before the batch is, which is behind it. False: the call was refused."""
        assert numbers.begins is not None
        begin = Begin(numbers.producer_id, numbers.epoch, *numbers.begins, now_ms)

        def begun(outcome: Outcome) -> None:
            if isinstance(outcome, Committed):
                crash_point("partition-after-begin")
                if isinstance(outcome.result, TransactionRefused):
                    batch.not_begun = outcome.result

        try:
            group.propose(encode_transaction_command(begin), begun)
        except (NotLeader, Overloaded) as error:
            _answer(done, self._not_proposed(error))
            return False
        return True

    def _resolve(self, outcome: Outcome, entry: list[_Gathered]) -> None:
        if isinstance(outcome, Committed):
            results = outcome.result
            place = 0
            for batch in entry:
                self._resolve_batch(results[place] if isinstance(results, tuple) else results, batch)
                place += len(batch.sealed)
            return
        if isinstance(outcome, Discarded):
            detail = f"another leader of partition {self._partition} went on without these records; retry"
            failure = Failed("not_leader", True, detail)
        else:
            detail = f"leadership of partition {self._partition} was lost before the records were known to be stored"
            failure = Failed("unknown", True, detail, entry=(outcome.index, outcome.term))
        for batch in entry:
            _tell(batch.told, failure)

    def _resolve_batch(self, result: object, batch: _Gathered) -> None:
        told = batch.told
        if isinstance(result, AppendAccepted):
            if result.known:
                _tell_places(told, result)
                return
            base, time_ms = result.base_offset, result.timestamp_ms
            offset = base
            for stored in batch.sealed:
                self._on_committed(stored.placed(offset, time_ms, 0, len(stored)))
                offset += len(stored)
            for place, _, done in told:
                _answer(done, Appended(base + place, time_ms))
        elif isinstance(result, AppendRejected) and batch.not_begun is not None:
            _tell(told, self._not_begun(batch.not_begun, batch))
        elif isinstance(result, AppendRejected):
            self._tell_refusal(told, result)
        else:
            _tell(told, self._rejected(result))

    def _not_begun(self, why: TransactionRefused, batch: _Gathered) -> Failed:
        """The end of an earlier transaction of the producer is on its way here, or this one cannot begin any more."""
        assert batch.numbers is not None
        if why.code != "undecided":
            return Failed("transaction_ended", False, why.detail)
        self._on_undecided(batch.numbers.producer_id)
        return Failed("overloaded", True, why.detail)

    def _rejected(self, result: object) -> Failed:
        return Failed("rejected", False, f"partition {self._partition} refused the records: {result}")

    def _tell_refusal(self, told: _Told, result: AppendRejected) -> None:
        """Of an idempotent producer's entry the first records may be known, and their calls are good."""
        kind = REFUSALS.get(result.code)
        known = sum(place.events for place in result.known)
        for place, count, done in told:
            first = result.place_of(place)
            if first is not None and place + count <= known:
                _answer(done, Appended(*first, count, _apart(result.rows(place, count))))
            elif kind is None:
                _answer(done, self._rejected(result))
            else:
                _answer(done, Failed(kind, False, result.detail, known=max(0, known - place)))

    def fail_waiting(self, failure: Failed) -> None:
        """What was not proposed yet certainly never will be."""
        calls, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for _, _, done, _ in calls:
            _answer(done, failure)


def _nonsense(numbers: Numbers, records: int) -> Failed | None:
    """What cannot be encoded must not be proposed."""
    wrong = nonsense(numbers.producer_id, numbers.epoch, numbers.first)
    if wrong is None and len(numbers.digests) != DIGEST_BYTES * records:
        wrong = f"{len(numbers.digests)} bytes of digests do not belong to {records} records"
    if wrong is None and records > MAX_RECORDS:
        wrong = f"{records} records at once are more than the {MAX_RECORDS} that a batch may have"
    return None if wrong is None else Failed("producer_invalid", False, wrong)


def _tell(told: _Told, failure: Failed) -> None:
    for _, _, done in told:
        _answer(done, failure)


def _tell_places(told: _Told, result: AppendAccepted) -> None:
    """Of an entry that holds records which were stored before."""
    known = sum(place.events for place in result.known)
    for place, count, done in told:
        duplicates = max(0, min(count, known - place))
        _answer(done, Appended(*result.place_of(place), duplicates, _apart(result.rows(place, count))))


def _apart(rows: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return rows if len(rows) > 1 else ()


def _answer(done: AppendDone, outcome: AppendOutcome) -> None:
    try:
        done(outcome)
    except Exception:  # one link's defect must not cost the other links of the entry their answers
        log.exception("the callback of an append failed")
