"""The parts of a node that monitoring reads; it changes none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.metadata import MetadataView
from cluster.raft import METADATA_GROUP, MultiRaft, RaftGroup
from cluster.rpc import PeerNetwork
from node.admin.draining import Drain
from node.cluster_clock import ClusterClock
from node.listener import Listener
from node.monitoring.event_loop_lag import LoopWatch
from node.raft_loop import RaftLoop
from node.replica_manager import ReplicaManager
from node.startup.data_migration import DataMigration
from node.storage import Store


@dataclass(frozen=True)
class NodeParts:
    node_id: int
    cluster: str
    version: str
    multiraft: MultiRaft
    loop: RaftLoop
    watch: LoopWatch
    disk: Store
    view: MetadataView
    metadata: RaftGroup
    replicas: ReplicaManager
    network: PeerNetwork
    drain: Drain
    clock: ClusterClock
    migration: DataMigration
    listeners: Sequence[Listener]  # filled when they are made

    def name_of(self, group: int) -> str:
        """Name of a group as `log/partition`, for messages."""
        if group == METADATA_GROUP:
            return "(metadata)"
        found = self.view.group(group)
        return f"(group {group})" if found is None else f"{found[0].name}/{found[1].name}"

    def reachable(self, leader: int | None) -> bool:
        """Tell whether a leader is known and up: a follower that is cut off names its last leader for ever."""
        return leader is not None and self.network.is_up(leader)

    def partitions_without_leader(self) -> list[str]:
        """Partitions of all logs without a reachable leader, as this node knows them."""
        return [
            f"{log.name}/{partition.name}"
            for log in self.view.logs.values()
            for partition in log.partitions
            if not self.reachable(self.replicas.leader_of(partition.group))
        ]

    def followers(self, group: RaftGroup) -> dict[int, tuple[bool, int]]:
        """Followers of a group led here: member -> (up, committed entries that it lacks)."""
        commit = group.commit_index
        return {
            node: (self.network.is_up(node), max(0, commit - group.match_index(node)))
            for node in group.members
            if node != self.node_id
        }
