"""A history, indexed once for all checkers.

The order of versions is the whole run's knowledge of a partition: the values at each offset, from acknowledgements,
from reads and from the disks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property

from chaos.history.history import History
from chaos.history.tables import COMMITTED, FAIL, OK, UNCOMMITTED, OpRow, ReadRow, SendRow, TransactionRow

Place = tuple[int, int]
"""Place of an event: partition and offset."""


class View:
    def __init__(self, history: History) -> None:
        self.history = history

    # ---------------------------------------------------------------- calls and values

    @cached_property
    def ops(self) -> dict[int, OpRow]:
        return {op.op_id: op for op in self.history.ops}

    @cached_property
    def sends_of(self) -> dict[str, list[SendRow]]:
        """Attempts to send each value."""
        found: dict[str, list[SendRow]] = defaultdict(list)
        for send in self.history.sends:
            found[send.msg_id].append(send)
        return found

    @cached_property
    def transactions(self) -> dict[str, TransactionRow]:
        return {one.txn: one for one in self.history.transactions}

    def aborted(self, txn: str | None) -> bool:
        """Tell whether the transaction was certainly rolled back."""
        one = self.transactions.get(txn) if txn else None
        return one is not None and (one.decision, one.outcome) in ((("abort", OK), ("commit", FAIL)))

    def committed(self, txn: str | None) -> bool:
        """Tell whether the transaction was certainly committed."""
        one = self.transactions.get(txn) if txn else None
        return one is not None and one.decision == "commit" and one.outcome == OK

    @cached_property
    def acknowledged(self) -> list[SendRow]:
        """Sends that the cluster has acknowledged and so must keep, one row for each value."""
        found: dict[str, SendRow] = {}
        for send in self.history.sends:
            if send.outcome == OK and (send.txn is None or self.committed(send.txn)):
                found.setdefault(send.msg_id, send)
        return list(found.values())

    def call_of(self, send: SendRow) -> OpRow | None:
        """Return the call that sent an event, or None if its times are not exact.

        A batch of Spark's is recorded as one long call."""
        op = self.ops.get(send.op_id)
        return None if op is None or op.f == "txn-commit" else op

    # ---------------------------------------------------------------- places

    @cached_property
    def stored(self) -> dict[Place, set[str]]:
        """Values at each place, as reads and disks show them."""
        found: dict[Place, set[str]] = defaultdict(set)
        for read in self.history.reads:
            found[read.partition, read.offset].add(read.msg_id)
        for row in self.history.replica_dump:
            found[row.partition, row.offset].add(row.msg_id)
        return found

    @cached_property
    def order(self) -> dict[Place, set[str]]:
        """Values at each place, as reads, disks and acknowledgements show them."""
        found: dict[Place, set[str]] = defaultdict(set)
        for place, values in self.stored.items():
            found[place] |= values
        for send in self.history.sends:
            if send.offset is not None:
                found[send.partition, send.offset].add(send.msg_id)
        return found

    @cached_property
    def places_of(self) -> dict[str, set[Place]]:
        found: dict[str, set[Place]] = defaultdict(set)
        for place, values in self.order.items():
            for value in values:
                found[value].add(place)
        return found

    @cached_property
    def first_place(self) -> dict[str, Place]:
        """First place of each stored value, should it have several."""
        found: dict[str, Place] = {}
        for place in sorted(self.stored):
            for value in self.stored[place]:
                found.setdefault(value, place)
        return found

    @cached_property
    def visible(self) -> dict[tuple[int, str], list[int]]:
        """Offsets that readers got, by partition and isolation, in order. A reader that passes one has skipped it."""
        found: dict[tuple[int, str], set[int]] = defaultdict(set)
        for read in self.history.reads:
            found[read.partition, read.isolation].add(read.offset)
            if read.isolation == COMMITTED:
                found[read.partition, UNCOMMITTED].add(read.offset)
        return {key: sorted(offsets) for key, offsets in found.items()}

    def passed_over(self, place: Place) -> bool:
        """Tell whether committed readers went past the place without its event: its transaction was rolled back.

        If they missed an event that counts, C12 says so."""
        partition, offset = place
        seen = self.visible.get((partition, COMMITTED), [])
        at = bisect_left(seen, offset)
        return seen[at] != offset if at < len(seen) else partition in self.drained_partitions

    def between(self, partition: int, isolation: str, after: int, before: int) -> list[int]:
        """Return the visible offsets between two offsets, both excluded."""
        offsets = self.visible[partition, isolation]
        return offsets[bisect_right(offsets, after) : bisect_left(offsets, before)]

    def txn_of(self, msg_id: str) -> str | None:
        sends = self.sends_of.get(msg_id)
        return sends[0].txn if sends else None

    def txns_at(self, partition: int, offset: int) -> set[str]:
        return {txn for value in self.stored[partition, offset] if (txn := self.txn_of(value)) is not None}

    # ---------------------------------------------------------------- readers

    @cached_property
    def sessions(self) -> dict[tuple[str, int, int], list[ReadRow]]:
        """Reads by reader, session and partition, in the order of delivery."""
        found: dict[tuple[str, int, int], list[ReadRow]] = defaultdict(list)
        for read in self.history.reads:
            found[read.reader, read.session, read.partition].append(read)
        for reads in found.values():
            reads.sort(key=lambda read: read.pos)
        return found

    @cached_property
    def drained(self) -> list[ReadRow]:
        """Reads of the drains: after the run, from the begin of the log to its end."""
        return [read for read in self.history.reads if (op := self.ops.get(read.op_id)) is not None and op.f == "drain"]

    @cached_property
    def drained_partitions(self) -> set[int]:
        return {read.partition for read in self.drained}

    # ---------------------------------------------------------------- faults

    @cached_property
    def faults_that_struck(self) -> int:
        return sum(fault.t_injected_ns is not None for fault in self.history.faults)
