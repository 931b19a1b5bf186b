"""Requests that change which nodes a cluster has: a node is announced, is to leave, or stays after all.

The rule: what the replicated state can judge, it judges (`cluster/metadata/nodes`); here is only what the node asked
can see and the state cannot: whether the nodes that would be left are there. Nothing is awaited but the decision; a
node is emptied in its own time, and `holdfast node list` shows how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cluster.features import Features
from cluster.metadata import CommandProposer, InvalidRequest, MetadataView, Refusal, add_node, leave_node, stay_node
from cluster.metadata.metadata_pb2 import Command
from cluster.metadata.nodes.node_states import leaving
from cluster.metadata.types import CommandRefused
from cluster.raft import RaftGroup
from cluster.rpc import PeerNetwork
from node.admin.errors import AdminRequestFailed
from node.members.metadata_members import kept_by
from node.routing_events import RoutingEvents

VISIBLE_WITHIN_S = 5.0
"""Time for a decision to arrive at this node."""


class NodeChanges:
    def __init__(
        self,
        group: RaftGroup,
        proposer: CommandProposer,
        view: MetadataView,
        network: PeerNetwork,
        routing_events: RoutingEvents,
        features: Features,
    ) -> None:
        self._group = group
        self._proposer = proposer
        self._view = view
        self._network = network
        self._routing_events = routing_events
        self._features = features

    async def add(self, node: int) -> dict[str, Any]:
        """Announce a node. Raises AdminRequestFailed."""
        await self._execute(add_node, node)
        await self._see(lambda: node in self._view.announced or node in self._view.nodes)
        return {"node": node, "state": "announced"}

    async def remove(self, node: int, *, dry_run: bool) -> dict[str, Any]:
        """Let a node leave. `dry_run`: say whether it may, and how many replicas it keeps, and change nothing. Raises
        AdminRequestFailed."""
        if not self._network.is_cut_off:  # else the proposal says so
            self._require_majority(node)
        if dry_run:
            self._require_feature()
            self._may_leave(node)
        else:
            await self._execute(leave_node, node)
            await self._see(lambda: self.state_of(node) != "active")
        state = self.state_of(node) if dry_run else "leaving"
        return {"node": node, "state": state, "replicas": kept_by(self._view, node)}

    async def cancel(self, node: int) -> dict[str, Any]:
        """Take back that a node is to leave or to come. Raises AdminRequestFailed."""
        await self._execute(stay_node, node)
        await self._see(lambda: self.state_of(node) not in ("leaving", "announced"))
        return {"node": node, "state": self.state_of(node)}

    def state_of(self, node: int) -> str:
        view = self._view
        if node in view.nodes:
            return view.nodes[node].state
        if node in view.announced:
            return "announced"
        return "unknown" if view.removed(node) is None else "removed"

    def _require_majority(self, node: int) -> None:
        """Refuse to begin what would leave the metadata without a majority that is there."""
        voters = self._group.voters - {node}
        up = {one for one in voters if self._network.is_up(one)}
        if node in self._group.voters and voters and 2 * len(up) <= len(voters):
            away = ", ".join(str(one) for one in sorted(voters - up))
            raise AdminRequestFailed(
                "not-allowed",
                f"without node {node} the metadata would have no majority: node {away} does not answer. Start it first",
            )

    def _may_leave(self, node: int) -> None:
        """Refuse what the replicated state would refuse, as far as this node has heard."""
        try:
            leaving(self._view, node)
        except CommandRefused as refused:
            raise AdminRequestFailed(refused.rejected.code, refused.rejected.message) from refused

    def _require_feature(self) -> None:
        if not self._features.active("nodes"):
            raise AdminRequestFailed(
                "not-allowed",
                f"the cluster runs version {self._features.version}, in which no node comes or goes: install the "
                "newest release on all nodes, then `holdfast cluster finalize`",
            )

    async def _execute(self, command: Callable[[int], Command], node: int) -> None:
        self._require_feature()
        try:
            result = await self._proposer.execute(command(node))
        except InvalidRequest as error:
            raise AdminRequestFailed("invalid-argument", str(error)) from error
        if isinstance(result, Refusal):
            raise AdminRequestFailed(result.code, result.message)

    async def _see(self, state: Callable[[], bool]) -> None:
        await self._routing_events.until(state, VISIBLE_WITHIN_S)


def requests(changes: NodeChanges, number: Callable[[Mapping[str, Any]], int]) -> dict[str, Any]:
    """The requests by operation. `number` reads the node out of a request's arguments."""
    return {
        "node.add": lambda args: changes.add(number(args)),
        "node.remove": lambda args: changes.remove(number(args), dry_run=bool(args.get("dry_run"))),
        "node.cancel": lambda args: changes.cancel(number(args)),
    }
