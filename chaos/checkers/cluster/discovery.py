"""Checkers REG and ZK: each node is registered in ZooKeeper once, and clients do not notice ZooKeeper's faults."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import OK, OpRow, RegistrationRow

NOTICED_S = 2.0
"""Waits below this do not count: the machine may cause them."""
TIMES_THE_PEACE = 2.0
"""Longest wait that is allowed, as a multiple of the longest wait in peace."""
AFTER_S = 2.0
"""Time after a fault of ZooKeeper in which its effects may still show."""
RECOVERY_S = 5.0
"""Time after any other fault whose calls do not count, since they tell nothing about ZooKeeper."""

REPLACING = ("F9 ", "F10 ", "F11 ", "F12 ")
"""Faults after which an operator may let a node in with an empty disk: once, with another data directory."""

_S = 1e9


# -- REG


def registered_once(view: View) -> Iterator[Anomaly]:
    """Check that each node is registered by one data directory, never again by a replaced session, and at the end."""
    may_be_replaced = any(fault.kind.startswith(REPLACING) for fault in view.history.faults)
    by_node: dict[int, list[RegistrationRow]] = defaultdict(list)
    by_look: dict[int, list[RegistrationRow]] = defaultdict(list)
    for row in sorted(view.history.registrations, key=lambda row: (row.look, row.node)):
        by_node[row.node].append(row)
        by_look[row.look].append(row)
    for node, rows in sorted(by_node.items()):
        yield from _of_one_node(node, rows, may_be_replaced)
    name_of: dict[str, int] = {}
    for row in view.history.registrations:
        other = name_of.setdefault(row.token, row.node)
        if other != row.node:
            what = f"one data directory is registered as node {other} and as node {row.node}"
            yield Anomaly(what, None, (), row.t_ns)
            break
    last = by_look[max(by_look)] if by_look else []
    for node in sorted(set(by_node) - {row.node for row in last}):
        yield Anomaly(f"node {node} was not registered when the run ended", None, (), by_node[node][-1].t_ns)


def _of_one_node(node: int, rows: list[RegistrationRow], may_be_replaced: bool) -> Iterator[Anomaly]:
    replaced: set[int] = set()
    given_up: set[str] = set()
    before = rows[0]
    for row in rows[1:]:
        if row.token != before.token and may_be_replaced and row.token not in given_up:
            given_up.add(before.token)
        elif row.token != before.token:
            yield Anomaly(
                f"node {node} was registered by one data directory ({before.rpc}), then by another ({row.rpc})",
                None, (), row.t_ns,
            )  # fmt: skip
        elif row.session != before.session:
            replaced.add(before.session)
            if row.session in replaced:
                yield Anomaly(
                    f"node {node} was registered again by session {row.session:#x}, which another one had replaced",
                    None, (), row.t_ns,
                )  # fmt: skip
        before = row


# -- ZK


class Wait(NamedTuple):
    """Time from a call to the next answer that any caller got from the same partition or node."""

    whom: str
    t_inv_ns: int
    seconds: float
    partition: int | None
    op_id: int


class Waits(NamedTuple):
    peace: list[Wait]
    struck: list[Wait]  # while only ZooKeeper had a fault

    @property
    def bound_s(self) -> float:
        return max(NOTICED_S, TIMES_THE_PEACE * max((one.seconds for one in self.peace), default=0.0))


_known: WeakKeyDictionary[View, Waits] = WeakKeyDictionary()


def _waits(view: View) -> Waits:
    if view not in _known:
        _known[view] = _find_waits(view)
    return _known[view]


def _find_waits(view: View) -> Waits:
    """Measure the waits of senders to a partition and of clients that ask one certain node."""
    calls: dict[str, list[tuple[OpRow, int | None]]] = defaultdict(list)
    for send in view.history.sends:
        if (op := view.call_of(send)) is not None:
            calls[f"partition {send.partition}"].append((op, send.partition))
    for op in view.history.ops:
        if op.f == "latest":
            calls[op.process].append((op, None))
    last_ns = max((op.t_end_ns or op.t_inv_ns for op in view.history.ops), default=0)
    struck, others = _windows(view, last_ns)
    found = Waits([], [])
    for whom, asked in sorted(calls.items()):
        answered = sorted(op.t_end_ns for op, _ in asked if op.type == OK and op.t_end_ns is not None)
        for op, partition in asked:
            place = bisect_left(answered, op.t_inv_ns)
            until_ns = answered[place] if place < len(answered) else op.t_end_ns or last_ns
            wait = Wait(whom, op.t_inv_ns, (until_ns - op.t_inv_ns) / _S, partition, op.op_id)
            if not _meets(op.t_inv_ns, until_ns, others):
                (found.struck if _meets(op.t_inv_ns, until_ns, struck) else found.peace).append(wait)
    return found


def _windows(view: View, last_ns: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the windows of ZooKeeper's faults and those of all others, each with the time of its effects."""
    struck: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    for fault in view.history.faults:
        if fault.t_injected_ns is None:
            continue
        of_zookeeper = fault.kind.startswith("F14 ")
        end_ns = (fault.t_healed_ns or last_ns) + int((AFTER_S if of_zookeeper else RECOVERY_S) * _S)
        (struck if of_zookeeper else others).append((fault.t_injecting_ns, end_ns))
    return struck, others


def _meets(from_ns: int, until_ns: int, windows: list[tuple[int, int]]) -> bool:
    return any(from_ns <= end_ns and begin_ns <= until_ns for begin_ns, end_ns in windows)


def unnoticed(view: View) -> Iterator[Anomaly]:
    """Find partitions and nodes whose longest wait during ZooKeeper's faults is beyond the bound."""
    waits = _waits(view)
    longest: dict[str, Wait] = {}
    for wait in waits.struck:
        if wait.seconds > longest.get(wait.whom, wait).seconds or wait.whom not in longest:
            longest[wait.whom] = wait
    for whom, wait in sorted(longest.items()):
        if wait.seconds > waits.bound_s:
            yield Anomaly(
                f"{whom} gave nobody an answer for {wait.seconds:.1f} s while only ZooKeeper was struck; in peace the "
                f"longest wait was {max(one.seconds for one in waits.peace):.2f} s",
                wait.partition, (wait.op_id,), wait.t_inv_ns,
            )  # fmt: skip


def _comparable(view: View) -> int:
    waits = _waits(view)
    return len(waits.struck) if waits.peace else 0


def _figures(view: View) -> dict[str, float]:
    waits = _waits(view)
    if not waits.struck or not waits.peace:
        return {}
    return {
        "longest wait in peace, s": round(max(one.seconds for one in waits.peace), 3),
        "longest wait while ZooKeeper was struck, s": round(max(one.seconds for one in waits.struck), 3),
    }


REGISTERED = Checker(
    "REG", "each node is registered in ZooKeeper once", lambda view: len(view.history.registrations), registered_once
)
CHECKERS = [REGISTERED, Checker("ZK", "clients notice nothing of ZooKeeper", _comparable, unnoticed, _figures)]
