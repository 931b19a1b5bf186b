"""Hints on the leaders of groups that this node does not host.

The problem: a gateway must find a partition's leader without asking around. Every node tells on its peer streams what
it knows of the groups it hosts: changes at once, everything each second. The rule: a hint of a lower term never
replaces one of a higher term (frames of different nodes overtake each other), and "no leader" (0) never replaces a
leader of the same term. A hint may still be stale; it only says which node to ask first. Rejected: asking the metadata
group, which does not know leaders, and would be written to at each election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cluster.rpc.options import MAX_HINTS
from cluster.rpc.rpc_pb2 import LeaderHints

NOBODY = 0


class LeaderHintTable:
    def __init__(self, on_change: Callable[[int], None] | None = None, limit: int = MAX_HINTS) -> None:
        self._limit = limit
        self._known: dict[int, tuple[int, int]] = {}  # group -> (term, leader)
        self._own: set[int] = set()  # groups this node speaks about
        self._changed: set[int] = set()  # of those, not yet told
        self._on_change = on_change

    def set_own(self, group: int, term: int, leader: int | None) -> None:
        """Take the leader that the local replica of `group` names."""
        self._own.add(group)
        self._known.setdefault(group, (-1, NOBODY))  # own groups are remembered beyond any limit
        if self._learn(group, term, leader or NOBODY):
            self._changed.add(group)

    def forget(self, group: int) -> None:
        """The group is gone: speak of it no more."""
        self.leave(group)
        self._known.pop(group, None)

    def leave(self, group: int) -> None:
        """The group has no replica here any more: speak of it no more, others tell us."""
        self._own.discard(group)
        self._changed.discard(group)

    def merge(self, hints: LeaderHints) -> None:
        groups, terms, leaders = hints.groups, hints.terms, hints.leaders
        if not len(groups) == len(terms) == len(leaders):
            return  # a sender's defect; hints are advice, and the next second brings others
        for group, term, leader in zip(groups, terms, leaders, strict=True):
            self._learn(group, term, leader)

    def leader_of(self, group: int) -> int | None:
        return self._known.get(group, (0, NOBODY))[1] or None

    def take_changed(self) -> LeaderHints | None:
        changed, self._changed = self._changed, set()
        return self._encode(changed) if changed else None

    def all_own(self) -> LeaderHints | None:
        return self._encode(self._own) if self._own else None

    def _encode(self, groups: Iterable[int]) -> LeaderHints:
        out = LeaderHints()
        for group in groups:
            term, leader = self._known[group]
            out.groups.append(group)
            out.terms.append(term)
            out.leaders.append(leader)
        return out

    def _learn(self, group: int, term: int, leader: int) -> bool:
        known = self._known.get(group)
        if known is None:
            if len(self._known) >= self._limit:
                return False
        elif term < known[0] or (term == known[0] and (leader == NOBODY or leader == known[1])):
            return False
        self._known[group] = (term, leader)
        if self._on_change is not None and (known is None or known[1] != leader):
            self._on_change(group)
        return True
