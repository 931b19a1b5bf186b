"""The clients of a schedule: an administrator, producers with and without numbers, readers.

They find leaders as impatient clients do: they ask whoever believes to lead, sometimes anybody, and try again. A node
that ends breaks the calls under way; what became of those is for the log to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.metadata import LogRecord
from cluster.raft import METADATA_GROUP
from tests.simulation.workload.administrator import Administrator
from tests.simulation.workload.clients import PartitionClients
from tests.simulation.workload.gateway_links import GatewayClients
from tests.simulation.world.events import PartitionJudge

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode


class ClusterLoad:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._partitions: dict[int, PartitionClients] = {}
        self._gateways: dict[int, GatewayClients] = {}
        self.admin = Administrator(schedule, self._log_created)
        self._healthy: Sequence[SimNode] = ()

    @property
    def acknowledged(self) -> int:
        return sum(clients.judge.acknowledged for clients in self._partitions.values())

    def start(self) -> None:
        schedule, plan = self._schedule, self._schedule.plan
        self.admin.start()
        schedule.every(plan.send_every_s, self._send)
        schedule.every(plan.read_every_s, self._read)
        schedule.every(plan.upkeep_every_s, self._compaction)
        schedule.every(plan.admin_every_s, self.admin.wish)

    def _log_created(self, log: LogRecord) -> None:
        for partition in log.partitions:
            if partition.group not in self._partitions:
                judge = self._schedule.judge(partition.group, partition.replicas)
                assert isinstance(judge, PartitionJudge)
                self._partitions[partition.group] = PartitionClients(self._schedule, judge)
                if self._schedule.plan.gateways:
                    self._gateways[partition.group] = GatewayClients(self._schedule, judge, log.name, partition.name)

    def serves(self) -> bool:
        """As many partitions as were planned, of those that last the oldest: what is made later has had less time."""
        expected = sum(log.partitions for log in self._schedule.plan.logs)
        deleted = self.admin.deleted_groups
        lasting = [clients for group_id, clients in self._partitions.items() if group_id not in deleted]
        return len(lasting) >= expected and all(clients.judge.acknowledged for clients in lasting[:expected])

    def _send(self) -> None:
        for clients in (*self._partitions.values(), *self._gateways.values()):
            clients.send()

    def _read(self) -> None:
        self._read_confirmed()
        for clients in (*self._partitions.values(), *self._gateways.values()):
            clients.read()

    def _read_confirmed(self) -> None:
        """Of one group, from whoever believes to lead it."""
        judge = self._schedule.judges[self._schedule.randomness.choice(list(self._schedule.judges))]
        for node in self._schedule.nodes.values():
            if node.leads(judge.group_id):
                node.read_confirmed(judge)

    def _compaction(self) -> None:
        for node in self._schedule.nodes.values():
            if node.is_running:
                node.compaction()

    # ---- nodes that lose their disks

    def can_lose(self, node: SimNode) -> bool:
        """Every group that it is a member of has another member, and the cluster knows the node."""
        judges = self._schedule.judges.values()
        return self.admin.has_set_up and all(len(j.members) > 1 for j in judges if node.id in j.members)

    def readmit(self, node: SimNode) -> None:
        self.admin.readmit(node)

    # ---- the end

    def begin_healing(self, healthy: Sequence[SimNode]) -> None:
        self._healthy = healthy
        self.admin.mark()
        for clients in (*self._partitions.values(), *self._gateways.values()):
            clients.begin_healing()

    def is_healthy(self) -> bool:
        nodes = [node for node in self._healthy if not node.is_damaged]
        metadata = self._schedule.judges.get(METADATA_GROUP)
        if metadata is None or not self.admin.is_done or not _agrees(metadata, nodes):
            return False
        for node in nodes:
            node.readmission.look()
        if any(node.lacks_memory for node in nodes) and self._all_can_speak():
            return False
        deleted = self.admin.deleted_groups
        return all([self._does_its_duty(group_id, nodes) for group_id in self._partitions if group_id not in deleted])  # noqa: C419 - ask all

    def _all_can_speak(self) -> bool:
        """Then those that lost their memory must have got their votes back."""
        return all(not node.disk.damaged for node in self._schedule.nodes.values())

    def _does_its_duty(self, group_id: int, nodes: Sequence[SimNode]) -> bool:
        clients = self._partitions[group_id]
        members = [node for node in nodes if node.id in clients.judge.members]
        sound = [node for node in members if clients.is_sound(node)]
        if 2 * len(sound) <= len(clients.judge.members):
            return True  # no majority: nothing can be asked of it
        gateways = self._gateways.get(group_id)
        drained = all([one.drain() for one in (clients, gateways) if one is not None])  # noqa: C419 - ask both
        return drained and _agrees(clients.judge, members)

    def finish(self) -> None:
        nodes = [node for node in self._schedule.nodes.values() if node.is_running]
        self.admin.finish(nodes)
        for group_id, clients in self._partitions.items():
            if group_id not in self.admin.deleted_groups:
                clients.finish(nodes)
        for gateways in self._gateways.values():
            gateways.finish()


def _agrees(judge: Any, nodes: Sequence[SimNode]) -> bool:
    """Those of the nodes that are members have applied all that was ever committed, and owe no answer."""
    for node in nodes:
        if node.id not in judge.members:
            continue
        group = node.multiraft.groups.get(judge.group_id)
        if group is None or group.applied_index < judge.highest:
            return False
    members = {node.id for node in nodes}
    return not any(node in members for node in judge.unanswered.values())
