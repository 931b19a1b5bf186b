"""The first start of a cluster: the nodes that may vote without a memory.

The problem: a node with an empty directory is either a member of a cluster that was never there, and must vote for one
to begin, or one that has lost its data, and must not. From its own directory it cannot tell. The rule: it votes only
when *every* configured node has told it, on a connection to this very process, that it has no memory either. Then
nothing that anybody could have forgotten has ever counted. Otherwise it follows the others without a vote, until their
leader says that it may (`cluster/raft/elections/vote_recovery.py`).

So a cluster begins when all its nodes have met, once. Rejected: a majority of them. Two of three nodes that have lost
their data would begin a new, empty cluster beside the one that has them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

log = logging.getLogger("holdfast.node")


class BootstrappedGroup(Protocol):
    @property
    def remembers_nothing(self) -> bool: ...
    def vote_from_the_beginning(self) -> None: ...


class Bootstrap:
    def __init__(self, group: BootstrappedGroup, peers: Collection[int]) -> None:
        self._group = group
        self._peers = frozenset(peers)
        self._new: set[int] = set()
        self._done = not group.remembers_nothing
        self._look()

    def heard(self, node: int, *, is_new: bool) -> None:
        """A peer was let in, and says whether it has a memory."""
        (self._new.add if is_new else self._new.discard)(node)
        self._look()

    def _look(self) -> None:
        if not self._done and self._new >= self._peers:
            self._done = True
            if self._peers:
                log.info("all nodes are new: a cluster begins")
            self._group.vote_from_the_beginning()

    def waits_for(self) -> list[int]:
        """Nodes that have not been heard of as new, while this one has no memory."""
        return [] if self._done or not self._group.remembers_nothing else sorted(self._peers - self._new)
