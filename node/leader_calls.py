"""Questions to the leader of a Raft group, of a partition or a coordinator, on this node or another.

The rule: a question is asked of one node at a time, and only questions that may be repeated are (`node/peer_codec.py`
has no other). A group that the cluster has deleted answers `deleted`, and no call waits for it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from cluster.metadata import MetadataView
from cluster.rpc import PeerNetwork
from node.partition.api import Failed
from node.routing_events import RoutingEvents

RETRY_DELAY_S = 0.05
"""Delay between attempts while nothing announces a change: a busy leader is asked twenty times a second."""


class AskedReplica(Protocol):
    @property
    def is_leader(self) -> bool: ...
    async def ask(self, question: Any) -> Any: ...


class Replicas(Protocol):
    """Replicas of this node, and its knowledge of other leaders."""

    def replica(self, group: int) -> AskedReplica | None: ...
    def leader_of(self, group: int) -> int | None: ...


class LeaderCalls:
    def __init__(
        self, node_id: int, replicas: Replicas, view: MetadataView, network: PeerNetwork, routing_events: RoutingEvents
    ) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._view = view
        self._network = network
        self._routing_events = routing_events

    async def ask(self, group: int, question: Any) -> Any:
        """Ask the leader once. Returns its answer, or Failed."""
        replica = self._replicas.replica(group)
        if replica is not None and replica.is_leader:
            return await replica.ask(question)
        if self._view.was_deleted(group):
            return Failed("deleted", False, f"the log of group {group} was deleted")
        leader = self._replicas.leader_of(group)
        if leader is None or leader == self._node_id:
            return Failed("not_leader", True, f"no reachable node leads group {group} now; try again")
        return await self._network.client(leader).ask(group, question)

    async def ask_until(self, group: int, question: Any, within_s: float) -> Any:
        """Ask the leader, again through changes of leader, until an answer is final or time is up: then the last
        Failed, `unknown` if any attempt may have been carried out."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        in_doubt: Failed | None = None
        while True:
            answer = await self.ask(group, question)
            if not isinstance(answer, Failed) or not answer.retriable:
                return answer
            if answer.kind == "unknown":
                in_doubt = answer
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return in_doubt or answer
            await self._routing_events.wait(min(RETRY_DELAY_S, left_s))
