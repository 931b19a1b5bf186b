"""Three real nodes in one process: what needs a leader elsewhere is tested on these. Killing processes is not; see
tests/integration for that."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any

from node.config import (
    ClusterSection,
    Config,
    ConfiguredPeer,
    ListenerSection,
    MonitoringSection,
    NodeSection,
    StorageSection,
)
from node.server import Node
from tests.ports import free_ports
from tests.unit.listener.support.peer import eventually


class ListenerCluster:
    """`nodes[n]` is node n; `ports[n]` its AMQP port."""

    def __init__(self, path: Path, **listener: Any) -> None:
        rpc = free_ports(3)
        amqp = free_ports(3)
        self.monitoring = dict(enumerate(free_ports(3), start=1))
        peers = [ConfiguredPeer(number + 1, f"127.0.0.1:{port}") for number, port in enumerate(rpc)]
        self.ports = {number + 1: port for number, port in enumerate(amqp)}
        self.nodes: dict[int, Node] = {}
        for number, port in self.ports.items():
            section = ListenerSection(bind=f"127.0.0.1:{port}", **listener)
            self.nodes[number] = Node(
                Config(
                    node=NodeSection(number, str(path / f"node-{number}")),
                    cluster=ClusterSection("test", peers),
                    listener=[section],
                    storage=StorageSection(min_free_bytes=1),
                    monitoring=MonitoringSection(bind=f"127.0.0.1:{self.monitoring[number]}"),
                )
            )

    async def __aenter__(self) -> ListenerCluster:
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))

    def broker(self, number: int) -> Any:
        return self.nodes[number]._listeners[0].broker

    async def create(self, log: str, partitions: int = 1) -> None:
        await self.broker(1).admin("log.create", {"name": log, "partitions": partitions, "replicas": 3})
        for number in self.nodes:
            await eventually(lambda number=number: self.settled(number, log))

    async def delete(self, log: str) -> None:
        """If it is there."""
        if self.broker(1).describe(log) is not None:
            await self.broker(1).admin("log.delete", {"name": log})

    def settled(self, number: int, log: str) -> bool:
        """The node knows a leader of every partition, and that one is ready."""
        broker = self.broker(number)
        view = broker.describe(log)
        if view is None:
            return False
        leaders = [broker.leader(log, partition) for partition in view.partitions]
        return all(
            leader in self.nodes and self.broker(leader).is_local(log, partition)
            for leader, partition in zip(leaders, view.partitions, strict=True)
        )

    def leaders(self, log: str, partition: str = "0") -> list[int]:
        """Who leads, by their own word: none during an election, two for a moment when one does not know it yet."""
        return [number for number in self.nodes if self.broker(number).is_local(log, partition)]

    def leader(self, log: str, partition: str = "0") -> int:
        (leader,) = self.leaders(log, partition)
        return leader

    async def settled_leader(self, log: str, partition: str = "0") -> int:
        """The one leader that all nodes that are left agree on, once they all have heard of the log."""
        await eventually(lambda: all(self.broker(node).describe(log) is not None for node in self.nodes))
        await eventually(lambda: len(self.leaders(log, partition)) == 1)
        leader = self.leader(log, partition)
        await eventually(lambda: all(self.broker(node).leader(log, partition) == leader for node in self.nodes))
        return leader

    def other_than(self, *numbers: int) -> int:
        return next(number for number in self.nodes if number not in numbers)

    async def move(self, log: str, partition: str, target: int) -> None:
        """Hand the partition's leadership over. A transfer may be given up, or turned round: it is tried again."""

        def there() -> bool:
            leaders = self.leaders(log, partition)
            if leaders and target not in leaders:
                self.broker(leaders[0]).handle(log, partition).group.transfer(target)
            return leaders == [target]

        await eventually(there)

    async def lose(self, number: int) -> None:
        """The node falls silent at once: its sockets close, nothing more is said or stored."""
        node = self.nodes.pop(number)
        node._multiraft.on_wake = None
        node._loop._stopped = asyncio.get_running_loop().create_future()  # as one that has come to its end
        node._loop._stopped.set_result(None)
        await node._network.stop()  # before its clients go: nobody is told that they have gone
        for connection in list(node._listeners[0]._connections):
            connection.abort()
        await node.stop()
