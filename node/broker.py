"""The node as one listener sees it: names to partitions, partitions to leaders, nodes to addresses.

The rule: nothing is cached here that can go stale without a ring of `RoutingEvents`; a handle for a partition that
another node leads looks up the leader at each use. Implements `node.listener.Broker`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from cluster.metadata import INTERNAL_PREFIX, MetadataView
from cluster.rpc import PeerNetwork
from node.admin import consumer_groups, entry_dump, idempotent_producers, transaction_groups, users_and_grants
from node.admin import transactions as transaction_admin
from node.admin.administration import Administration
from node.admin.errors import AdminRequestFailed
from node.client_transactions.transaction import StagedPosition
from node.client_transactions.transactional_ids import TransactionManager
from node.config import HostAndPort, ListenerSection, parse_address
from node.gateway import RemotePartition
from node.listener.broker_interface import AmqpAddress
from node.listener.log_identity import not_meant, told_log
from node.partition.api import LogView, PartitionHandle
from node.replica_manager import ReplicaManager
from node.routing_events import RoutingEvents

OF_PARTITIONS = (idempotent_producers, consumer_groups, entry_dump)
"""Operations that the leaders of partitions answer."""


class NodeBroker:
    def __init__(
        self,
        node_id: int,
        container_id: str,
        listener: ListenerSection,
        view: MetadataView,
        replicas: ReplicaManager,
        network: PeerNetwork,
        administration: Administration,
        routing_events: RoutingEvents,
        transactions: TransactionManager,
        access_administration: users_and_grants.AccessAdministration,
    ) -> None:
        self._access = access_administration
        self.transactions: TransactionManager | None = transactions
        self.node_id = node_id
        self.container_id = container_id
        self._listener = listener
        self._view = view
        self._replicas = replicas
        self._network = network
        self._administration = administration
        self._routing_events = routing_events
        self._remote: dict[int, RemotePartition] = {}
        self._others: tuple[AmqpAddress, ...] = ()
        self._others_revision = -1  # of the metadata
        self._transaction_admin = transaction_admin.TransactionAdministration(
            view, replicas.calls, transactions.coordinators, administration.current, replicas.leader_of
        )
        self._group_admin = transaction_groups.TransactionGroupAdministration(
            view, replicas.calls, transactions.coordinators, administration.current
        )

    @property
    def cluster_id(self) -> str | None:
        return self._view.cluster_id

    def describe(self, log: str) -> LogView | None:
        record = self._view.log(log)
        if record is None or record.name.startswith(INTERNAL_PREFIX):
            return None
        return LogView(record.name, [item.name for item in record.partitions], record.created_ms)

    def identity_of(self, log: str) -> int | None:
        record = self._view.log(log)
        return None if record is None or record.name.startswith(INTERNAL_PREFIX) else record.id

    def leader(self, log: str, partition: str) -> int | None:
        return self._replicas.leader_of(self._group(log, partition))

    def is_local(self, log: str, partition: str) -> bool:
        replica = self._replicas.partition(self._group(log, partition))
        return replica is not None and replica.is_leader

    @property
    def is_cut_off(self) -> bool:
        return self._network.is_cut_off

    @property
    def out_of_touch(self) -> Collection[int]:
        return self._network.out_of_touch

    @property
    def serves_nothing(self) -> bool:
        return self._network.is_alone and not self._replicas.lead_any

    def is_stranded(self, log: str, partition: str) -> bool:
        return self._replicas.is_stranded(self._group(log, partition))

    def is_coordinator_stranded(self, group: int | None) -> bool:
        if not self.is_cut_off or self.transactions is None:
            return False
        groups = self.transactions.coordinators.groups() if group is None else [group]
        return all(map(self._replicas.is_stranded, groups))

    def handle(self, log: str, partition: str) -> PartitionHandle:
        group = self._group(log, partition)
        replica = self._replicas.partition(group)
        if replica is not None and replica.is_leader:
            return replica
        remote = self._remote.get(group)
        if remote is None:
            remote = RemotePartition(
                partition,
                group,
                leader=lambda: self._replicas.leader_of(group),
                peer=self._peer,
                watch=lambda producer, stolen: self._watch(group, producer, stolen),
            )
            self._remote[group] = remote
        return remote

    def raft_group(self, log: str, partition: str) -> int:
        return self._group(log, partition)

    def _watch(self, group: int, producer: int, stolen: Callable[[int], None]) -> Callable[[], None]:
        """Watch a producer on a follower, which hears of it as soon as the leader."""
        replica = self._replicas.partition(group)
        return _nothing if replica is None else replica.watch_producer(producer, stolen)

    def address_of(self, node: int) -> AmqpAddress | None:
        mapped = self._listener.address_map.get(str(node))
        if mapped is not None:
            return _amqp(parse_address(mapped, "address_map")) if mapped else None
        told = self._view.listener_address(node, self._listener.name)
        return None if told is None else _amqp(parse_address(told, f"address of node {node}"))

    def other_nodes(self) -> tuple[AmqpAddress, ...]:
        if self._others_revision != self._view.revision:
            self._others_revision = self._view.revision
            others = sorted(self._view.nodes.keys() - {self.node_id}, key=lambda node: (node < self.node_id, node))
            found = tuple(where for where in map(self.address_of, others) if where is not None)
            self._others = self._others if found == self._others else found
        return self._others

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        return self._routing_events.subscribe(changed)

    async def admin(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        asked = next((one for one in OF_PARTITIONS if operation in one.OPERATIONS), None)
        if asked is not None:
            name = str(args.get("name"))
            await self._check_identity(name, args.get("log"))
            view = self.describe(name)
            partitions = None if view is None else view.partitions
            return await asked.run(operation, args, partitions, lambda partition: self.handle(name, partition))
        if operation in transaction_admin.OPERATIONS:
            return await self._transaction_admin.run(operation, args)
        if operation in transaction_groups.OPERATIONS:
            return await self._group_admin.run(operation, args)
        if operation in users_and_grants.OPERATIONS:
            return await self._access.run(operation, args)
        return await self._administration.run(operation, args)

    async def note_position(self, args: Mapping[str, Any]) -> tuple[StagedPosition, dict[str, Any]]:
        name = str(args.get("name"))
        await self._check_identity(name, args.get("log"))
        view = self.describe(name)
        partitions = None if view is None else view.partitions
        return consumer_groups.staged(args, partitions, lambda partition: self._group(name, partition))

    async def _check_identity(self, name: str, meant: Any) -> None:
        """Raise for a claim on a log that was deleted, or on another cluster's: it means nothing here, even if a log
        has that name."""
        if meant is None or meant == told_log(self, self.identity_of(name)):
            return
        await self.current()  # this node may not have heard of it yet
        if meant != told_log(self, self.identity_of(name)):
            raise AdminRequestFailed("not-owner", str(not_meant(self, name, str(meant)).description))

    async def current(self) -> bool:
        try:
            await self._administration.current()
        except AdminRequestFailed:
            return False
        return True

    def _group(self, log: str, partition: str) -> int:
        record = self._view.partition(log, partition)
        if record is None:
            raise KeyError(f"there is no partition {partition!r} of a log {log!r}")
        return record.group

    def _peer(self, node: int) -> Any:
        return self._network.client(node) if node != self.node_id else None


def _nothing() -> None:
    """Do nothing: there is no watch to end."""


def _amqp(address: HostAndPort) -> AmqpAddress:
    return AmqpAddress(hostname=address.host, host=address.host, port=address.port)
