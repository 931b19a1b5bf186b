"""Checkers C10, C11 and REWIND: a claim has one owner, a group's position never goes back, no event is skipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import OK, CommitRow, OpRow, ReadRow

Share = tuple[str, int]
"""A group's share of a log: group and partition."""


def _commits(view: View) -> dict[Share, list[tuple[OpRow, CommitRow]]]:
    """Collect the commits of positions by share, without those of transactions that were rolled back."""
    found: dict[Share, list[tuple[OpRow, CommitRow]]] = defaultdict(list)
    for commit in view.history.commits:
        if not view.aborted(commit.txn):
            found[commit.group, commit.partition].append((view.ops[commit.op_id], commit))
    return found


def _certain(view: View, op: OpRow, commit: CommitRow) -> bool:
    return op.type == OK and (commit.txn is None or view.committed(commit.txn))


def _deliveries(view: View) -> dict[tuple[str, int, int], list[ReadRow]]:
    """Collect what groups read, by group, partition and generation, in the order of delivery."""
    found: dict[tuple[str, int, int], list[ReadRow]] = defaultdict(list)
    for read in view.history.reads:
        if read.group is not None and read.generation is not None:
            found[read.group, read.partition, read.generation].append(read)
    for reads in found.values():
        reads.sort(key=lambda read: (read.op_id, read.pos))
    return found


def one_owner(view: View) -> Iterator[Anomaly]:
    """Check that each claim has one member, and that a member whose claim was outbid commits nothing."""
    members: dict[tuple[str, int, int], dict[str, int]] = defaultdict(dict)
    for (group, partition, generation), reads in _deliveries(view).items():
        for read in reads:
            members[group, partition, generation].setdefault(read.reader, read.op_id)
    for (group, partition), commits in _commits(view).items():
        for _, commit in commits:
            members[group, partition, commit.generation].setdefault(commit.member, commit.op_id)
    for (group, partition, generation), owners in sorted(members.items()):
        if len(owners) > 1:
            named = " and ".join(sorted(owners))
            yield Anomaly(f"claim {generation} of {group} was {named}'s", partition, tuple(owners.values()))
    for (group, partition), commits in sorted(_commits(view).items()):
        yield from _outbid(view, group, partition, commits)


def _outbid(view: View, group: str, partition: int, commits: list[tuple[OpRow, CommitRow]]) -> Iterator[Anomaly]:
    certain = [(op, commit) for op, commit in commits if _certain(view, op, commit)]
    by_end = sorted(certain, key=lambda row: row[0].t_end_ns or 0)
    ended, highest = 0, None
    for op, commit in sorted(certain, key=lambda row: row[0].t_inv_ns):
        while ended < len(by_end) and (by_end[ended][0].t_end_ns or 0) < op.t_inv_ns:
            if highest is None or by_end[ended][1].generation > highest.generation:
                highest = by_end[ended][1]
            ended += 1
        if highest is not None and commit.generation < highest.generation:
            yield Anomaly(
                f"{commit.member} committed {commit.offset} of {group} by claim {commit.generation}, after "
                f"{highest.member} had committed by claim {highest.generation}",
                partition, (highest.op_id, commit.op_id), op.t_inv_ns,
            )  # fmt: skip


def progress(view: View) -> Iterator[Anomaly]:
    """Check that positions do not go back, and that a new owner skips nothing after the last committed position."""
    commits = _commits(view)
    for (group, partition), rows in sorted(commits.items()):
        yield from _falling(view, group, partition, rows)
    deliveries = _deliveries(view)
    for (group, partition, generation), reads in sorted(deliveries.items()):
        first = reads[0]
        began = view.ops[first.op_id]
        earlier = [
            (op, commit)
            for op, commit in commits.get((group, partition), [])
            if op.t_inv_ns < (began.t_end_ns or began.t_inv_ns) and commit.generation < generation
        ]
        offsets = view.visible[partition, first.isolation]
        done = max((commit.offset for _, commit in earlier), default=-1)
        done = max(done, _had_before(deliveries, group, partition, generation, first.reader))
        expected = next((offset for offset in offsets if offset > done), first.offset)
        if first.offset > expected:
            yield Anomaly(
                f"{first.reader} began to read for {group} at {first.offset} by claim {generation}; the group stood "
                f"at {expected} at most",
                partition, (*(commit.op_id for _, commit in earlier[-1:]), first.op_id),
            )  # fmt: skip


