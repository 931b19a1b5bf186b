"""Finds the starts of nodes that are gone, so that their open transactions can be aborted.

The problem: committed readers wait for transactions that a dead node has left open, and a node that is only slow must
not lose what its clients are doing. The rules:
 - a start is gone when a later one of its node is registered, or another directory took its place; or when this leader
   and a majority of the coordinator's members have been out of touch with the node for a while;
 - that only makes the leader propose: applying the command decides what aborts, and a holder that is alive after all
   finds its pair over and is told so;
 - time in which a node has just started, or stood still itself, says nothing about the others
   (`raft_transport/minority_detection.py`).

Rejected: leases that each node renews at each coordinator. The heartbeats of the streams between nodes say the same.
Rejected: this leader's word alone. Where just its link to the node is cut, the node can go on through the next leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Protocol

from node.partition.raft_group import GroupLike
from node.transaction_coordinator.coordinator_commands import NodeStart
from node.transaction_coordinator.coordinator_queries import AskLost, Lost

GONE_AFTER_S = 1.5
"""Seconds out of touch after which a node is gone. A killed process is missed at once, one that stands still after 0.8
s of silence: so it may do that for two seconds."""

MISSED_AFTER_S = 1.0
"""Seconds out of touch for a member that is asked: longer than it takes to dial a stream again, and no longer than a
dead node has been missed everywhere when its coordinator's leader asks."""

ANSWER_WITHIN_S = 0.5
"""Time for the other members to answer. The next tick asks the silent ones again."""


class Sightings(Protocol):
    """The other nodes, as this one sees them."""

    @property
    def node_id(self) -> int: ...

    def is_succeeded(self, start: NodeStart) -> bool:
        """Tell whether a later start of the node, or other data of it, is registered."""
        ...

    def lost_s(self, node: int) -> float:
        """Seconds that this node has been out of touch with that one; 0: it is in touch."""
        ...

    async def ask_member(self, member: int, group: int, question: Any) -> Any:
        """Ask the replica of another member. Returns its answer, or Failed."""
        ...


class GoneNodes:
    def __init__(self, group_id: int, sightings: Sightings) -> None:
        self._group_id = group_id
        self._sightings = sightings
        self._asking: dict[int, asyncio.Task[bool]] = {}  # by the node that the members are asked about

    def answer(self, question: AskLost) -> Lost:
        return Lost(self._sightings.lost_s(question.node) >= MISSED_AFTER_S)

    def is_lost(self, node: int) -> bool:
        """Tell whether this node is out of touch with that one now."""
        return self._sightings.lost_s(node) > 0.0

    async def among(self, starts: Collection[NodeStart], group: GroupLike) -> set[NodeStart]:
        """Return the starts that are gone."""
        gone = {start for start in starts if self._sightings.is_succeeded(start)}
        lost = sorted({start.node for start in starts if self._sightings.lost_s(start.node) >= GONE_AFTER_S})
        agreed = await asyncio.gather(*(self._is_agreed(node, group) for node in lost))
        silent = {node for node, is_agreed in zip(lost, agreed, strict=True) if is_agreed}
        return gone | {start for start in starts if start.node in silent}

    async def _is_agreed(self, node: int, group: GroupLike) -> bool:
        """Ask the members, once for all callers of that moment."""
        if node not in self._asking:
            asking = self._asking[node] = asyncio.ensure_future(self._ask_members(node, group))
            asking.add_done_callback(lambda _: self._asking.pop(node))
        return await asyncio.shield(self._asking[node])

    async def _ask_members(self, node: int, group: GroupLike) -> bool:
        """Tell whether a majority of the group's members is out of touch with the node."""
        others = [member for member in group.members if member not in (node, self._sightings.node_id)]
        asked = [member for member in others if not self.is_lost(member)]
        agreeing = 1 + sum(await asyncio.gather(*(self._agrees(member, node) for member in asked)))
        return agreeing > len(group.members) // 2

    async def _agrees(self, member: int, node: int) -> bool:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = await self._sightings.ask_member(member, self._group_id, AskLost(node))
        except TimeoutError:
            return False
        return isinstance(answer, Lost) and answer.is_lost
