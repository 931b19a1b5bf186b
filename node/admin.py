"""Administrative requests of links: read here, or turned into commands of the metadata group.

The rule: the node that was asked answers a change only after it has seen the change itself and the partitions have
leaders, so that what the client does next *here* finds it. Rejected: a redirect of administration to the metadata
leader; every client would have to know how to follow it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from cluster.metadata import Coordinator, InvalidRequest, MetadataView, Rejected, from_request
from cluster.raft import Group
from cluster.rpc import PeerNetwork
from node.changes import Changes
from node.listener.broker import AdminError
from node.monitoring import Drain, Health

VISIBLE_WITHIN_S = 5.0
"""For what was decided to arrive at this node, and for the leaders of new partitions to be elected."""

DRAIN_WITHIN_S = 10.0
"""For all leaderships of a node to move; the answer says how many are left."""


class Administration:
    """The operations of `Broker.admin`: see `node/listener/vocabulary.py` for their names and arguments."""

    def __init__(
        self,
        node_id: int,
        group: Group,
        coordinator: Coordinator,
        view: MetadataView,
        network: PeerNetwork,
        leader_of: Callable[[int], int | None],
        changes: Changes,
        drain: Drain,
        health: Health,
    ) -> None:
        self._node_id = node_id
        self._group = group
        self._coordinator = coordinator
        self._view = view
        self._network = network
        self._leader_of = leader_of
        self._changes = changes
        self._drain = drain
        self._health = health

    async def run(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Raises AdminError."""
        if operation == "log.list":
            return {"logs": list(self._view.list_logs())}
        if operation == "log.describe":
            return self._describe(_name(args))
        if operation == "node.list":
            return {"nodes": self._nodes()}
        if operation == "cluster.status":
            return self._status()
        if operation in ("node.status", "node.drain", "node.resume"):
            return await self._here(operation, args)
        try:
            now_ms = time.time_ns() // 1_000_000
            command = from_request(operation, args, now_ms=now_ms, nodes=len(self._view.nodes))
        except InvalidRequest as error:
            raise AdminError("invalid-argument", str(error)) from error
        result = await self._coordinator.execute(command)
        if isinstance(result, Rejected):
            raise AdminError(result.code, result.message)
        name = _name(args)
        if operation == "log.delete":
            await self._changes.until(lambda: self._view.log(name) is None, VISIBLE_WITHIN_S)
            return {"name": name}
        assert result.log is not None
        wanted = result.log
        await self._changes.until(lambda: self._serves(name, wanted.id, len(wanted.partitions)), VISIBLE_WITHIN_S)
        return self._describe(name)

    async def _here(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """What concerns this node itself; `node` guards against having reached another one."""
        node = args.get("node", self._node_id)
        if node != self._node_id:
            raise AdminError("invalid-argument", f"this is node {self._node_id}: ask node {node} at its own address")
        if operation == "node.drain":
            await self._drain.run(DRAIN_WITHIN_S)
        elif operation == "node.resume":
            self._drain.resume()
        return self._health.status(time.monotonic())

    def _serves(self, name: str, log_id: int, partitions: int) -> bool:
        """The log is known here and each of its partitions has a leader."""
        record = self._view.log(name)
        return (
            record is not None
            and record.id >= log_id
            and len(record.partitions) >= partitions
            and all(self._leader_of(partition.group) is not None for partition in record.partitions)
        )

    def _describe(self, name: str) -> dict[str, Any]:
        described = self._view.describe(name, self._leader_of)
        if described is None:
            raise AdminError("not-found", f"there is no log {name!r}; `holdfast log list` shows those there are")
        return described

    def _nodes(self) -> list[dict[str, Any]]:
        return [{**node, "up": self._network.is_up(node["node"])} for node in self._view.list_nodes()]

    def _status(self) -> dict[str, Any]:
        groups = [partition.group for record in self._view.logs.values() for partition in record.partitions]
        leaderless = [group for group in groups if self._leader_of(group) is None]
        return {
            "node": self._node_id,
            "metadata": {
                "leader": self._group.leader,
                "term": self._group.term,
                "ready": self._group.leader is not None,
            },
            "nodes": self._nodes(),
            "logs": len(self._view.logs),
            "partitions": len(groups),
            "partitions_without_leader": len(leaderless),
        }


def _name(args: Mapping[str, Any]) -> str:
    name = args.get("name")
    if not isinstance(name, str):
        raise AdminError("invalid-argument", "name: must be a string")
    return name
