"""Checkers C4, C5 and C6: sequence numbers of idempotent producers, fencing, and the order of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import OK, SendRow


def _numbered(view: View) -> dict[tuple[str, int], list[tuple[int, SendRow]]]:
    """Collect the stored events of idempotent producers, by producer and partition, in the order of the log.

    Each row is an offset and one attempt to send the event, if possible one with a number."""
    found: dict[tuple[str, int], list[tuple[int, SendRow]]] = defaultdict(list)
    for value, (partition, offset) in view.first_place.items():
        sends = view.sends_of.get(value)
        if sends and sends[0].epoch is not None:
            best = next((send for send in sends if send.seq is not None), sends[0])
            found[best.producer, partition].append((offset, best))
    for rows in found.values():
        rows.sort(key=lambda row: row[0])
    return found


def sequences(view: View) -> Iterator[Anomaly]:
    """Check that the numbers of an epoch are in order without a gap, and that each belongs to one event."""
    for (producer, partition), rows in sorted(_numbered(view).items()):
        last: dict[int, SendRow] = {}
        for offset, send in rows:
            assert send.epoch is not None
            before = last.get(send.epoch)
            if send.seq is not None and before is not None and before.seq is not None and send.seq != before.seq + 1:
                yield Anomaly(
                    f"{producer}: behind number {before.seq} ({before.msg_id}) stands {send.seq} ({send.msg_id}) "
                    f"at offset {offset}",
                    partition, (before.op_id, send.op_id),
                )  # fmt: skip
            last[send.epoch] = send
    yield from _one_number_two_places(view)


def _one_number_two_places(view: View) -> Iterator[Anomaly]:
    first: dict[tuple[str, int | None, int | None, int], SendRow] = {}
    for send in view.history.sends:
        if send.outcome != OK or send.seq is None or send.offset is None:
            continue
        one = first.setdefault((send.producer, send.epoch, send.seq, send.partition), send)
        if one.msg_id != send.msg_id:
            yield Anomaly(
                f"{send.producer}: number {send.seq} of epoch {send.epoch} was acknowledged as {one.msg_id} and as "
                f"{send.msg_id}",
                send.partition, (one.op_id, send.op_id),
            )  # fmt: skip


def fencing(view: View) -> Iterator[Anomaly]:
    """Check that no event of an older epoch comes after one of a newer epoch."""
    for (producer, partition), rows in sorted(_numbered(view).items()):
        highest: SendRow | None = None
        for offset, send in rows:
            assert send.epoch is not None
            if highest is not None and highest.epoch is not None and send.epoch < highest.epoch:
                yield Anomaly(
                    f"{producer}: {send.msg_id} of epoch {send.epoch} at offset {offset} stands behind "
                    f"{highest.msg_id} of epoch {highest.epoch}",
                    partition, (highest.op_id, send.op_id),
                )  # fmt: skip
            elif highest is None or highest.epoch is None or send.epoch > highest.epoch:
                highest = send


def real_time(view: View) -> Iterator[Anomaly]:
    """Check that an event that was sent after another had been acknowledged has a higher offset."""
    by_partition: dict[int, list[tuple[int, int, SendRow]]] = defaultdict(list)
    for send in view.history.sends:
        op = view.ops.get(send.op_id)
        place = view.first_place.get(send.msg_id)
        offset = send.offset if send.offset is not None else place[1] if place is not None else None
        certain = send.outcome == OK and len(view.sends_of[send.msg_id]) == 1  # else an earlier attempt may be stored
        if certain and op is not None and op.t_end_ns is not None and offset is not None:
            by_partition[send.partition].append((op.t_inv_ns, offset, send))
    for partition, rows in sorted(by_partition.items()):
        yield from _out_of_order(view, partition, rows)


def _out_of_order(view: View, partition: int, rows: list[tuple[int, int, SendRow]]) -> Iterator[Anomaly]:
    by_begin = sorted(rows, key=lambda row: row[0])
    by_end = sorted(rows, key=lambda row: view.ops[row[2].op_id].t_end_ns or 0)
    ended = 0
    highest: tuple[int, int, SendRow] | None = None
    for begun_ns, offset, send in by_begin:
        while ended < len(by_end) and (view.ops[by_end[ended][2].op_id].t_end_ns or 0) < begun_ns:
            if highest is None or by_end[ended][1] > highest[1]:
                highest = by_end[ended]
            ended += 1
        if highest is not None and offset <= highest[1] and highest[2].op_id != send.op_id:
            yield Anomaly(
                f"{send.msg_id} was sent after {highest[2].msg_id} had been acknowledged at offset {highest[1]}, and "
                f"stands at {offset}",
                partition, (highest[2].op_id, send.op_id), begun_ns,
            )  # fmt: skip


def _with_numbers(view: View) -> int:
    return sum(send.epoch is not None and send.outcome == OK for send in view.history.sends)


def _epochs(view: View) -> int:
    """Count the producers that used more than one epoch in a partition."""
    epochs: dict[tuple[str, int], set[int]] = defaultdict(set)
    for send in view.history.sends:
        if send.epoch is not None:
            epochs[send.producer, send.partition].add(send.epoch)
    return sum(len(found) > 1 for found in epochs.values())


def _plain_acknowledged(view: View) -> int:
    return sum(send.outcome == OK for send in view.history.sends)


CHECKERS = [
    Checker("C4", "numbers of idempotent producers stand in order, without gap", _with_numbers, sequences),
    Checker("C5", "a producer of an old epoch is fenced", _epochs, fencing),
    Checker("C6", "order of the log follows the order of time", _plain_acknowledged, real_time),
]
