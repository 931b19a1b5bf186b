"""Retention: a pure function of the offset index and the time plans the events to forget.

The problem: replicas must forget the same events at the same point of the log, but only the leader's clock may decide.
The rule: the leader plans, the plan is replicated as a command, every replica applies it. The leader plans nothing that
a member of the group still lacks, since it could not catch up from the log any more.

By age everything older goes, also the last event. By bytes the newest batch always stays, so that a log whose limit is
smaller than its batches is not emptied before anyone could read it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.raft import Committed, Outcome, RaftError
from node.partition.offset_index import IndexRow, OffsetIndex
from node.partition.partition_commands import Trim
from node.partition.raft_group import GroupLike
from node.partition.state_machine import LogState, PartitionMachine, Trimmed

log = logging.getLogger(__name__)


def plan_trim(
    state: LogState,
    index: OffsetIndex,
    *,
    now_ms: int,
    retention_ms: int | None,
    retention_bytes: int | None,
    safe_index: int,
    stable_offset: int,
) -> Trim | None:
    """The command that forgets events that are too old or too many, in entries up to `safe_index` and below the last
    stable offset; None if there are none."""
    start, end = state.start_offset, state.next_offset
    keep_after_ms = -1 if retention_ms is None else now_ms - retention_ms
    keep_from_byte = -1 if retention_bytes is None else state.total_bytes - retention_bytes
    newest = index.row_at(end - 1) if end > start else None
    if newest is None:
        return None
    keep_from_byte = min(keep_from_byte, newest.bytes_before)

    def kept(row: IndexRow) -> bool:
        wanted = row.timestamp_ms > keep_after_ms and row.bytes_before >= keep_from_byte
        return wanted or row.entry_index > safe_index or row.base_offset >= stable_offset

    first = index.first_row(start, end, kept)
    if first is None:
        return Trim(end, newest.entry_index, state.total_bytes)
    first = _first_of_its_entry(index, first, start)
    if first.base_offset <= start:
        return None
    return Trim(first.base_offset, min(first.entry_index - 1, safe_index), first.bytes_before)


def _first_of_its_entry(index: OffsetIndex, row: IndexRow, start: int) -> IndexRow:
    """The first row of the same entry: an entry goes whole, or it stays."""
    while row.base_offset > start:
        before = index.row_at(row.base_offset - 1)
        if before is None or before.entry_index != row.entry_index:
            break
        row = before
    return row


class Trimmer:
    """The leader's part: one planned trim at a time."""

    def __init__(self, partition: str, machine: Callable[[], PartitionMachine], index: OffsetIndex) -> None:
        self._partition, self._machine, self._index = partition, machine, index
        self._under_way = False

    def not_leading(self) -> None:
        self._under_way = False

    def enforce(
        self, group: GroupLike, now_ms: int, retention_ms: int | None, retention_bytes: int | None
    ) -> Trim | None:
        """Propose to forget events that are too old or too many, if there are any."""
        if self._under_way or (retention_ms is None and retention_bytes is None):
            return None
        machine = self._machine()
        plan = plan_trim(
            machine.state,
            self._index,
            now_ms=now_ms,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            safe_index=group.safe_trim_index(),
            stable_offset=machine.stable_offset,
        )
        if plan is None:
            return None
        try:
            self._under_way = True
            group.propose(plan.encode(), self._resolved)
        except RaftError as error:  # NotLeader or Overloaded: the next call, here or elsewhere, plans again
            self._under_way = False
            log.debug("partition %s: a trim was not proposed: %s", self._partition, error)
            return None
        return plan

    def _resolved(self, outcome: Outcome) -> None:
        self._under_way = False
        if isinstance(outcome, Committed) and not isinstance(outcome.result, Trimmed):
            log.warning("partition %s: a planned trim had no effect: %s", self._partition, outcome.result)
