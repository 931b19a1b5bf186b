"""Fate of an entry whose proposer lost the leadership before it knew.

Problem: a producer without numbers may neither repeat such an event nor take it for stored. But the log itself knows,
and a later leader can read it there. Why its word is final, whichever node leads meanwhile:
 - entries that a leader has applied are committed. An entry of that index with another term is therefore not the one
   that was proposed, and terms never fall along a log, so nothing of the older term can follow it;
 - a leader that is ready has applied the first entry of its own term. So an entry of an older term that would follow
   everything it has applied is in no node's future either.

Rule never broken: "stored" and "not stored" are said only of entries for which these two prove it. A trimmed entry is
not known any more, and one above the applied entries in the leader's own term is not known yet.
"""

from __future__ import annotations

from typing import Protocol

from node.partition.entries.entry_queries import AskFate, Fate


class ReadyLeader(Protocol):
    """The group at a leader that has applied the first entry of its term."""

    @property
    def term(self) -> int: ...
    @property
    def applied_index(self) -> int: ...
    @property
    def first_index(self) -> int: ...
    def entry(self, index: int) -> tuple[int, bytes]: ...


def fate(group: ReadyLeader, asked: AskFate) -> Fate:
    if asked.index < group.first_index:
        return Fate(None)
    if asked.index <= group.applied_index:
        return Fate(group.entry(asked.index)[0] == asked.term)
    if asked.term < group.term:
        return Fate(False)
    return Fate(None, pending=True)
