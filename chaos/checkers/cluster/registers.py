"""Checker C22: each setting that the cluster reports is a linearizable register.

A register is linearizable if every read and write can have happened at one moment between its begin and its end. To
find such an order for any history is an unbounded search. Here every write has a value of its own, so each read tells
which write it saw. Then an order exists exactly if the *zones* of the values allow it (Gibbons and Korach, Testing
Shared Memories, 1997).

A value's zone lies between the first end and the last begin of the calls that wrote or read it. If the first end comes
first, the register certainly held the value all that time; two such zones cannot share a moment. Otherwise the value
can be put at any moment of its zone, but at that moment the register must not certainly hold another value.

The cluster reports leaders as it last heard of them, and that may be old. But a node that it names must have led.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import FAIL, INITIAL, LEADER_OF, OK, READ, WRITE, RegisterRow

CLOCKS_S = 1.0
"""Tolerance between clocks: the time at which a node began to lead is from the clock of its log."""

_S = 1e9


@dataclass
class Zone:
    """The calls that wrote or read one value."""

    value: int
    calls: list[RegisterRow] = field(default_factory=list)
    first_end: float = math.inf
    last_begin: float = -math.inf
    written_from: float = math.inf  # inf: no call wrote it

    def add(self, call: RegisterRow) -> None:
        self.calls.append(call)
        self.last_begin = max(self.last_begin, call.t_inv_ns)
        if call.type == OK and call.t_end_ns is not None:  # else it may take effect at any later time
            self.first_end = min(self.first_end, call.t_end_ns)
        if call.f == WRITE:
            self.written_from = call.t_inv_ns

    @property
    def stood(self) -> bool:
        return self.first_end < self.last_begin

    @property
    def proof(self) -> tuple[int, ...]:
        """Call that ended first and call that began last."""
        ended = [one for one in self.calls if one.t_end_ns == self.first_end]
        begun = [one for one in self.calls if one.t_inv_ns == self.last_begin]
        return tuple(dict.fromkeys(one.op_id for one in (*ended[:1], *begun[:1])))


def zones_of(calls: Sequence[RegisterRow]) -> list[Zone]:
    """Return the zones of the values that were certainly written, or were read."""
    found: dict[int, Zone] = {INITIAL: Zone(INITIAL, first_end=-math.inf, written_from=-math.inf)}
    read = {one.value for one in calls if one.f == READ and one.type == OK}
    for one in calls:
        counts = one.type == OK or (one.f == WRITE and one.type != FAIL and one.value in read)
        if counts and one.value is not None:
            found.setdefault(one.value, Zone(one.value)).add(one)
    return list(found.values())


def conflicts(zones: Sequence[Zone]) -> Iterator[tuple[str, tuple[Zone, ...]]]:
    """Find the zones that no order of the calls explains; if there are none, an order exists."""
    for zone in zones:
        if zone.written_from == math.inf:
            yield f"nobody wrote {zone.value}, and it was read", (zone,)
        elif any(one.t_end_ns is not None and one.t_end_ns < zone.written_from for one in zone.calls):
            yield f"{zone.value} was read before anybody began to write it", (zone,)
    stood = sorted((zone for zone in zones if zone.stood), key=lambda zone: zone.first_end)
    for place, zone in enumerate(stood):
        for other in stood[place + 1 :]:
            if other.first_end >= zone.last_begin:
                break
            yield f"{zone.value} was there before {other.value} was, and after it", (zone, other)
    begins = [zone.first_end for zone in stood]
    for zone in zones:
        if not zone.stood:
            for other in stood[: bisect_right(begins, zone.last_begin)]:
                if other.first_end < zone.last_begin and zone.first_end < other.last_begin:
                    yield f"{zone.value} was there and gone while {other.value} was there", (zone, other)


def linearizable(view: View) -> Iterator[Anomaly]:
    by_name: dict[str, list[RegisterRow]] = defaultdict(list)
    for row in view.history.registers:
        by_name[row.register].append(row)
    for name, calls in sorted(by_name.items()):
        if name.startswith(LEADER_OF):
            yield from _never_led(view, name, calls)
            continue
        for what, zones in conflicts(zones_of(calls)):
            ops = tuple(op for zone in zones for op in zone.proof)
            yield Anomaly(f"{name}: {what}", None, ops, int(max(zone.last_begin for zone in zones)))


def _never_led(view: View, name: str, calls: Sequence[RegisterRow]) -> Iterator[Anomaly]:
    partition = int(name.removeprefix(LEADER_OF))
    since: dict[int, int] = {}
    for row in view.history.leaders:
        if row.partition == partition:
            since[row.node] = min(row.t_ns, since.get(row.node, row.t_ns))
    told: set[int] = set()
    for one in calls:
        if one.type != OK or one.value is None or one.t_end_ns is None or one.value in told:
            continue
        if since.get(one.value, math.inf) > one.t_end_ns + CLOCKS_S * _S:
            told.add(one.value)
            yield Anomaly(
                f"{name}: node {one.value} was named, which had never led it", partition, (one.op_id,), one.t_inv_ns
            )


def _reads(view: View) -> int:
    return sum(row.f == READ and row.type == OK for row in view.history.registers)


LINEARIZABLE = Checker("C22", "what the cluster says of itself is linearizable", _reads, linearizable)
CHECKERS = [LINEARIZABLE]
