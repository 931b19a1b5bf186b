"""A cluster as one of its nodes sees it: its metadata, and what other nodes report."""

from __future__ import annotations

from typing import Any, cast

from cluster.features import Features
from cluster.metadata import Refusal
from cluster.metadata import metadata_pb2 as pb
from cluster.rpc import LoadReport, Unavailable
from cluster.versions import OURS
from node.balancing.balance_administration import BalanceAdministration
from node.balancing.balancer import Balancer
from node.balancing.load_reports import LoadReports
from tests.unit.metadata.test_state_machine import Cluster

GIB = 1 << 30
MIB = 1 << 20


class SeenCluster(Cluster):
    """Node 1 leads the metadata; all nodes are up, and each leads what it is preferred for, with 1 MiB of events."""

    def __init__(self, nodes: int = 4, version: int = OURS.newest, bytes_per_s: int = 16 * GIB) -> None:
        super().__init__(nodes)
        self.is_leader = True
        self.lost: dict[int, float] = {}
        self.silent: set[int] = set()
        self.now_s = 1000.0
        self.asked: list[int] = []
        self.commands: list[pb.Command] = []
        self.reports: dict[int, LoadReport] = {}
        features = Features(heard=version)
        self.load_reports = LoadReports(1, self.view, self, lambda: self.report_of(1), lambda: self.now_s)
        self.balancer = Balancer(cast(Any, self), self.view, cast(Any, self), self.load_reports, features)
        self.administration = BalanceAdministration(
            self.view, cast(Any, self), self.balancer, features, cast(Any, self), self.current, bytes_per_s
        )

    def report_of(self, node: int) -> LoadReport:
        if node in self.reports:
            return self.reports[node]
        led = [one.group for log in self.view.logs.values() for one in log.partitions if self.leads(node, one.replicas)]
        return LoadReport(100 * GIB, 50 * GIB, dict.fromkeys(led, 1 << 20), GIB)

    def leads(self, node: int, replicas: tuple[int, ...]) -> bool:
        return node == next((one for one in replicas if one not in self.lost), None)

    async def admin(self, operation: str, **args: Any) -> dict[str, Any]:
        return await self.administration.operations[operation](args)

    # -- as the network

    def is_up(self, node: int) -> bool:
        return node not in self.lost

    def lost_s(self, node: int) -> float:
        return self.lost.get(node, 0.0)

    def client(self, node: int) -> Any:
        return OtherNode(self, node)

    # -- as the proposer, and the bell

    async def execute(self, command: pb.Command) -> Any:
        self.commands.append(command)
        return self.do(command)

    async def current(self) -> None:
        """It is."""

    async def until(self, condition: Any, timeout_s: float) -> None:
        assert condition()


class OtherNode:
    def __init__(self, cluster: SeenCluster, node: int) -> None:
        self.cluster, self.node = cluster, node

    async def report(self) -> LoadReport:
        self.cluster.asked.append(self.node)
        if self.node in self.cluster.silent:
            raise Unavailable("it does not answer", sent=True)
        return self.cluster.report_of(self.node)


def refused(result: Any) -> Refusal:
    assert isinstance(result, Refusal), result
    return result
