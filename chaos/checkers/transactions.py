"""Checkers C12, C13, C14 and G1B: transactions are whole, inputs count once, and no read comes too early."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from chaos.checkers.cycles import cycles
from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import COMMITTED, OK, ReadRow, SendRow


def _sends_by_transaction(view: View) -> dict[str, list[SendRow]]:
    found: dict[str, list[SendRow]] = defaultdict(list)
    for send in view.history.sends:
        if send.txn is not None:
            found[send.txn].append(send)
    return found


def atomicity(view: View) -> Iterator[Anomaly]:
    """Check that a drain gets a transaction whole or not at all, and that no reader gets it before its commit."""
    read_at_end = {read.msg_id for read in view.drained if read.isolation == COMMITTED}
    for txn, sends in sorted(_sends_by_transaction(view).items()):
        if view.aborted(txn) or txn not in view.transactions:
            continue
        values = {send.msg_id for send in sends if send.partition in view.drained_partitions}
        found = values & read_at_end
        if values and len(found) < len(values) and (found or view.committed(txn)):
            missing = min(values - found)
            yield Anomaly(
                f"of transaction {txn} {len(found)} of {len(values)} events are there; {missing} is not",
                sends[0].partition, (view.transactions[txn].op_id, sends[0].op_id),
            )  # fmt: skip
    for read in view.history.reads:
        sends = view.sends_of.get(read.msg_id, [])
        one = view.transactions.get(sends[0].txn or "") if sends else None
        if read.isolation != COMMITTED or one is None or view.aborted(one.txn):
            continue
        ended_ns = view.ops[read.op_id].t_end_ns
        if ended_ns is not None and ended_ns < view.ops[one.op_id].t_inv_ns:
            yield Anomaly(
                f"{read.reader} was given {read.msg_id} of {one.txn} before its commit was asked for",
                read.partition, (read.op_id, one.op_id), ended_ns,
            )  # fmt: skip


def exactly_once(view: View) -> Iterator[Anomaly]:
    """Check that each input up to the group's position has exactly one output that counts.

    An input that was rolled back and never taken again is REWIND's."""
    there = {read.msg_id for read in view.drained if read.isolation == COMMITTED}
    outputs: Counter[str] = Counter()
    place: dict[str, tuple[int, int]] = {}
    proof: dict[str, list[int]] = defaultdict(list)
    for row in view.history.inputs:
        if view.aborted(row.txn):
            continue
        place[row.source_msg_id] = (row.source_partition, row.source_offset)
        if row.msg_id in there:
            outputs[row.source_msg_id] += 1
            proof[row.source_msg_id].append(view.transactions[row.txn].op_id)
    stands: dict[int, int] = defaultdict(lambda: -1)
    for commit in view.history.commits:
        if commit.txn is not None and view.committed(commit.txn):
            stands[commit.partition] = max(stands[commit.partition], commit.offset)
    for source, (partition, offset) in sorted(place.items()):
        count = outputs[source]
        if count > 1 or (count == 0 and offset <= stands[partition]):
            yield Anomaly(
                f"input {source} at {partition}/{offset} has {count} outputs that count", partition,
                tuple(proof[source]),
            )  # fmt: skip


def half_seen(view: View) -> Iterator[Anomaly]:
    """Check that a committed reader that is past a transaction's events in a partition has seen all of them."""
    parts: dict[tuple[str, int], set[int]] = defaultdict(set)
    for read in view.history.reads:
        sends = view.sends_of.get(read.msg_id, [])
        if sends and sends[0].txn is not None and read.isolation == COMMITTED and not view.aborted(sends[0].txn):
            parts[sends[0].txn, read.partition].add(read.offset)
    by_partition: dict[int, list[tuple[str, set[int]]]] = defaultdict(list)
    for (txn, partition), offsets in parts.items():
        by_partition[partition].append((txn, offsets))
    for (reader, session, partition), reads in sorted(view.sessions.items()):
        if reads[0].isolation == COMMITTED:
            yield from _half_seen(reader, session, partition, reads, by_partition[partition])


def _half_seen(
    reader: str, session: int, partition: int, reads: list[ReadRow], parts: list[tuple[str, set[int]]]
) -> Iterator[Anomaly]:
    seen = {read.offset for read in reads}
    first, position = reads[0].offset, max(seen)
    for txn, offsets in parts:
        below = {offset for offset in offsets if first <= offset < position}
        if below & seen and below - seen:
            yield Anomaly(
                f"{reader}, session {session}, is at {position} and has seen {len(below & seen)} of {len(below)} "
                f"events of {txn}",
                partition, (reads[-1].op_id,),
            )  # fmt: skip


def circular(view: View) -> Iterator[Anomaly]:
    for circle in cycles(view):
        yield Anomaly(" -> ".join(circle.steps), None, circle.ops)


def _transactions(view: View) -> int:
    return len(view.history.transactions) if view.drained else 0


def _inputs(view: View) -> int:
    return len(view.history.inputs) if view.drained else 0


def _reads_of_sends(view: View) -> int:
    return len(view.history.reads) if any(send.outcome == OK for send in view.history.sends) else 0


CHECKERS = [
    Checker("C12", "a transaction is there as a whole, or not at all", _transactions, atomicity),
    Checker("C13", "each input of a pipeline counts once", _inputs, exactly_once),
    Checker("C14", "no circle of information through reads and time", _reads_of_sends, circular),
    Checker("G1B", "committed readers see a partition's part of a transaction whole", _transactions, half_seen),
]
