"""Plans and settings of balancing, for operators.

The rule: asking shows a plan and changes nothing; `apply` names the digest of a plan that was shown, and carries out
exactly that, or refuses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from cluster.features import Features
from cluster.metadata import CommandProposer, MetadataView, Refusal, set_balance
from cluster.metadata.planning import (
    BalanceInput,
    BalancePlan,
    PartitionLoad,
    Reassignment,
    plan_balance,
    plan_removal,
    plan_replacement,
)
from node.admin.errors import AdminRequestFailed
from node.balancing.balancer import Balancer, Planning
from node.routing_events import RoutingEvents

SHOWN = 1000
"""Partitions of a plan in an answer; the rest is counted."""

VISIBLE_WITHIN_S = 5.0

SETTINGS = ("replace_after_s", "disk_high", "disk_low", "disk_target", "pace_bytes_per_s")


class BalanceAdministration:
    """Operations `cluster.balance` and `cluster.settings`: see `holdfast/protocol.py` for their arguments."""

    def __init__(
        self,
        view: MetadataView,
        proposer: CommandProposer,
        balancer: Balancer,
        features: Features,
        routing_events: RoutingEvents,
        current: Callable[[], Awaitable[None]],
        bytes_per_s: int,
    ) -> None:
        """`bytes_per_s`: limit of a node's copies, as this one is configured."""
        self._view = view
        self._proposer = proposer
        self._balancer = balancer
        self._features = features
        self._routing_events = routing_events
        self._current = current
        self._bytes_per_s = bytes_per_s
        self.operations: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "cluster.balance": self._balance,
            "cluster.settings": self._settings,
        }

    async def _balance(self, args: Mapping[str, Any]) -> dict[str, Any]:
        self._require_feature()
        await self._current()
        if (digest := args.get("apply")) is not None:
            return await self._apply(str(digest), args)
        plan = await self._balancer.plan(self._planning(args), self._view.balance)
        return self._shown(plan, applied=False)

    async def _apply(self, digest: str, args: Mapping[str, Any]) -> dict[str, Any]:
        plan = await self._plan_of(digest, args)
        shown = self._shown(plan, applied=True)
        result = await self._balancer.apply(plan)
        if isinstance(result, Refusal):
            raise AdminRequestFailed(result.code, result.message)
        groups = {item.group: item for item in plan.reassignments}
        await self._routing_events.until(lambda: self._has_heard_of(groups), VISIBLE_WITHIN_S)
        return shown

    async def _plan_of(self, digest: str, args: Mapping[str, Any]) -> BalancePlan:
        """A plan that was shown here, or the same made anew if it was shown by another node. Raises
        AdminRequestFailed."""
        if (kept := self._balancer.kept(digest)) is not None:
            return kept[0]
        plan = await self._balancer.plan(self._planning(args), self._view.balance)
        if plan.digest != digest:
            raise AdminRequestFailed(
                "not-allowed",
                f"plan {digest[:40]} is stale: what it was made from has changed, or another node made it. What would "
                f"be done now is plan {plan.digest}: look at it with --dry-run, then apply that. Nothing was changed",
            )
        return plan

    def _planning(self, args: Mapping[str, Any]) -> Planning:
        remove, successor = args.get("remove"), args.get("successor")
        if remove is None:
            if successor is not None:
                raise AdminRequestFailed("invalid-argument", "successor: name the node that it replaces, too")
            return lambda load, settings: plan_balance(load, replace(settings, balance="on"))
        for node in (remove, successor):
            if node is not None and node not in self._view.nodes:
                listed = ", ".join(map(str, sorted(self._view.nodes)))
                raise AdminRequestFailed("not-found", f"node {node} is not registered; registered: {listed}")
        if successor is None:
            return lambda load, settings: plan_removal(load, remove, settings)
        if successor == remove:
            raise AdminRequestFailed("invalid-argument", f"successor: node {remove} cannot replace itself")
        return lambda load, settings: plan_replacement(load, remove, successor, settings)

    def _shown(self, plan: BalancePlan, *, applied: bool) -> dict[str, Any]:
        kept = self._balancer.kept(plan.digest)
        assert kept is not None, "a plan is kept before it is shown"
        pace = min(self._view.balance.pace_bytes_per_s, self._bytes_per_s)
        seconds = seconds_of(plan, kept[1], pace)
        return {**describe_plan(plan, kept[1]), "seconds": seconds, "applied": applied}

    def _has_heard_of(self, items: Mapping[int, Reassignment]) -> bool:
        """Tell whether this node has applied the command, or what came after it."""
        found = ((item, self._view.group(group)) for group, item in items.items())
        return all(
            placed is None
            or placed[1].wanted == item.target
            or placed[1].configuration_version > item.configuration_version
            for item, placed in found
        )

    async def _settings(self, args: Mapping[str, Any]) -> dict[str, Any]:
        changes = {name: _number(name, args[name]) for name in SETTINGS if args.get(name) is not None}
        balance = str(args.get("balance") or "")
        await self._current()
        if changes or balance:
            self._require_feature()
            result = await self._proposer.execute(set_balance(balance, **changes))
            if isinstance(result, Refusal):
                raise AdminRequestFailed(result.code, result.message)
            await self._current()
        return asdict(self._view.balance)

    def _require_feature(self) -> None:
        if not self._features.active("membership"):
            raise AdminRequestFailed(
                "not-allowed",
                f"version {self._features.version} is active, in which replicas stay where they are: install this "
                "release on all nodes, then `holdfast cluster finalize`",
            )


