"""From the records of many links to few Raft entries, and back to an answer for each call.

The problem: `append` is called thousands of times a second with a handful of records; an entry for each would cost a
replication round of work per call. The rules: calls are gathered during one turn of the loop and leave in the order in
which they came; the records of one call have consecutive offsets; every call is answered exactly once; what is waiting
is bounded in bytes, and the caller is told before the bound is crossed, never after. A batch that was not opened is
opened here (`PackedBodies`), when there is room for what is in it: by nobody else's word.

A call stays in one entry unless it alone exceeds one. Then it is cut, and its answer is good only if every part was
committed: if some were and some not, the answer is "unknown", since repeating would double a part. No later leader can
be asked what became of it: the fate of one entry is not that of the call.

Calls without numbers share entries. Calls of one idempotent producer share entries as long as their numbers connect;
each producer's entries keep the order of its calls, and nobody else's order is touched by that.

A transaction may begin with its first events: then its begin is an entry of its own, right in front of them, in the
same round of replication. If it cannot begin, that is what the call is told.

Rejected: waiting for more records here before proposing. The sync of the turn before is wait enough where little is to
do; where much is under way, whoever has all partitions sees to it (`TurnInput`), so that they wait for the
same turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from cluster.crash_points import crash_point
from cluster.raft import Committed, Discarded, NotLeader, Outcome, Overloaded
from holdfast.amqp.errors import MalformedMessage
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import bytes_in, put_together
from holdfast.records.packed_bodies import PackedBodies, opened
from node.partition.api import AppendDone, Appended, AppendOutcome, Failed, FailureKind, Numbers, StoredBatch
from node.partition.commands import encode_transaction_command
from node.partition.idempotence.producer_state import nonsense, rows_of
from node.partition.limits import MAX_RECORD_BYTES, PartitionLimits
from node.partition.machine import AppendAccepted, AppendRejected
from node.partition.raft_group import Proposer
from node.partition.record_batch import DIGEST_BYTES, Attributes, encode
from node.partition.transactions.transaction_commands import Begin
from node.partition.transactions.transaction_state import TransactionRefused

log = logging.getLogger(__name__)

_Call = tuple[Sequence[bytes], int, AppendDone, Numbers | None]  # records, their bytes, whom to tell
_By = tuple[int, int, bool] | None  # who numbers the records: producer id, epoch, in a transaction or not
_Told = list[tuple[int, int, AppendDone]]  # (place of the call's first record in the entry, records, whom to tell)

REFUSALS: dict[str, FailureKind] = {
    "producer-stolen": "producer_stolen",
    "out-of-order": "out_of_order",
    "producer-unknown": "producer_unknown",
    "invalid-producer": "producer_invalid",
    "transaction-ended": "transaction_ended",
    "transaction-too-many": "transaction_ended",
}
"""What the machine refuses a producer for, in the words of the api; anything else is `rejected`."""


class _Entry:
    """Calls that will be one Raft entry."""

    __slots__ = ("count", "digests", "not_begun", "numbers", "parts", "size", "told")

    def __init__(self, numbers: Numbers | None) -> None:
        self.numbers = numbers  # of the first call
        self.not_begun: TransactionRefused | None = None  # why the transaction that was to begin with it did not
        self.digests: list[bytes] = []
        self.parts: list[Sequence[bytes]] = []  # the records of each call
        self.count = 0  # of records
        self.size = 0
        self.told: _Told = []

    @property
    def transaction(self) -> tuple[int, int] | None:
        numbers = self.numbers
        return (numbers.producer_id, numbers.epoch) if numbers is not None and numbers.transactional else None

    @property
    def publisher(self) -> tuple[int, int, int] | None:
        numbers = self.numbers
        return (numbers.producer_id, numbers.epoch, numbers.first) if numbers is not None else None

    def add(self, call: _Call) -> None:
        records, size, done, numbers = call
        self.told.append((self.count, len(records), done))
        self.parts.append(records)
        self.count += len(records)
        self.size += size
        if numbers is not None:
            self.digests.append(numbers.digests)

    @property
    def records(self) -> Sequence[bytes]:
        """Of all calls."""
        if len(self.parts) > 1:
            self.parts = [put_together(self.parts)]
        return self.parts[0]

    def encode(self, now_ms: int, compression: Codec) -> bytes:
        numbers, records = self.numbers, self.records
        if numbers is None:
            return encode(records, now_ms, compression=compression)
        return encode(
            records,
            now_ms,
            producer_id=numbers.producer_id,
            producer_epoch=numbers.epoch,
            base_sequence=numbers.first,
            digests=b"".join(self.digests),
            attributes=Attributes.APPEND_TIME | (Attributes.TRANSACTIONAL if numbers.transactional else 0),
            compression=compression,
        )


class Appender:
    def __init__(
        self,
        partition: str,
        limits: PartitionLimits,
        now_ms: Callable[[], int],
        on_pending: Callable[[], None],
        on_committed: Callable[[StoredBatch], None],
        on_undecided: Callable[[int], None],
    ) -> None:
        """`on_pending`: records wait for `flush`. `on_committed`: an own entry was applied; spares readers on this node
        the decoding. `on_undecided`: an earlier transaction of this producer id keeps the next one from its begin."""
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
        limits = self._limits
        now_ms = self._now_ms()
        gathered: dict[_By, _Entry] = {}
        next_number: dict[_By, int] = {}
        for call in calls:
            records, size, _, numbers = call
            key = None if numbers is None else (numbers.producer_id, numbers.epoch, numbers.transactional)
            entry = gathered.get(key)
            if entry is not None and (
                entry.size + size > limits.entry_bytes
                or entry.count + len(records) > limits.entry_records
                or (numbers is not None and (numbers.first != next_number[key] or numbers.begins is not None))
            ):
                self._propose(group, entry, now_ms)
                del gathered[key]
                entry = None
            if size > limits.call_bytes or len(records) > limits.call_records:
                if entry is not None:
                    self._propose(group, gathered.pop(key), now_ms)
                self._propose_in_parts(group, call, now_ms)
                continue
            if entry is None:
                entry = gathered[key] = _Entry(numbers)
            entry.add(call)
            if numbers is not None:
                next_number[key] = numbers.next
        for entry in gathered.values():
            self._propose(group, entry, now_ms)

    def _propose_in_parts(self, group: Proposer, call: _Call, now_ms: int) -> None:
        records, _, done, numbers = call
        parts = _cut(records, self._limits)
        answer = _AllOrUnknown(parts, done)
        place = 0
        for number, part in enumerate(parts):
            own = None if numbers is None else numbers.cut(place, place + len(part))
            entry = _Entry(own)
            entry.add((part, sum(map(len, part)), answer.part(number), own))
            self._propose(group, entry, now_ms)
            place += len(part)

    def _propose(self, group: Proposer, entry: _Entry, now_ms: int) -> None:
        size, told = entry.size, entry.told

        def resolved(outcome: Outcome) -> None:
            self.proposed_bytes -= size
            self._resolve(outcome, entry)

        self.proposed_bytes += size
        try:
            if entry.numbers is not None and entry.numbers.begins is not None:
                self._propose_begin(group, entry, entry.numbers, now_ms)
            group.propose(entry.encode(now_ms, self.compression), resolved)
        except NotLeader as error:
            self.proposed_bytes -= size
            _tell(told, self.not_leader(error.leader))
        except Overloaded as error:
            self.proposed_bytes -= size
            _tell(told, Failed("overloaded", True, str(error)))

    def _propose_begin(self, group: Proposer, entry: _Entry, numbers: Numbers, now_ms: int) -> None:
        """It is answered before the entry is, which is behind it."""
        assert numbers.begins is not None
        begin = Begin(numbers.producer_id, numbers.epoch, *numbers.begins, now_ms)

        def begun(outcome: Outcome) -> None:
            if isinstance(outcome, Committed):
                crash_point("partition-after-begin")
                if isinstance(outcome.result, TransactionRefused):
                    entry.not_begun = outcome.result

        group.propose(encode_transaction_command(begin), begun)

    def _resolve(self, outcome: Outcome, entry: _Entry) -> None:
        told = entry.told
        if isinstance(outcome, Committed):
            result = outcome.result
            if isinstance(result, AppendAccepted):
                if not result.known:
                    self._on_committed(
                        StoredBatch(
                            result.base_offset, result.timestamp_ms, entry.records, entry.transaction, entry.publisher
                        )
                    )
                    for place, _, done in told:
                        _answer(done, Appended(result.base_offset + place, result.timestamp_ms))
                else:
                    _tell_places(told, result)
            elif isinstance(result, AppendRejected) and entry.not_begun is not None:
                _tell(told, self._not_begun(entry.not_begun, entry))
            elif isinstance(result, AppendRejected):
                self._tell_refusal(told, result)
            else:
                _tell(told, self._rejected(result))
        elif isinstance(outcome, Discarded):
            detail = f"another leader of partition {self._partition} went on without these records; retry"
            _tell(told, Failed("not_leader", True, detail))
        else:
            detail = f"leadership of partition {self._partition} was lost before the records were known to be stored"
            _tell(told, Failed("unknown", True, detail, entry=(outcome.index, outcome.term)))

    def _not_begun(self, why: TransactionRefused, entry: _Entry) -> Failed:
        """The end of an earlier transaction of the producer is on its way here, or this one cannot begin any more."""
        assert entry.numbers is not None
        if why.code != "undecided":
            return Failed("transaction_ended", False, why.detail)
        self._on_undecided(entry.numbers.producer_id)
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


class _AllOrUnknown:
    """One answer for a call that was cut into several entries."""

    def __init__(self, parts: list[list[bytes]], done: AppendDone) -> None:
        self._counts = [len(part) for part in parts]
        self._outcomes: dict[int, AppendOutcome] = {}
        self._done = done

    def part(self, number: int) -> AppendDone:
        return partial(self._answered, number)

    def _answered(self, part: int, outcome: AppendOutcome) -> None:
        self._outcomes[part] = outcome
        if len(self._outcomes) == len(self._counts):
            self._done(self._together([self._outcomes[number] for number in range(len(self._counts))]))

    def _together(self, outcomes: list[AppendOutcome]) -> AppendOutcome:
        failures = [one for one in outcomes if isinstance(one, Failed)]
        stored = [one for one in outcomes if isinstance(one, Appended)]
        if not failures:
            duplicates = sum(one.duplicates for one in stored)
            rows = rows_of(row for one, count in zip(stored, self._counts, strict=True) for row in one.rows(count))
            return Appended(stored[0].base_offset, stored[0].timestamp_ms, duplicates, _apart(rows))
        if not stored:
            unknown = next((one for one in failures if one.kind == "unknown"), None)
            # Without its entry: what became of that says nothing of the others.
            return failures[0] if unknown is None else replace(unknown, entry=None)
        good = outcomes.index(failures[0])
        if failures[0].kind in REFUSALS.values():  # the parts before it have numbers too, and are in the log
            return replace(failures[0], known=sum(self._counts[:good]) + failures[0].known)
        detail = f"only a part of the records was stored; of the rest: {failures[0].detail}"
        return Failed("unknown", True, detail, failures[0].leader)


def _nonsense(numbers: Numbers, records: int) -> Failed | None:
    """What cannot be encoded must not be proposed."""
    wrong = nonsense(numbers.producer_id, numbers.epoch, numbers.first)
    if wrong is None and len(numbers.digests) != DIGEST_BYTES * records:
        wrong = f"{len(numbers.digests)} bytes of digests do not belong to {records} records"
    return None if wrong is None else Failed("producer_invalid", False, wrong)


def _cut(records: Sequence[bytes], limits: PartitionLimits) -> list[list[bytes]]:
    parts: list[list[bytes]] = [[]]
    size = 0
    for record in records:
        part = parts[-1]
        if part and (size + len(record) > limits.entry_bytes or len(part) == limits.entry_records):
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += len(record)
    return parts


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
