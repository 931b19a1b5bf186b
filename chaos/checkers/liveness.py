"""Checkers C20, C21 and CALLS: the cluster goes on after faults, and nothing hangs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import OK, FaultRow, SendRow

RECOVER_WITHIN_S = 30.0
"""Longest time from the end of a fault to an acknowledgement in every partition; a cluster that needs longer hangs."""

LATE_S = 5.0
"""Grace after the deadline of a call: the machine or the client's loop may be busy."""

_S = 1e9


def _acknowledgements(view: View) -> dict[int, list[int]]:
    """Collect the times of acknowledgements, by partition."""
    found: dict[int, set[int]] = defaultdict(set)
    for send in view.history.sends:
        op = view.ops.get(send.op_id)
        if send.outcome == OK and op is not None and op.t_end_ns is not None:
            found[send.partition].add(op.t_end_ns)
    return {partition: sorted(times) for partition, times in found.items()}


def _asked(view: View) -> dict[int, list[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for send in view.history.sends:
        if (op := view.ops.get(send.op_id)) is not None:
            found[send.partition].add(op.t_inv_ns)
    return {partition: sorted(times) for partition, times in found.items()}


def _healed(view: View) -> list[tuple[int, FaultRow]]:
    """List the times at which the cluster was whole again: ends of faults while no other fault is in force."""
    faults = [one for one in view.history.faults if one.t_injected_ns is not None]
    return [
        (one.t_healed_ns, one)
        for one in faults
        if one.t_healed_ns is not None
        and not any(
            other is not one
            and other.t_injecting_ns < one.t_healed_ns + RECOVER_WITHIN_S * _S
            and (other.t_healed_ns is None or other.t_healed_ns > one.t_healed_ns)
            for other in faults
        )
    ]


def availability(view: View) -> Iterator[Anomaly]:
    """Check that after a fault every partition with a sender takes events again."""
    acknowledged, asked = _acknowledgements(view), _asked(view)
    bound_ns = int(RECOVER_WITHIN_S * _S)
    for healed_ns, fault in _healed(view):
        for partition, sent in sorted(asked.items()):
            waited = [at_ns for at_ns in sent if at_ns > healed_ns]
            told = acknowledged.get(partition, ())
            if not waited or any(healed_ns <= at_ns <= healed_ns + bound_ns for at_ns in told):
                continue
            if _last(view) > healed_ns + bound_ns:
                yield Anomaly(
                    f"{fault.kind} ({fault.target}) was over, and partition {partition} acknowledged nothing for "
                    f"{RECOVER_WITHIN_S:g} s",
                    partition, (), healed_ns,
                )  # fmt: skip


def _last(view: View) -> int:
    return max((op.t_end_ns or 0 for op in view.history.ops), default=0)


def gaps(view: View) -> dict[str, float]:
    """Measure the longest time without an acknowledgement, and from a fault's end to the next acknowledgement."""
    acknowledged = _acknowledgements(view)
    longest = max((b - a for times in acknowledged.values() for a, b in itertools.pairwise(times)), default=0)
    figures = {"longest gap, s": round(longest / _S, 3)}
    resumed = [
        min((at_ns - healed_ns for at_ns in times if at_ns >= healed_ns), default=None)
        for healed_ns, _ in _healed(view)
        for times in acknowledged.values()
    ]
    known = [gap for gap in resumed if gap is not None]
    if known:
        figures["longest from heal to acknowledgement, s"] = round(max(known) / _S, 3)
    return figures


def stuck(view: View) -> Iterator[Anomaly]:
    """Check that a drain gets every stored event, that readers reach the end, and that no node has complaints."""
    read = {one.msg_id for one in view.drained}
    for send in view.acknowledged:
        stored = send.msg_id in view.first_place
        if stored and send.txn is None and send.msg_id not in read and send.partition in view.drained_partitions:
            yield Anomaly(f"{send.msg_id} is stored, and no drain was given it", send.partition, (send.op_id,))
    yield from _stopped_readers(view)
    for complaint in view.history.complaints:
        yield Anomaly(f"node {complaint.node}: {complaint.text}", None, (), complaint.t_ns)


def _stopped_readers(view: View) -> Iterator[Anomaly]:
    """Find readers at the tail that read until the end of the run and did not reach the end of the log."""
    last: dict[int, tuple[int, SendRow]] = {}
    for send in view.acknowledged:
        place = view.first_place.get(send.msg_id)
        if send.offset is not None and place is not None and place[1] > last.get(send.partition, (-1, send))[0]:
            last[send.partition] = (place[1], send)
    came: dict[tuple[str, int], int] = {}
    for read in view.history.reads:
        if read.group is None:
            key = (read.reader, read.partition)
            came[key] = max(read.offset, came.get(key, -1))
    polled = {op.process: op for op in view.history.ops if op.f == "poll"}
    for (reader, partition), offset in sorted(came.items()):
        op = polled.get(reader)
        if op is None or partition not in last:
            continue
        goal, send = last[partition]
        if offset < goal and op.t_inv_ns > (view.ops[send.op_id].t_end_ns or 0):
            yield Anomaly(
                f"{reader} read to the end of the run and came to {offset}; the log goes to {goal}",
                partition, (send.op_id, op.op_id),
            )  # fmt: skip


def endless_calls(view: View) -> Iterator[Anomaly]:
    """Check that every call ends by its deadline, whatever happens to the cluster."""
    last_ns = _last(view)
    for op in view.history.ops:
        if op.deadline_ns is None:
            continue
        late_ns = (last_ns if op.t_end_ns is None else op.t_end_ns) - op.deadline_ns
        if late_ns > LATE_S * _S:
            how = "never ended" if op.t_end_ns is None else f"ended {late_ns / _S:.1f} s after its deadline"
            yield Anomaly(f"{op.process}: {op.f} {how}", None, (op.op_id,), op.t_inv_ns)


def _drained_or_failed(view: View) -> int:
    return len(view.drained) + len(view.history.complaints)


def _sends(view: View) -> int:
    return sum(send.outcome == OK for send in view.history.sends)


def _bounded(view: View) -> int:
    return sum(op.deadline_ns is not None for op in view.history.ops)


CHECKERS = [
    Checker("C20", "every partition takes events again after a fault", _sends, availability, gaps),
    Checker("C21", "drained, nothing stuck, nobody died by itself", _drained_or_failed, stuck),
    Checker("CALLS", "every call of a client ends by its deadline", _bounded, endless_calls),
]
