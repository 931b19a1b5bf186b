"""One real node without a network: RocksDB, a MultiRaft whose groups have one member, and the listener over them.

Everything a link touches is what runs in production; only the cluster's part of the broker (who leads, what logs there
are, administration) is this file's, so that tests can make leaders come and go.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster.raft import MultiRaft, RaftOptions
from node.gateway import RemotePartition
from node.listener import AdminRequestFailed, AmqpAddress, Listener, ListenerConfig, LogView
from node.partition.api import PartitionHandle
from node.partition.consumer_groups.assignor import Assignor
from node.partition.partition_replica import PartitionReplica
from node.raft_loop import RaftLoop, TurnInput
from node.security.authentication import Gate
from node.storage import NodeIdentity, Store

QUICK = RaftOptions(heartbeat_s=0.02, election_min_s=0.07, election_max_s=0.1, quorum_check_s=0.1, suspicion_max_s=0.05)


class ListenerClock:
    monotonic = staticmethod(time.monotonic)


class SingleNode:
    """Also the broker: everything is local, until a test says otherwise."""

    def __init__(self, path: Path, gate: Gate | None = None, **config: Any) -> None:
        self.node_id = 1
        self.container_id = "single-1"
        self.cluster_id: str | None = "00000000000000a1"
        self.transactions = None
        self.config = ListenerConfig(bind_port=0, **config)
        self.disk = Store(path, NodeIdentity("single", 1))
        self.multiraft = MultiRaft(1, self.disk, ListenerClock(), random.Random(7), self._send, QUICK)
        self.input = TurnInput()
        self.turns = RaftLoop(self.multiraft, self.disk, ListenerClock(), self.input, self._fatal)
        self.logs: dict[str, dict[str, PartitionReplica]] = {}
        self.knows_all = True
        self.elsewhere: dict[tuple[str, str], int | None] = {}  # partitions that are said to be led by another node
        self.stranded: set[tuple[str, str]] = set()
        self.addresses: dict[int, AmqpAddress] = {}
        self.remotes: dict[tuple[str, str], PartitionHandle] = {}
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self.listener = Listener(self, self.config, gate)
        self._assigner = Assignor(self, time.monotonic)
        self.errors: list[BaseException] = []
        self._subscribers: list[Callable[[], None]] = []
        self._groups = 0
        self._identities: dict[str, int] = {}

    # ------------------------------------------------------------------------------------------------- life

    async def start(self) -> SingleNode:
        self.turns.start()
        await self.listener.start()
        return self

    async def stop(self) -> None:
        await self.listener.stop()
        await self.turns.stop()
        self.multiraft.close()
        self.disk.close()
        assert not self.errors, self.errors

    @property
    def port(self) -> int:
        return self.listener.addresses[0][1]

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    async def create(self, log: str, partitions: int = 1) -> dict[str, PartitionReplica]:
        replicas: dict[str, PartitionReplica] = {}
        for number in range(partitions):
            await self.add_partition(replicas, str(number))
        self.logs[log] = replicas
        self._identities[log] = self._groups  # of its last partition: none has it twice
        self.ring()
        return replicas

    async def add_partition(self, replicas: dict[str, PartitionReplica], name: str) -> None:
        self._groups += 1
        replica = PartitionReplica(
            name, self._groups, self.disk, lambda: time.time_ns() // 1_000_000, on_dirty=self.input.add
        )
        ready = asyncio.Event()
        replica.on_role_change = lambda r: ready.set() if r.is_leader else None
        replica.bind(self.multiraft.open_group(self._groups, [1], replica))
        replica.owning.on_assign = self._assigner.assign
        self.turns.wake()
        async with asyncio.timeout(20):
            await ready.wait()
        replica.on_role_change = None
        replicas[name] = replica

    def delete(self, log: str) -> None:
        for replica in self.logs.pop(log).values():
            replica.close(deleted=True)
        self.ring()

    def ring(self) -> None:
        for subscriber in list(self._subscribers):
            subscriber()

    def lead_elsewhere(self, log: str, partition: str, node: int | None) -> None:
        """Pretend that another node leads the partition, or nobody."""
        self.elsewhere[log, partition] = node
        self.ring()

    def lead_here(self, log: str, partition: str) -> None:
        del self.elsewhere[log, partition]
        self.ring()

    def _send(self, node: int, messages: list[Any]) -> None:
        raise AssertionError("a group of one member has nobody to write to")

    def _fatal(self, error: BaseException) -> None:
        self.errors.append(error)

    # ------------------------------------------------------------------------------------------------- the broker

    def describe(self, log: str) -> LogView | None:
        replicas = self.logs.get(log)
        return None if replicas is None else LogView(log, list(replicas))

    def identity_of(self, log: str) -> int | None:
        return self._identities[log] if log in self.logs else None

    def leader(self, log: str, partition: str) -> int | None:
        replica = self.logs[log][partition]
        return self.elsewhere.get((log, partition), replica.leader)

    @property
    def is_cut_off(self) -> bool:
        return bool(self.stranded)

    @property
    def out_of_touch(self) -> list[int]:
        return [2, 3] if self.stranded else []

    @property
    def serves_nothing(self) -> bool:
        everything = {(log, partition) for log, made in self.logs.items() for partition in made}
        return self.is_cut_off and everything <= self.stranded

    def is_stranded(self, log: str, partition: str) -> bool:
        return (log, partition) in self.stranded

    def is_coordinator_stranded(self, group: int | None) -> bool:
        return self.serves_nothing

    def cut_off(self, *stranded: tuple[str, str]) -> None:
        """Pretend that the node is cut off, and nobody leads these partitions that it reaches; none: no longer."""
        self.stranded = set(stranded)
        self.elsewhere = dict.fromkeys(stranded)
        self.ring()

    def is_local(self, log: str, partition: str) -> bool:
        return (log, partition) not in self.elsewhere and self.logs[log][partition].is_leader

    def handle(self, log: str, partition: str) -> PartitionHandle:
        replica = self.logs[log][partition]
        if self.is_local(log, partition):
            return replica
        key = (log, partition)
        if key not in self.remotes:
            self.remotes[key] = RemotePartition(
                partition, replica.group_id, leader=lambda: self.elsewhere.get(key), peer=lambda node: None
            )
        return self.remotes[key]

    def address_of(self, node: int) -> AmqpAddress | None:
        return self.addresses.get(node)

    def other_nodes(self) -> tuple[AmqpAddress, ...]:
        return tuple(self.addresses[node] for node in sorted(self.addresses) if node != self.node_id)

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed)

    async def current(self) -> bool:
        return self.knows_all

    async def admin(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        self.requests.append((operation, dict(args)))
        if operation == "log.create":
            if args["name"] in self.logs:
                raise AdminRequestFailed("already-exists", f"log {args['name']!r} exists")
            await self.create(args["name"], args.get("partitions", 1))
            operation = "log.describe"
        if operation == "log.describe":
            if args["name"] not in self.logs:
                raise AdminRequestFailed("not-found", f"no log {args['name']!r}")
            partitions = [{"partition": name, "leader": 1, "replicas": [1]} for name in self.logs[args["name"]]]
            return {"name": args["name"], "partitions": partitions, "retention_ms": None}
        if operation == "log.list":
            return {"logs": [{"name": name, "partitions": len(parts)} for name, parts in self.logs.items()]}
        raise AdminRequestFailed("unavailable", "no leader of the metadata group")
