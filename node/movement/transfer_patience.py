"""Patience with which a leadership is handed over that has to go: tries that take longer and longer.

The problem: proposals wait while a leadership is handed over, and under load the successor may lack a few entries at
each try. The rules: the first try stops proposals for a tenth of a second at most, each further one for twice as long,
up to a second; the next try comes only when the last one is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.raft import NodeId, RaftGroup

FIRST_PATIENCE_S, LONGEST_PATIENCE_S = 0.1, 1.0
"""Time in which a leadership that is handed over is to arrive; proposals wait meanwhile."""

RETRY_S = 1.2
"""Time between tries to hand a leadership over."""


@dataclass(slots=True)
class TransferPatience:
    """Tries to hand over the leadership of one group."""

    tried_at: float = -RETRY_S
    patience_s: float = FIRST_PATIENCE_S

    def hand_over(self, group: RaftGroup, candidates: frozenset[NodeId], now: float) -> NodeId | None:
        """Hand over to the candidate that has the most of the log. None: the last try is not over yet."""
        if now - self.tried_at < RETRY_S:
            return None
        target = min(candidates, key=lambda node: (-group.match_index(node), node))
        group.transfer(target, self.patience_s)
        self.tried_at = now
        self.patience_s = min(2 * self.patience_s, LONGEST_PATIENCE_S)
        return target
