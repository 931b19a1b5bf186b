"""Limit of the bytes of entries that wait on the way to a peer, over all groups of a node.

The problem: each group bounds what it sends to a follower, and a node leads hundreds. When a peer comes back, all of
them have something for it in the same turn. That is more than the stream to it may hold, and a stream that holds too
much is given up as one of a peer that takes nothing; when it is dialled anew, the same comes again.

The rule: no group sends entries to a peer while so many bytes wait for it, those of this turn included. It does with
its next heartbeat, or when the peer has answered it.

Rejected: to tell the groups when there is room. Hundreds would be woken for what a few of them fill.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.raft.interfaces import NodeId

MAX_WAITING_BYTES = 24 << 20
"""Limit for one peer. With what comes on top, one append or one large entry (32 MiB), it is still below what a stream
may hold (64 MiB). A heartbeat later it is empty on any network that a cluster would be run on."""


def _nothing(_: NodeId) -> int:
    """Waiting bytes of a transport that does not say."""
    return 0


class InflightLimit:
    def __init__(self) -> None:
        self.waiting_bytes: Callable[[NodeId], int] = _nothing
        """Returns the bytes that the transport has not sent to a peer yet."""
        self._this_turn: dict[NodeId, int] = {}

    def is_there(self, node: NodeId) -> bool:
        return self._this_turn.get(node, 0) + self.waiting_bytes(node) < MAX_WAITING_BYTES

    def use(self, node: NodeId, size: int) -> None:
        self._this_turn[node] = self._this_turn.get(node, 0) + size

    def turn_ended(self) -> None:
        """Begin anew: the transport has the messages of the turn."""
        self._this_turn.clear()