def _number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value.bit_length() > 63:
        raise AdminRequestFailed("invalid-argument", f"{name}: must be a whole number, not {value!r}")
    return value


def seconds_of(plan: BalancePlan, load: BalanceInput, bytes_per_s: int) -> int:
    """Estimate how long a plan takes at this pace: as long as the node that gets the most, or sends the most. Busy
    clients make it slower."""
    partitions, busiest = {one.group: one for one in load.partitions}, Counter[tuple[str, int | None]]()
    for item in plan.reassignments:
        partition = partitions[item.group]
        coming = [node for node in item.target if node not in partition.replicas]
        busiest.update({("gets", node): partition.size_bytes for node in coming})
        busiest["sends", partition.leader] += partition.size_bytes * len(coming)
    return math.ceil(max(busiest.values(), default=0) / bytes_per_s)


def describe_plan(plan: BalancePlan, load: BalanceInput) -> dict[str, Any]:
    """A plan for people and programs: what moves where, and how the nodes are afterwards."""
    partitions = {one.group: one for one in load.partitions}
    moves = [_described(item, partitions[item.group]) for item in plan.reassignments]
    targets = {item.group: item.target for item in plan.reassignments}
    return {
        "digest": plan.digest,
        "partitions": len(moves),
        "bytes": sum(move["bytes"] for move in moves),
        "moves": moves[:SHOWN],
        "obstacles": list(plan.obstacles),
        "after": [_after(node.node, node.capacity_bytes, load, targets) for node in load.nodes],
    }


def _described(item: Reassignment, partition: PartitionLoad) -> dict[str, Any]:
    log, _, number = partition.name.rpartition("/")
    coming = [node for node in item.target if node not in partition.replicas]
    going = [node for node in partition.replicas if node not in item.target]
    return {
        "log": log,
        "partition": number,
        "group": item.group,
        "from": going,
        "to": coming,
        "replicas": list(item.target),
        "preferred": item.target[0],
        "leader": partition.leader,
        "bytes": partition.size_bytes * len(coming),
        "why": item.why,
    }


def _after(node: int, capacity: int, load: BalanceInput, targets: Mapping[int, tuple[int, ...]]) -> dict[str, Any]:
    """Describe a node as it will be when a plan, and what is under way already, is done."""
    held = [
        one for one in load.partitions if node in (targets.get(one.group) or one.target or one.replicas)
    ]  # fmt: skip
    return {
        "node": node,
        "replicas": len(held),
        "bytes": sum(one.size_bytes for one in held),
        "preferred": sum((targets.get(one.group) or one.target or one.replicas)[0] == node for one in held),
        "capacity_bytes": capacity,
    }