def _had_before(
    deliveries: dict[tuple[str, int, int], list[ReadRow]], group: str, partition: int, generation: int, reader: str
) -> int:
    """Return the last offset that the member had under its claim before; a renewed claim goes on after it."""
    before = [key for key in deliveries if key[:2] == (group, partition) and key[2] < generation]
    reads = deliveries[max(before)] if before else []
    return max((read.offset for read in reads), default=-1) if reads and reads[0].reader == reader else -1


def _falling(view: View, group: str, partition: int, rows: list[tuple[OpRow, CommitRow]]) -> Iterator[Anomaly]:
    """Find positions that go back within one claim or in later ones; commits of outbid claims are C10's."""
    certain = [(op, commit) for op, commit in rows if _certain(view, op, commit)]
    by_end = sorted(certain, key=lambda row: row[0].t_end_ns or 0)
    ended, highest = 0, None
    for op, commit in sorted(certain, key=lambda row: row[0].t_inv_ns):
        while ended < len(by_end) and (by_end[ended][0].t_end_ns or 0) < op.t_inv_ns:
            if highest is None or by_end[ended][1].offset > highest.offset:
                highest = by_end[ended][1]
            ended += 1
        if highest is not None and commit.offset < highest.offset and commit.generation >= highest.generation:
            yield Anomaly(
                f"{group} stood at {highest.offset}, and {commit.member} set it to {commit.offset}",
                partition, (highest.op_id, commit.op_id), op.t_inv_ns,
            )  # fmt: skip


def rewinds(view: View) -> Iterator[Anomaly]:
    """Check that a member gets the inputs of a rolled-back transaction again, in order, from the first one on."""
    taken: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in view.history.inputs:
        if view.aborted(row.txn):
            taken[row.txn].append((row.source_partition, row.source_offset))
    committed = {(row.source_partition, row.source_offset) for row in view.history.inputs if view.committed(row.txn)}
    for txn, places in sorted(taken.items()):
        missing = [place for place in places if place not in committed]
        later = [place for place in committed for first in missing[:1] if place[0] == first[0] and place > first]
        if missing and later:
            one = view.transactions[txn]
            yield Anomaly(
                f"{one.process} rolled {txn} back and never did {missing[0][0]}/{missing[0][1]} again, though it went "
                "on behind it",
                missing[0][0], (one.op_id,),
            )  # fmt: skip


def redelivered(view: View) -> dict[str, float]:
    """Count the events that a group got more than once. At-least-once delivery allows them."""
    seen: set[tuple[str | None, int, int]] = set()
    again = 0
    for read in view.history.reads:
        if read.group is not None:
            key = (read.group, read.partition, read.offset)
            again += key in seen
            seen.add(key)
    return {"delivered again": again} if seen else {}


def _group_reads(view: View) -> int:
    return sum(read.group is not None for read in view.history.reads) if view.history.commits else 0


def _aborted_inputs(view: View) -> int:
    return sum(view.aborted(row.txn) for row in view.history.inputs)


CHECKERS = [
    Checker("C10", "one owner for each claim; who was outbid commits nothing", _group_reads, one_owner),
    Checker("C11", "a group's position never goes back, and nothing is passed over", _group_reads, progress,
            redelivered),
    Checker("REWIND", "what a transaction had taken comes again when it is rolled back", _aborted_inputs, rewinds),
]  # fmt: skip
