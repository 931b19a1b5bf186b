"""Administrative requests of links: read here, or turned into commands of the metadata group.

The rules: the node that was asked answers a change only after it has seen the change itself and the partitions have
leaders, so that the client's next request *here* finds it. It answers a question about logs only after the metadata's
leader, confirmed by a majority, has said how far the metadata go, and it has come as far. What a node knows without
that is shown only where it says so (`cluster.status`, and `node.list` with `confirmed`): an operator must be able to
look at a cluster that has no majority. `cluster.status` tells from this node's own knowledge whether a node was
refused; where the other nodes are asked about their replicas, they are asked about that, too.
Rejected: a redirect of administration to the metadata leader; every client would have to know how to follow it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from cluster.features import Features
from cluster.metadata import (
    CommandProposer,
    InvalidRequest,
    MetadataView,
    NodeRecord,
    NotConfirmed,
    Refusal,
    activate_version,
    describe,
    from_request,
    readmit_node,
)
from cluster.raft import RaftGroup
from cluster.rpc import Callers, PeerNetwork, ReplicaState, refused_by_any
from node.admin.errors import AdminRequestFailed, CannotRepair
from node.admin.moves import AskLoad, MoveAdministration
from node.admin.node_changes import NodeChanges, requests
from node.monitoring import Drain, Health
from node.routing_events import RoutingEvents

VISIBLE_WITHIN_S = 5.0
"""Time for a decision to arrive at this node, and for the leaders of new partitions to be elected."""

DRAIN_WITHIN_S = 10.0
"""Time for all leaderships of a node to move; the answer says how many are left."""

HEARD_S = 60
"""Seconds that every node must have been heard without a break before an upgrade is finalized: a program that ends
again and again is found out before there is no way back."""
MOST_HEARD_S = 86_400

LOOK_WITHIN_S = 1.0
"""Time for a confirmation that is only reported, not required."""


class Administration:
    """The operations of `Broker.admin`: see `holdfast/protocol.py` for their names and arguments."""

    def __init__(
        self,
        node_id: int,
        group: RaftGroup,
        proposer: CommandProposer,
        view: MetadataView,
        network: PeerNetwork,
        leader_of: Callable[[int], int | None],
        routing_events: RoutingEvents,
        drain: Drain,
        health: Health,
        states: Callable[[Sequence[int]], list[ReplicaState]],
        repair: Callable[[int], None],
        ask_load: AskLoad,
        features: Features | None = None,
    ) -> None:
        self._node_id = node_id
        self._group = group
        self._proposer = proposer
        self._view = view
        self._network = network
        self._leader_of = leader_of
        self._routing_events = routing_events
        self._drain = drain
        self._health = health
        self._states = states
        self._repair = repair
        self._features = features or Features()
        self._moves = MoveAdministration(proposer, view, leader_of, self._ask, ask_load, self._features)
        self._reads: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "log.list": self._list_logs,
            "log.describe": self._describe_log,
            "node.list": self._list_nodes,
            "node.describe": self._describe_node,
            "node.readmit": self._readmit,
            "cluster.status": self._status,
            "cluster.finalize": self._finalize,
            "cluster.moves": self._moves.moves,
            "cluster.cancel-moves": self._moves.cancel,
            "log.reassign": self._moves.reassign,
            "log.cancel-moves": self._moves.cancel,
            **requests(NodeChanges(group, proposer, view, network, routing_events, self._features), _number),
        }

    def serve(self, operations: Mapping[str, Callable[[Mapping[str, Any]], Any]]) -> None:
        """Serve operations of another part, too."""
        self._reads |= operations

    async def run(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation. Raises AdminRequestFailed."""
        if operation in self._reads:
            answer: dict[str, Any] = await self._reads[operation](args)
            return answer
        if operation in ("node.status", "node.drain", "node.resume", "node.repair"):
            return await self._here(operation, args)
        if operation == "log.alter" and "replicas" in args:
            self._moves.require_feature()
        try:
            now_ms = time.time_ns() // 1_000_000
            command = from_request(operation, args, now_ms=now_ms, nodes=self._view.able_nodes)
        except InvalidRequest as error:
            raise AdminRequestFailed("invalid-argument", str(error)) from error
        if operation == "log.alter" and "replicas" in args:
            command.alter_log.away.extend(node for node in self._view.nodes if not self._network.is_up(node))
        result = await self._proposer.execute(command)
        if isinstance(result, Refusal):
            raise AdminRequestFailed(result.code, result.message)
        name = _name(args)
        if operation == "log.delete":
            await self._routing_events.until(lambda: self._view.log(name) is None, VISIBLE_WITHIN_S)
            return {"name": name}
        assert result.log is not None
        wanted = result.log
        await self._routing_events.until(
            lambda: self._serves(name, wanted.id, len(wanted.partitions)), VISIBLE_WITHIN_S
        )
        return describe(wanted, self._leader_of)  # as the command left it: this node may not have applied it yet

    async def current(self) -> None:
        """Wait until this node knows all metadata that was made known before. Raises AdminRequestFailed."""
        try:
            await self._proposer.current()
        except NotConfirmed as error:
            raise AdminRequestFailed("unavailable", f"what this node knows may be old: {error}") from error

    # -- logs

    async def _here(self, operation: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation on this node itself; `node` guards against having reached another one."""
        node = args.get("node", self._node_id)
        if node != self._node_id:
            raise AdminRequestFailed(
                "invalid-argument", f"this is node {self._node_id}: ask node {node} at its own address"
            )
        if operation == "node.drain":
            await self._drain.run(DRAIN_WITHIN_S)
        elif operation == "node.resume":
            self._drain.resume()
        elif operation == "node.repair":
            self._repair_group(args)
        return self._health.status(time.monotonic())

    def _repair_group(self, args: Mapping[str, Any]) -> None:
        group = args.get("raft_group")
        if not isinstance(group, int) or group < 0:
            raise AdminRequestFailed("invalid-argument", "raft_group: must be the number of a Raft group")
        try:
            self._repair(group)
        except CannotRepair as error:
            raise AdminRequestFailed("not-allowed", str(error)) from error

    def _serves(self, name: str, log_id: int, partitions: int) -> bool:
        """Tell whether the log is known here and each of its partitions has a leader."""
        record = self._view.log(name)
        return (
            record is not None
            and record.id >= log_id
            and len(record.partitions) >= partitions
            and all(self._leader_of(partition.group) is not None for partition in record.partitions)
        )

    async def _list_logs(self, _: Mapping[str, Any]) -> dict[str, Any]:
        await self.current()
        return {"logs": list(self._view.list_logs())}

    async def _describe_log(self, args: Mapping[str, Any]) -> dict[str, Any]:
        await self.current()
        described = self._described(_name(args))
        partitions = described["partitions"]
        nodes = sorted({node for partition in partitions for node in partition["replicas"]})
        told = await self._ask(nodes, [partition["group"] for partition in partitions])
        for partition in partitions:
            partition["replica_states"] = [
                _state(node, (told[node] or {}).get(partition["group"])) for node in partition["replicas"]
            ]
        return described

    def _described(self, name: str) -> dict[str, Any]:
        described = self._view.describe(name, self._leader_of)
        if described is None:
            raise AdminRequestFailed(
                "not-found", f"there is no log {name!r}; `holdfast log list` shows those there are"
            )
        return described

    # -- nodes

    async def _list_nodes(self, _: Mapping[str, Any]) -> dict[str, Any]:
        try:
            await self._proposer.current(LOOK_WITHIN_S)
            confirmed = True
        except NotConfirmed:
            confirmed = False
        up = [node for node in self._view.nodes if self._network.is_up(node)]
        told, refused = await asyncio.gather(self._ask(up, []), self._refused_anywhere())
        nodes = self._nodes(refused)
        for node in nodes:
            states = told.get(node["node"])
            node["catching_up"] = None if states is None else sum(bool(state.phase) for state in states.values())
            node["without_vote"] = None if states is None else sum(not state.votes for state in states.values())
        return {"nodes": nodes, "announced": sorted(self._view.announced), "confirmed": confirmed}

    async def _describe_node(self, args: Mapping[str, Any]) -> dict[str, Any]:
        await self.current()
        number = self._registered(args)
        told, refused = await asyncio.gather(self._ask_one(number, []), self._refused_anywhere())
        replicas = []
        for group, state in sorted((told or {}).items()):
            placed = self._view.group(group)
            name = (placed[0].name, placed[1].name) if placed is not None else ("(metadata)", "")
            replicas.append({"log": name[0], "partition": name[1], **_state(number, state)})
        found = next(node for node in self._nodes(refused) if node["node"] == number)
        return {**found, "catching_up": None if told is None else replicas}

    async def _readmit(self, args: Mapping[str, Any]) -> dict[str, Any]:
        number = self._registered(args)
        incarnation = args.get("incarnation") or self._network.stranger(number)
        if incarnation is None:
            raise AdminRequestFailed(
                "not-found",
                f"node {number} has not come to node {self._node_id} with other data than it is known by (incarnation "
                f"{self._view.incarnation(number):016x}): start it with its empty directory, then ask again; or name "
                "the incarnation that its log tells",
            )
        try:
            command = readmit_node(number, incarnation)
        except InvalidRequest as error:
            raise AdminRequestFailed("invalid-argument", str(error)) from error
        with self._admitting(number, incarnation):
            result = await self._proposer.execute(command)
            if isinstance(result, Refusal):
                raise AdminRequestFailed(result.code, result.message)
            await self._routing_events.until(lambda: self._view.incarnation(number) == incarnation, VISIBLE_WITHIN_S)
        return {"node": number, "incarnation": f"{incarnation:016x}"}

    def _admitting(self, number: int, incarnation: int) -> contextlib.AbstractContextManager[None]:
        """Let a node in before it is admitted, if the majority that admits it needs it: in a cluster of two. With data
        that were given up before it must not be heard at all: it would be taken for a member that remembers."""
        given_up = incarnation in self._view.nodes[number].former_incarnations
        if self._group.voters != {number, self._node_id} or given_up:
            return contextlib.nullcontext()
        return self._network.admitting(number, incarnation)

    def _registered(self, args: Mapping[str, Any]) -> int:
        number = _number(args)
        if number not in self._view.nodes:
            raise AdminRequestFailed(
                "not-found", f"node {number} is not registered; `holdfast node list` shows those there are"
            )
        return number

    def _nodes(self, refused: Collection[int]) -> list[dict[str, Any]]:
        return [
            {**node, "up": self._network.is_up(node["node"]), "refused": node["node"] in refused}
            for node in self._view.list_nodes()
        ]

    async def _refused_anywhere(self) -> frozenset[int]:
        """Nodes that this node refuses, or another one that is up and answers in time."""
        others = [node for node in self._view.nodes if node != self._node_id and self._network.is_up(node)]
        told = await asyncio.gather(*map(self._callers_of, others))
        return refused_by_any([self._network.callers(), *told])

    async def _callers_of(self, node: int) -> Callers:
        try:
            return await self._network.client(node).callers(self._view.nodes.keys())
        except ConnectionError:
            return Callers()

    async def _ask(self, nodes: Sequence[int], groups: Sequence[int]) -> dict[int, dict[int, ReplicaState] | None]:
        """Each node's states of its replicas, by group; None from one that does not answer."""
        answers = await asyncio.gather(*(self._ask_one(node, groups) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def _ask_one(self, node: int, groups: Sequence[int]) -> dict[int, ReplicaState] | None:
        if node == self._node_id:
            return {state.group: state for state in self._states(groups)}
        if not self._network.is_up(node):
            return None
        try:
            return {state.group: state for state in await self._network.client(node).replicas(groups)}
        except ConnectionError:
            return None

    async def _status(self, _: Mapping[str, Any]) -> dict[str, Any]:
        groups = [partition.group for record in self._view.logs.values() for partition in record.partitions]
        leaderless = [group for group in groups if self._leader_of(group) is None]  # coordinators of transactions, too
        listed = self._view.list_logs()
        return {
            "node": self._node_id,
            "cluster_id": self._view.cluster_id,
            "active_version": self._view.active_version,
            "metadata": {
                "leader": self._group.leader,
                "term": self._group.term,
                "ready": self._group.leader is not None,
                "voters": sorted(self._group.voters),
                "settled": self._group.is_settled,
            },
            "nodes": self._nodes(refused_by_any([self._network.callers()])),
            "logs": len(listed),
            "partitions": sum(log["partitions"] for log in listed),
            "partitions_without_leader": len(leaderless),
        }

    # -- versions

    async def _finalize(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Raise the active version to the newest that a node knows, if all of them do; there is no way back."""
        dry_run, heard_s = bool(args.get("dry_run")), args.get("heard_s", HEARD_S)
        if not 0 <= heard_s <= MOST_HEARD_S:
            raise AdminRequestFailed("invalid-argument", f"heard_s: must be 0 to {MOST_HEARD_S} seconds")
        await self.current()
        active, records = self._view.active_version, self._view.nodes.values()
        target = max((record.versions.newest for record in records), default=active)
        awaited = records if target != active else ()
        obstacles = [obstacle for record in awaited if (obstacle := self._obstacle(record, target, heard_s))]
        if obstacles and not dry_run:
            raise AdminRequestFailed("not-allowed", f"version {target} cannot be activated: {'; '.join(obstacles)}")
        if not dry_run and target != active:
            result = await self._proposer.execute(activate_version(target, records))
            if isinstance(result, Refusal):
                raise AdminRequestFailed(result.code, result.message)
            await self._routing_events.until(lambda: self._view.active_version >= target, VISIBLE_WITHIN_S)
        return {
            "active_version": active if dry_run else target,
            "target_version": target,
            "obstacles": obstacles,
            "nodes": self._view.list_nodes(),
        }

    def _obstacle(self, record: NodeRecord, target: int, heard_s: float) -> str | None:
        """Reason why a node cannot go to a version now; None: it can."""
        node, network = record.node, self._network
        if target not in record.versions:
            return f"node {node} runs a program that knows {record.versions}: install the newest release on it"
        if node in refused_by_any([network.callers()]):
            return f"node {node} is refused, since it came with other data: `holdfast node list` says what to do"
        if not network.is_up(node):
            return f"node {node} does not answer: start it, and wait until it is a member again"
        start = network.start_of(node)
        if start is None or start.known != record.start:
            return f"node {node} was started again, and is not registered yet: wait until it is"
        if (so_far_s := network.heard_for_s(node)) < heard_s:
            return f"node {node} has been heard for {so_far_s:.0f} s without a break, of {heard_s} s: wait"
        return None


def _state(node: int, state: ReplicaState | None) -> dict[str, Any]:
    """The state of a replica for JSON. None: the node does not answer, or has no replica yet."""
    if state is None:
        return {"node": node, "state": "unknown"}
    told: dict[str, Any] = {"node": node, "applied": state.applied, "last": state.last, "votes": state.votes}
    if state.quarantined:
        return {**told, "group": state.group, "state": "in quarantine", "reason": state.quarantined}
    if not state.phase:
        return {**told, "state": "follows" if state.votes else "follows without a vote"}
    entries = max(0, state.fetch_last - state.fetch_first + 1)
    fetched = max(0, state.fetch_next - state.fetch_first) if entries else 0
    return {
        **told,
        "state": f"catching up ({state.phase})",
        "entries": entries,
        "entries_fetched": min(fetched, entries),
        "received_bytes": state.received_bytes,
        "refused_pieces": state.refused_pieces,
    }


def _name(args: Mapping[str, Any]) -> str:
    name = args.get("name")
    if not isinstance(name, str):
        raise AdminRequestFailed("invalid-argument", "name: must be a string")
    return name


def _number(args: Mapping[str, Any]) -> int:
    name = _name(args)
    if not name.isascii() or not name.isdigit():
        raise AdminRequestFailed("invalid-argument", f"name: {name!r} is not the number of a node")
    return int(name)
