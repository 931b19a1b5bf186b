"""From the records of many links to few Raft entries, and back to an answer for each call.

The problem: `append` is called thousands of times a second with a handful of records; an entry for each would cost a
replication round of work per call. The rules: calls are gathered during one turn of the loop and leave in the order in
which they came; the records of one call have consecutive offsets; every call is answered exactly once; what is waiting
is bounded in bytes, and the caller is told before the bound is crossed, never after.

A call stays in one entry unless it alone exceeds one. Then it is cut, and its answer is good only if every part was
committed: if some were and some not, the answer is "unknown", since repeating would double a part.

Rejected: waiting for more records before proposing (the sync of the turn before is wait enough; latency stays low when
there is little to do, and batches grow by themselves when there is much).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from cluster.raft import Committed, Discarded, NotLeader, Outcome, Overloaded
from node.partition.api import AppendDone, Appended, AppendOutcome, Failed
from node.partition.batch import encode
from node.partition.limits import MAX_RECORD_BYTES, PartitionLimits
from node.partition.machine import Accepted

log = logging.getLogger(__name__)

_Call = tuple[list[bytes], int, AppendDone]  # records, their bytes, whom to tell
_Told = list[tuple[int, AppendDone]]  # (place of the call's first record in the entry, whom to tell)


class Proposer(Protocol):
    """What the appender needs of a `cluster.raft.Group`."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader(self) -> int | None: ...
    def propose(self, data: bytes, done: Callable[[Outcome], None]) -> int: ...


class Appender:
    def __init__(
        self,
        partition: str,
        limits: PartitionLimits,
        now_ms: Callable[[], int],
        on_pending: Callable[[], None],
        on_committed: Callable[[int, int, list[bytes]], None],
    ) -> None:
        """`on_pending`: records wait for `flush`. `on_committed(base offset, timestamp, records)`: an own entry was
        applied; spares readers on this node the decoding."""
        self._partition = partition
        self._limits = limits
        self._now_ms = now_ms
        self._on_pending = on_pending
        self._on_committed = on_committed
        self._waiting: list[_Call] = []
        self._waiting_bytes = 0
        self._proposed_bytes = 0
        self.refuse: Failed | None = None  # set while the node must not take more (disk nearly full)

    @property
    def has_pending(self) -> bool:
        return bool(self._waiting)

    @property
    def in_flight_bytes(self) -> int:
        return self._waiting_bytes + self._proposed_bytes

    # ------------------------------------------------------------ in

    def append(self, group: Proposer, records: list[bytes], done: AppendDone) -> None:
        if not records:
            raise ValueError("an append needs at least one record")
        size = sum(map(len, records))
        refused = self._refusal(group, records, size)
        if refused is not None:
            done(refused)
            return
        if not self._waiting:
            self._on_pending()
        self._waiting.append((records, size, done))
        self._waiting_bytes += size

    def _refusal(self, group: Proposer, records: list[bytes], size: int) -> Failed | None:
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
        records: list[bytes] = []
        told: _Told = []
        entry_bytes = 0
        now_ms = self._now_ms()
        for call_records, size, done in calls:
            count = len(call_records)
            if records and (entry_bytes + size > limits.entry_bytes or len(records) + count > limits.entry_records):
                self._propose(group, records, entry_bytes, told, now_ms)
                records, told, entry_bytes = [], [], 0
            if size > limits.entry_bytes or count > limits.entry_records:
                self._propose_in_parts(group, call_records, done, now_ms)
                continue
            told.append((len(records), done))
            records.extend(call_records)
            entry_bytes += size
        if records:
            self._propose(group, records, entry_bytes, told, now_ms)

    def _propose_in_parts(self, group: Proposer, records: list[bytes], done: AppendDone, now_ms: int) -> None:
        parts = _cut(records, self._limits)
        answer = _AllOrUnknown(len(parts), done)
        for part in parts:
            self._propose(group, part, sum(map(len, part)), [(0, answer)], now_ms)

    def _propose(self, group: Proposer, records: list[bytes], size: int, told: _Told, now_ms: int) -> None:
        def resolved(outcome: Outcome) -> None:
            self._proposed_bytes -= size
            self._resolve(outcome, records, told)

        self._proposed_bytes += size
        try:
            group.propose(encode(records, now_ms), resolved)
        except NotLeader as error:
            self._proposed_bytes -= size
            _tell(told, self.not_leader(error.leader))
        except Overloaded as error:
            self._proposed_bytes -= size
            _tell(told, Failed("overloaded", True, str(error)))

    def _resolve(self, outcome: Outcome, records: list[bytes], told: _Told) -> None:
        if isinstance(outcome, Committed):
            result = outcome.result
            if isinstance(result, Accepted):
                self._on_committed(result.base_offset, result.timestamp_ms, records)
                for place, done in told:
                    _answer(done, Appended(result.base_offset + place, result.timestamp_ms))
                return
            _tell(told, Failed("rejected", False, f"partition {self._partition} refused the records: {result}"))
        elif isinstance(outcome, Discarded):
            detail = f"another leader of partition {self._partition} went on without these records; retry"
            _tell(told, Failed("not_leader", True, detail))
        else:
            detail = f"leadership of partition {self._partition} was lost before the records were known to be stored"
            _tell(told, Failed("unknown", True, detail))

    def fail_waiting(self, failure: Failed) -> None:
        """What was not proposed yet certainly never will be."""
        calls, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for _, _, done in calls:
            _answer(done, failure)


class _AllOrUnknown:
    """One answer for a call that was cut into several entries."""

    def __init__(self, parts: int, done: AppendDone) -> None:
        self._missing = parts
        self._done = done
        self._first: Appended | None = None
        self._failure: Failed | None = None

    def __call__(self, outcome: AppendOutcome) -> None:
        self._missing -= 1
        if isinstance(outcome, Failed):
            if self._failure is None or outcome.kind == "unknown":
                self._failure = outcome
        elif self._first is None:
            self._first = outcome
        if self._missing:
            return
        if self._failure is None:
            assert self._first is not None
            self._done(self._first)
        elif self._first is None:
            self._done(self._failure)
        else:
            detail = f"only a part of the records was stored; of the rest: {self._failure.detail}"
            self._done(Failed("unknown", True, detail, self._failure.leader))


def _cut(records: list[bytes], limits: PartitionLimits) -> list[list[bytes]]:
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
    for _, done in told:
        _answer(done, failure)


def _answer(done: AppendDone, outcome: AppendOutcome) -> None:
    try:
        done(outcome)
    except Exception:  # one link's defect must not cost the other links of the entry their answers
        log.exception("the callback of an append failed")
