"""Members of the metadata group: its leader gives nodes that come a place there, and takes it from those that leave.

The rules: what is wished is a function of the leader's own metadata and of what it hears (`metadata_voters.py`); how it
comes about, Raft decides (`cluster/raft/membership/changes.py`); and a node is removed only when it has no vote and
keeps no replica. Nothing here is remembered: the next leader goes on from what the log and the metadata say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from cluster.features import Features
from cluster.metadata import CommandProposer, MetadataView, NodeRecord, Refusal, remove_node
from cluster.metadata.nodes.node_states import keeps
from cluster.raft import ChangeRefused, NotLeader, RaftGroup
from cluster.raft.membership.changes import AppendConfiguration, HandLeadershipOver
from cluster.raft.membership.configuration import Configuration
from cluster.rpc import PeerNetwork
from node.members.metadata_voters import KnownCluster, Standing, metadata_wish
from node.movement.transfer_patience import TransferPatience

log = logging.getLogger("holdfast.node")

TICK_S = 0.5
"""Time between looks when nothing tells that there is something to do."""

AWAY_S = 60.0
"""A voter that was not heard for so long gives its vote to another node, if one is there."""


class MetadataMembers:
    def __init__(
        self,
        node_id: int,
        group: RaftGroup,
        view: MetadataView,
        network: PeerNetwork,
        proposer: CommandProposer,
        features: Features,
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._node_id = node_id
        self._group = group
        self._view = view
        self._network = network
        self._proposer = proposer
        self._features = features
        self._on_failed = on_failed
        self._wake = asyncio.Event()
        self._patience, self._handing_over_in = TransferPatience(), 0

    async def run(self) -> None:
        """Lead the group towards what is wished, while this node leads it, until cancelled."""
        try:
            while True:
                self._wake.clear()
                if self._group.is_leader and self._features.active("nodes"):
                    self._step()
                    await self._remove_who_left()
                await self._pause()
        except Exception as error:  # noqa: BLE001  without this nobody joins or leaves, and nobody knows why
            self._on_failed(error)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(TICK_S):
                await self._wake.wait()
        except TimeoutError:
            return

    # -- the group

    def _step(self) -> None:
        group, latest = self._group, self._group.configuration
        if latest is None:
            return
        wish = metadata_wish(latest, self._cluster())
        try:
            step = group.next_step(wish)
            if isinstance(step, AppendConfiguration):
                log.info("metadata group: %s", step.configuration)
                group.propose_configuration(step.configuration, self._appended)
            elif isinstance(step, HandLeadershipOver):
                self._hand_over(latest, step)
        except (NotLeader, ChangeRefused) as error:
            log.debug("metadata group: no step now: %s", error)

    def _hand_over(self, latest: Configuration, step: HandLeadershipOver) -> None:
        if latest.version != self._handing_over_in:  # another change: it begins with short tries
            self._handing_over_in, self._patience = latest.version, TransferPatience()
        target = self._patience.hand_over(self._group, step.candidates, asyncio.get_running_loop().time())
        if target is not None:
            log.info("metadata group: leadership goes to node %d, since this replica is to vote no more", target)

    def _appended(self, _: Any) -> None:
        self._wake.set()

    def _cluster(self) -> KnownCluster:
        view = self._view
        nodes = {node: self._standing(node, record) for node, record in view.nodes.items()}
        return KnownCluster(self._node_id, nodes, view.tombstones, len(view.announced), self._group.near)

    def _standing(self, node: int, record: NodeRecord) -> Standing:
        is_away = node != self._node_id and self._network.lost_s(node) >= AWAY_S
        return Standing(record.birth, record.rack, record.state == "leaving", is_away)

    # -- the nodes

    async def _remove_who_left(self) -> None:
        for node in [node for node, record in self._view.nodes.items() if self._is_empty(node, record)]:
            result = await self._proposer.execute(remove_node(node))
            if isinstance(result, Refusal):
                log.warning("node %d is not removed yet: %s", node, result.message)
            else:
                log.info("node %d is removed: it keeps nothing any more", node)

    def _is_empty(self, node: int, record: NodeRecord) -> bool:
        return record.state == "leaving" and node not in self._group.voters and not kept_by(self._view, node)


def kept_by(view: MetadataView, node: int) -> int:
    """Number of replicas that a node keeps, or is to keep."""
    is_kept = partial(keeps, node=node)
    return sum(is_kept(partition) for log in view.logs.values() for partition in log.partitions)
