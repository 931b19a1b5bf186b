"""Reports of nodes on their disks and groups that they lead, and the frozen input of a plan made of them.

The rules: a partition's leader and size are the word of the node that says that it leads; who has said nothing for half
a minute counts as if it had never said anything; of groups that the metadata do not know nothing is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from cluster.metadata import LogRecord, MetadataView, NodeRecord, PartitionRecord
from cluster.metadata.planning import BalanceInput, NodeLoad, PartitionLoad
from cluster.metadata.planning.balance_input import REPORT_LIMIT_S
from cluster.rpc import LoadReport

log = logging.getLogger("holdfast.balance")

NEVER_S = 1e9
"""Age of a report that never came."""


class ReportingPeer(Protocol):
    async def report(self) -> LoadReport: ...


class ReportedNodes(Protocol):
    """The network, as reports need it."""

    def is_up(self, node: int) -> bool: ...
    def lost_s(self, node: int) -> float: ...
    def client(self, node: int) -> ReportingPeer: ...


class LoadReports:
    def __init__(
        self,
        node_id: int,
        view: MetadataView,
        network: ReportedNodes,
        own: Callable[[], LoadReport],
        monotonic_s: Callable[[], float],
    ) -> None:
        """`own`: this node's report."""
        self._node_id = node_id
        self._view = view
        self._network = network
        self._own = own
        self._monotonic_s = monotonic_s
        self._told: dict[int, tuple[LoadReport, float]] = {}

    async def gather(self) -> BalanceInput:
        """Ask all nodes that are up, and put together what is known."""
        nodes = list(self._view.nodes)
        await asyncio.gather(*map(self._ask, nodes))
        for gone in self._told.keys() - self._view.nodes.keys():
            del self._told[gone]
        return self._input()

    async def _ask(self, node: int) -> None:
        if node == self._node_id:
            self._told[node] = self._own(), self._monotonic_s()
        elif self._network.is_up(node):
            try:
                report = await self._network.client(node).report()
            except ConnectionError as error:
                log.info("node %d does not report: %s", node, error)
            else:
                self._told[node] = report, self._monotonic_s()

    def lost_s(self, node: int) -> float:
        """Seconds that a node has been away; 0: it is up."""
        return 0.0 if node == self._node_id else self._network.lost_s(node)

    def _input(self) -> BalanceInput:
        now_s = self._monotonic_s()
        ages = {node: now_s - at_s for node, (_, at_s) in self._told.items()}
        led_by: dict[int, tuple[int, int]] = {}  # group -> node and bytes
        for node, (report, _) in sorted(self._told.items()):
            if ages[node] <= REPORT_LIMIT_S and not self.lost_s(node):
                led_by |= {group: (node, size) for group, size in report.led.items()}
        partitions = [
            self._partition(log_record, record, led_by.get(record.group))
            for log_record in self._view.logs.values()
            for record in log_record.partitions
        ]
        nodes = [self._node(record, ages.get(node, NEVER_S)) for node, record in self._view.nodes.items()]
        return BalanceInput(tuple(nodes), tuple(partitions))

    def _node(self, record: NodeRecord, age_s: float) -> NodeLoad:
        report = self._told[record.node][0] if record.node in self._told else LoadReport()
        return NodeLoad(
            record.node,
            record.rack,
            is_leaving(record),
            report.capacity_bytes,
            report.used_bytes,
            self.lost_s(record.node),
            age_s,
            report.garbage_bytes,
        )

    def _partition(self, log_record: LogRecord, record: PartitionRecord, led: tuple[int, int] | None) -> PartitionLoad:
        leader, size = (None, 0) if led is None else led
        return PartitionLoad(
            record.group,
            f"{log_record.name}/{record.name}",
            record.replicas,
            record.configuration_version,
            outcome(record),
            size,
            leader,
            log_record.replicas,
        )


def outcome(record: PartitionRecord) -> tuple[int, ...]:
    """Nodes that keep a partition when what is under way is done; empty: nothing is."""
    if record.target or record.move is None:
        return record.target
    gone = record.move.remove.node if record.move.remove is not None else None
    left = tuple(node for node in record.replicas if node != gone)
    return left if record.move.add is None else (*left, record.move.add.node)


def is_leaving(record: NodeRecord) -> bool:
    """Tell whether an operator wants the node to leave the cluster."""
    return record.state == "leaving"
