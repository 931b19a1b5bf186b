"""Checkers C1, C2, C3 and C7: each acknowledged event is in the log, once, as it was sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import OK, SendRow
from chaos.history.values import number_of, writer_of


def lost(view: View) -> Iterator[Anomaly]:
    """Find acknowledged events that no reader got and no disk has, and drains that ended too early.

    A drain through one node that ends before an acknowledged event, which drains through other nodes got, shows that
    this node's log differs."""
    stored = set(view.first_place)
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for value in stored:
        for send in view.sends_of.get(value, ())[:1]:
            numbers[writer_of(value), send.partition].append(number_of(value))
    for send in view.acknowledged:
        if send.msg_id not in stored and send.partition in view.drained_partitions:
            shape = _shape(number_of(send.msg_id), numbers[writer_of(send.msg_id), send.partition])
            yield Anomaly(
                f"{send.msg_id} was acknowledged at offset {send.offset} and is gone ({shape})",
                send.partition, _attempts(view, send),
            )  # fmt: skip
    yield from _short_drains(view)


def _shape(number: int, there: list[int]) -> str:
    """Name the place of a lost event among those of its writer: before all that are left, between them, or after."""
    if not there:
        return "nothing of its writer is left"
    if number < min(there):
        return "prefix"
    return "postfix" if number > max(there) else "middle"


def _short_drains(view: View) -> Iterator[Anomaly]:
    acknowledged: dict[int, SendRow] = {}
    for send in view.acknowledged:
        place = view.first_place.get(send.msg_id)
        if place is not None and (place[0] not in acknowledged or place[1] > _offset(view, acknowledged[place[0]])):
            acknowledged[place[0]] = send
    ends: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    proof: dict[tuple[str, int], int] = {}
    for read in view.drained:
        ends[read.reader, read.partition] = max(ends[read.reader, read.partition], read.offset)
        proof[read.reader, read.partition] = read.op_id
    for (reader, partition), end in sorted(ends.items()):
        last = acknowledged.get(partition)
        if last is not None and end < _offset(view, last):
            yield Anomaly(
                f"{reader} came to offset {end}; {last.msg_id} was acknowledged at {_offset(view, last)}",
                partition, (last.op_id, proof[reader, partition]),
            )  # fmt: skip


def _offset(view: View, send: SendRow) -> int:
    return view.first_place[send.msg_id][1]


def _attempts(view: View, send: SendRow) -> tuple[int, ...]:
    return tuple(one.op_id for one in view.sends_of[send.msg_id])


def two_values(view: View) -> Iterator[Anomaly]:
    readers: dict[tuple[int, int], set[int]] = {}
    for place, values in sorted(view.order.items()):
        if len(values) > 1:
            readers = readers or _who_read(view)
            named = ", ".join(sorted(values))
            yield Anomaly(
                f"offset {place[1]} of partition {place[0]} holds {named}", place[0], tuple(sorted(readers[place]))[:6]
            )


def _who_read(view: View) -> dict[tuple[int, int], set[int]]:
    found: dict[tuple[int, int], set[int]] = defaultdict(set)
    for read in view.history.reads:
        found[read.partition, read.offset].add(read.op_id)
    return found


def duplicates(view: View) -> Iterator[Anomaly]:
    """Find values with more than one place. Copies of rolled-back transactions do not count: Spark rewrites batches."""
    for value, places in sorted(view.places_of.items()):
        if len(places) > 1 and any(send.txn is not None for send in view.sends_of.get(value, ())):
            places = {place for place in places if not view.passed_over(place)}
        if len(places) > 1 and value in view.sends_of:
            named = ", ".join(f"{partition}/{offset}" for partition, offset in sorted(places))
            yield Anomaly(
                f"{value} stands in {len(places)} places: {named}",
                min(places)[0], tuple(send.op_id for send in view.sends_of[value]),
            )  # fmt: skip


def phantoms(view: View) -> Iterator[Anomaly]:
    told: set[tuple[str, int, int, str]] = set()
    for read in view.history.reads:
        sends = view.sends_of.get(read.msg_id)
        if not read.crc_ok:
            what = "its checksum is wrong"
        elif sends is None:
            what = "nobody ever sent it"
        elif all(send.partition != read.partition for send in sends):
            what = f"it was sent to partition {sends[0].partition}"
        else:
            continue
        key = (read.msg_id, read.partition, read.offset, what)
        if key not in told:
            told.add(key)
            yield Anomaly(f"{read.msg_id} at {read.partition}/{read.offset}: {what}", read.partition, (read.op_id,))


def _acknowledged_and_drained(view: View) -> int:
    return len(view.acknowledged) if view.drained else 0


CHECKERS = [
    Checker("C1", "no acknowledged event is lost", _acknowledged_and_drained, lost),
    Checker("C2", "one value per offset", lambda view: len(view.stored), two_values),
    Checker("C3", "no event twice", lambda view: len(view.stored), duplicates),
    Checker("C7", "nothing invented, nothing damaged", lambda view: len(view.history.reads), phantoms),
]


def acknowledged_count(view: View) -> int:
    return sum(send.outcome == OK for send in view.history.sends)
