"""Checkers C8, C9, C16, C17, C19 and LSO: the events that readers get, and the ends of the log that they are told."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import COMMITTED, FAIL, OK, ReadRow, WatermarkRow


def aborted_reads(view: View) -> Iterator[Anomaly]:
    """Find events that a committed reader got although they were refused or rolled back."""
    for read in view.history.reads:
        if read.isolation != COMMITTED:
            continue
        sends = view.sends_of.get(read.msg_id, [])
        if sends and all(send.outcome == FAIL for send in sends):
            why = "which was refused"
        elif sends and view.aborted(sends[0].txn):
            why = f"of transaction {sends[0].txn}, which was rolled back"
        else:
            continue
        yield Anomaly(
            f"{read.reader} was given {read.msg_id} at {read.partition}/{read.offset}, {why}",
            read.partition, (*(send.op_id for send in sends), read.op_id),
        )  # fmt: skip


def reader_order(view: View) -> Iterator[Anomaly]:
    """Check that a session gets each visible event once, in order, and skips none.

    Holes in a transaction of which the session has seen a part are G1B's."""
    for (reader, session, partition), reads in sorted(view.sessions.items()):
        seen = {txn for read in reads if (txn := view.txn_of(read.msg_id)) is not None}
        for before, read in itertools.pairwise(reads):
            what = _out_of_step(view, before, read, seen)
            if what:
                yield Anomaly(
                    f"{reader}, session {session}: offset {read.offset} behind {before.offset}: {what}",
                    partition, (before.op_id, read.op_id),
                )  # fmt: skip


def _out_of_step(view: View, before: ReadRow, read: ReadRow, transactions_seen: set[str]) -> str:
    if read.offset <= before.offset:
        return "came again" if read.offset == before.offset else "went back"
    passed = view.between(read.partition, read.isolation, before.offset, read.offset)
    holes = [offset for offset in passed if not view.txns_at(read.partition, offset) & transactions_seen]
    return f"passed over {len(holes)} events" if holes else ""


def stale_ends(view: View) -> Iterator[Anomaly]:
    """Find answers about the end of the log that are lower than an offset acknowledged before the question."""
    acks: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # partition -> (ended, offset, call)
    for send in view.history.sends:
        op = view.ops.get(send.op_id)
        if send.outcome == OK and send.offset is not None and op is not None and op.t_end_ns is not None:
            acks[send.partition].append((op.t_end_ns, send.offset, send.op_id))
    asked: dict[int, list[tuple[int, WatermarkRow]]] = defaultdict(list)
    for mark in view.history.watermarks:
        asked[mark.partition].append((view.ops[mark.op_id].t_inv_ns, mark))
    for partition, marks in sorted(asked.items()):
        waiting = sorted(acks[partition])
        highest, proof, done = -1, 0, 0
        for asked_ns, mark in sorted(marks, key=lambda one: one[0]):
            while done < len(waiting) and waiting[done][0] < asked_ns:
                if waiting[done][1] > highest:
                    highest, proof = waiting[done][1], waiting[done][2]
                done += 1
            if mark.latest <= highest:
                yield Anomaly(
                    f"{mark.process} was told that the log ends at {mark.latest}; offset {highest} was acknowledged "
                    "before it asked",
                    partition, (proof, mark.op_id), asked_ns,
                )  # fmt: skip


def _falls(value: Callable[[WatermarkRow], int | None], name: str) -> Callable[[View], Iterator[Anomaly]]:
    def find(view: View) -> Iterator[Anomaly]:
        last: dict[tuple[str, int], WatermarkRow] = {}
        for mark in sorted(view.history.watermarks, key=lambda mark: mark.op_id):
            before, now = last.get((mark.process, mark.partition)), value(mark)
            if now is None:
                continue
            if before is not None and now < (value(before) or 0):
                yield Anomaly(
                    f"{mark.process} was told {name} {value(before)}, and then {now}",
                    mark.partition, (before.op_id, mark.op_id),
                )  # fmt: skip
            last[mark.process, mark.partition] = mark

    return find


def _start(view: View) -> Iterator[Anomaly]:
    yield from _falls(lambda mark: mark.earliest, "the first offset")(view)
    begins: dict[int, list[tuple[int, WatermarkRow]]] = defaultdict(list)
    for mark in view.history.watermarks:
        if mark.earliest > 0 and (ended_ns := view.ops[mark.op_id].t_end_ns) is not None:
            begins[mark.partition].append((ended_ns, mark))
    for read in view.history.reads:
        for ended_ns, mark in begins[read.partition]:
            if ended_ns < view.ops[read.op_id].t_inv_ns and read.offset < mark.earliest:
                yield Anomaly(
                    f"{read.reader} was given offset {read.offset}; the log began at {mark.earliest} by then",
                    read.partition, (mark.op_id, read.op_id),
                )  # fmt: skip
                break


def _committed_reads_with_transactions(view: View) -> int:
    undone = sum(view.aborted(one) for one in view.transactions) + sum(s.outcome == FAIL for s in view.history.sends)
    return undone if view.history.reads else 0


def _watermarks(view: View) -> int:
    return len(view.history.watermarks)


def _stable(view: View) -> int:
    return sum(mark.stable is not None for mark in view.history.watermarks) if view.transactions else 0


CHECKERS = [
    Checker("C8", "committed readers get nothing that was rolled back", _committed_reads_with_transactions,
            aborted_reads),
    Checker("C9", "readers get every event once, in order", lambda view: len(view.history.reads), reader_order),
    Checker("C16", "the end of the log, when asked for, is fresh", _watermarks, stale_ends),
    Checker("C17", "the end of the log never falls for a client", _watermarks,
            _falls(lambda mark: mark.latest, "the end")),
    Checker("C19", "the begin of the log never falls, and nothing before it is read", _watermarks, _start),
    Checker("LSO", "the last stable offset never falls for a client", _stable,
            _falls(lambda mark: mark.stable, "the last stable offset")),
]  # fmt: skip
