"""Checker P99: a node that is killed or paused does not slow clients of partitions that other nodes lead.

The checker compares the latency of sends in two windows, for partitions that another node leads all the time. The first
window is the fault: from when the node is down until it is told to come back. The second one is as much time before,
cut at the end of the fault before and at the partition's last change of leaders. A call counts with its duration,
whatever its outcome: a call that timed out was slow. The windows of a run are pooled, since a p99 of few calls is just
the slowest call. If calls are slow in peace, the machine is busy with something else, and the checker judges nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import FaultRow, LeaderRow

MOST_TIMES = 2.0
LEAST_MOVE_MS = 25.0
"""A smaller rise does not count: other work of the machine when a node ends can cause it."""
LEAST_CALLS = 300
"""Fewest calls in all windows before faults, and in all windows of faults: then three are above the p99."""
LEAST_OF_EACH = 50
"""Fewest calls before and during a single fault; with fewer the fault is left out, to keep the halves comparable."""
BUSY_MS = 50.0
"""P99 in peace from which on the machine is too busy to judge."""

SETTLED_S = 1.0
"""Time after another fault's end, or a change of leaders, whose calls do not count."""

_STOPS_ONE = re.compile(r"^F(1|1C|2|2C) (kill|pause) ")
_NODE = re.compile(r"^node (\d+)$")
_MS = 1e6
_SETTLED_NS = int(SETTLED_S * 1e9)


class Took(NamedTuple):
    ms: float
    partition: int
    op_id: int
    t_inv_ns: int
    fault: FaultRow


class CallTimes(NamedTuple):
    before: list[Took]
    during: list[Took]

    @property
    def enough(self) -> bool:
        return min(len(self.before), len(self.during)) >= LEAST_CALLS and p99_ms(self.before) < BUSY_MS


def stopped_node(fault: FaultRow) -> int | None:
    """Return the only node that a fault stops; None if it is no such fault."""
    found = _NODE.match(fault.target)
    return int(found[1]) if found and _STOPS_ONE.match(fault.kind) else None


def compared(view: View) -> CallTimes:
    calls = _calls(view)
    led = _leaders(view)
    found = CallTimes([], [])
    for fault in view.history.faults:
        node = stopped_node(fault)
        if node is None or fault.t_injected_ns is None:
            continue
        end_ns = fault.t_healing_ns or fault.t_injected_ns
        if _others_felt(view, fault, fault.t_injecting_ns, end_ns):
            continue
        begin_ns = max(fault.t_injecting_ns - (end_ns - fault.t_injected_ns), _settled_ns(view, fault))
        before: list[Took] = []
        during: list[Took] = []
        for partition, times in calls.items():
            leader = _leader(led.get(partition, ()), fault.t_injecting_ns, end_ns)
            if leader is None or leader.node == node:
                continue
            since_ns = max(begin_ns, leader.t_ns + _SETTLED_NS)
            for t_inv_ns, t_end_ns, op_id in times:
                took = Took((t_end_ns - t_inv_ns) / _MS, partition, op_id, t_inv_ns, fault)
                if fault.t_injected_ns <= t_inv_ns < end_ns:
                    during.append(took)
                elif since_ns <= t_inv_ns and t_end_ns <= fault.t_injecting_ns:
                    before.append(took)
        if min(len(before), len(during)) >= LEAST_OF_EACH:
            found.before.extend(before)
            found.during.extend(during)
    return found


def _calls(view: View) -> dict[int, list[tuple[int, int, int]]]:
    """Collect begin, end and id of the calls that send, by partition."""
    found: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
    last_ns = max((op.t_end_ns or op.t_inv_ns for op in view.history.ops), default=0)
    for send in view.history.sends:
        if (op := view.call_of(send)) is not None:
            found[send.partition].add((op.t_inv_ns, last_ns if op.t_end_ns is None else op.t_end_ns, op.op_id))
    return {partition: sorted(times) for partition, times in found.items()}


def _leaders(view: View) -> dict[int, list[LeaderRow]]:
    found: dict[int, list[LeaderRow]] = defaultdict(list)
    for row in sorted(view.history.leaders, key=lambda row: row.t_ns):
        if row.partition is not None:
            found[row.partition].append(row)
    return found


def _leader(rows: list[LeaderRow] | tuple[()], begin_ns: int, end_ns: int) -> LeaderRow | None:
    """Return the leader between two times; None if it changes or is not known."""
    first = bisect_right(rows, begin_ns, key=lambda row: row.t_ns)
    last = bisect_right(rows, end_ns, key=lambda row: row.t_ns)
    return rows[first - 1] if first and first == last else None


def _others_felt(view: View, fault: FaultRow, begin_ns: int, end_ns: int) -> bool:
    return any(
        other is not fault
        and other.t_injected_ns is not None
        and other.t_injecting_ns < end_ns
        and (other.t_healed_ns is None or other.t_healed_ns > begin_ns)
        for other in view.history.faults
    )


def _settled_ns(view: View, fault: FaultRow) -> int:
    """Return the time from which on the effects of earlier faults are over."""
    ended = [other.t_healed_ns for other in view.history.faults if other is not fault and other.t_healed_ns is not None]
    return max((at_ns for at_ns in ended if at_ns <= fault.t_injecting_ns), default=0) + _SETTLED_NS


def p99_ms(times: list[Took]) -> float:
    return sorted(one.ms for one in times)[len(times) * 99 // 100]


def unmoved(view: View) -> Iterator[Anomaly]:
    both = compared(view)
    before_ms, during_ms = p99_ms(both.before), p99_ms(both.during)
    if during_ms < MOST_TIMES * before_ms or during_ms - before_ms < LEAST_MOVE_MS:
        return
    slowest = sorted(both.during, key=lambda one: -one.ms)
    targets = sorted({one.fault.target for one in slowest[:5]})
    yield Anomaly(
        f"p99 of partitions that others lead went from {before_ms:.1f} to {during_ms:.1f} ms while "
        f"{', '.join(targets)} was down",
        slowest[0].partition, tuple(one.op_id for one in slowest[:5]), slowest[0].t_inv_ns,
    )  # fmt: skip


def _enough(view: View) -> int:
    both = compared(view)
    return len(both.before) + len(both.during) if both.enough else 0


def _figures(view: View) -> dict[str, float]:
    both = compared(view)
    if not both.enough:
        return {}
    return {
        "p99 of others' partitions before, ms": round(p99_ms(both.before), 1),
        "while a node is down, ms": round(p99_ms(both.during), 1),
    }


CHECKERS = [
    Checker("P99", "clients of other nodes' partitions do not notice a node that failed", _enough, unmoved, _figures)
]
