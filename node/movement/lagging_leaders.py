"""Leaders whose metadata lag behind: groups that move are led by others.

The problem: a leader drives its group's move by its own metadata. If these are in quarantine, or far behind, it never
sees what is wished or cancelled, says nothing, and the move keeps its slot. The rules: the metadata leader asks the
leaders of groups that move, each by the index at which the metadata said what is to be done; a leader that has not
applied it within ten seconds hands the group over, to a voter whose metadata are as far. Nothing is remembered but
times: a metadata leader that comes anew begins to wait anew.

Rejected: a leader that judges itself. Whether its metadata are old only the metadata leader knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.metadata import PartitionRecord
from cluster.raft import METADATA_GROUP, MultiRaft, NodeId, RaftGroup
from cluster.rpc import AwaitedMove

log = logging.getLogger("holdfast.moves")

ASK_AFTER_S = 10.0
"""Time for a leader to see what the metadata say of its group, and between times that it is asked."""

MAX_ASKED = 1000
"""Groups in one question; those that are left out are asked about in the next."""


class HandsOver(Protocol):
    async def hand_over(self, moves: Iterable[AwaitedMove], successors: Iterable[int]) -> list[int]: ...


class Peers(Protocol):
    """The network, as far as it tells who leads and is there, and asks them."""

    def leader_of(self, group: int) -> NodeId | None: ...
    def is_up(self, node: NodeId) -> bool: ...
    def client(self, node: NodeId) -> HandsOver: ...


@dataclass(slots=True)
class _Seen:
    """A move, as it was led when it was noted."""

    marks: object
    awaited: AwaitedMove
    ask_at: float


class LaggingLeaders:
    def __init__(self, multiraft: MultiRaft, peers: Peers) -> None:
        self._multiraft = multiraft
        self._peers = peers
        self._seen: dict[int, _Seen] = {}
        self._asking: dict[NodeId, asyncio.Task[None]] = {}

    @property
    def _metadata(self) -> RaftGroup:
        return self._multiraft.groups[METADATA_GROUP]

    def look(self, moving: Iterable[PartitionRecord], now: float) -> None:
        """Ask the leaders of groups that move, where it is time. A node that does not lead the metadata looks at none,
        and forgets what it saw."""
        overdue: dict[NodeId, list[AwaitedMove]] = {}
        seen = {}
        for record in moving:
            leader = self._peers.leader_of(record.group)
            if record.move is None or leader in (None, self._multiraft.node_id):
                continue
            assert leader is not None
            marks = (record.move.id, record.move.cancel_asked, leader)
            noted = self._seen.get(record.group)
            if noted is None or noted.marks != marks:
                leaving = 0 if record.move.remove is None else record.move.remove.node
                awaited = AwaitedMove(group=record.group, index=self._metadata.applied_index, leaving=leaving)
                noted = _Seen(marks, awaited, now + ASK_AFTER_S)
            seen[record.group] = noted
            asked = overdue.setdefault(leader, [])
            if now >= noted.ask_at and len(asked) < MAX_ASKED and leader not in self._asking:
                noted.ask_at = now + ASK_AFTER_S
                asked.append(noted.awaited)
        self._seen = seen
        for node, awaited_here in overdue.items():
            if awaited_here:
                self._begin_to_ask(node, awaited_here)

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()

    def _begin_to_ask(self, node: NodeId, moves: Sequence[AwaitedMove]) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(node, moves), name=f"leaderships of node {node}")
        self._asking[node] = task
        task.add_done_callback(lambda _: self._asking.pop(node, None))

    async def _ask(self, node: NodeId, moves: Sequence[AwaitedMove]) -> None:
        needed, metadata = max(move.index for move in moves), self._metadata
        near = (one for one in metadata.members if self._peers.is_up(one) and metadata.match_index(one) >= needed)
        successors = sorted({self._multiraft.node_id, *near} - {node})
        try:
            offered = await self._peers.client(node).hand_over(moves, successors)
        except ConnectionError as error:
            log.info("node %d was not asked whether it sees the moves of its groups: %s", node, error)
            return
        for group in offered:
            log.warning("group %d: node %d does not see its move, since its metadata lag: others lead it", group, node)


def hand_over_if_lagging(
    multiraft: MultiRaft, moves: Iterable[AwaitedMove], successors: Collection[NodeId]
) -> Sequence[int]:
    """Offer the leadership of groups to the successors, where the metadata here are not as far as awaited.

    Returns the groups of which it was offered. Any member may ask, with any index: it brings about no more than other
    leaders. One that is being handed over is left alone: each try keeps proposals waiting. Implements
    `cluster.rpc.AdminHost.hand_over`."""
    applied, able, offered = multiraft.groups[METADATA_GROUP].applied_index, frozenset(successors), []
    for move in moves:
        number, group = move.group, multiraft.groups.get(move.group)
        if move.index <= applied or number == METADATA_GROUP or group is None:
            continue
        if not group.is_leader or group.is_handing_over:
            continue
        if (target := _successor(group, able, move.leaving)) is not None:
            log.warning("group %d: leadership goes to node %d, since the metadata here lag", number, target)
            group.transfer(target)
            offered.append(number)
    return offered


def _successor(group: RaftGroup, nodes: frozenset[NodeId], leaving: NodeId) -> NodeId | None:
    """The voter among the nodes that has the most of the log; the one that leaves would give it back."""
    able = [node for node in group.voters if node in nodes and group.has_vote(node) and group.may_lead(node)]
    return max(able, key=lambda node: (node != leaving, group.match_index(node), -node), default=None)
