"""The planner of a node: by itself while it leads the metadata group, and wherever an operator asks.

The rules: plans are made in a thread, on frozen values. A plan is replicated as targets, some hundred at a time, and
nothing here drives its moves. As long as moves are under way nothing but repairs is planned beside them. A plan that
was shown is kept for a while under its digest; `apply` carries out exactly that one, or refuses.

Rejected: making the plan anew to apply it. Under load sizes change between two looks, and it would always be stale.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace

from cluster.features import Features
from cluster.metadata import BalanceSettings, CommandProposer, CommandResult, MetadataView, Ok, Refusal, reassign
from cluster.metadata.metadata_pb2 import Command
from cluster.metadata.planning import BalanceInput, BalancePlan, plan_balance
from cluster.raft import RaftGroup
from node.balancing.load_reports import LoadReports, is_leaving

log = logging.getLogger("holdfast.balance")

PERIOD_S = 5.0
"""Seconds between looks at whether something is to be planned."""

MOST_AT_ONCE = 512
"""Groups in a plan that nobody asked for: minutes of work, so that it can soon be another one. A group whose move is
planned is not repaired before that is done."""

IN_ONE_COMMAND = 512
"""Groups that one command gives their targets: some milliseconds of each node. A plan of 20,000 would be half a second
without an answer to anybody."""

KEPT_PLANS = 4
"""Plans that were shown and may be applied. One of 20,000 partitions takes some MiB, with what it was made from."""

Planning = Callable[[BalanceInput, BalanceSettings], BalancePlan]


class Balancer:
    def __init__(
        self,
        group: RaftGroup,
        view: MetadataView,
        proposer: CommandProposer,
        reports: LoadReports,
        features: Features,
    ) -> None:
        self._group = group
        self._view = view
        self._proposer = proposer
        self._reports = reports
        self._features = features
        self._kept: OrderedDict[str, tuple[BalancePlan, BalanceInput]] = OrderedDict()
        self._said: tuple[str, ...] = ()

    # -- by itself

    async def run(self) -> None:
        """Look each few seconds, until cancelled. A plan that fails is none: the cluster goes on as it is."""
        while True:
            try:
                if self._group.is_leader and self.is_due():
                    await self.look()
            except Exception:
                log.exception("no plan was made: this is a defect, report it; the node goes on")
            await asyncio.sleep(PERIOD_S)

    def is_due(self) -> bool:
        """Tell whether a plan may be needed, without a question to anybody."""
        settings = self._view.balance
        if settings.balance == "off" or not self._features.active("membership"):
            return False
        return settings.balance == "on" or any(
            is_leaving(record) or self._reports.lost_s(node) > settings.replace_after_s
            for node, record in self._view.nodes.items()
        )

    async def look(self) -> None:
        """Plan what the settings allow, and state it."""
        settings = self._view.balance
        if next(self._view.moving(), None) is not None:
            settings = replace(settings, balance="repair")
        plan, _ = await self._make(plan_balance, settings)
        if plan.obstacles != self._said:
            self._said = plan.obstacles
            for obstacle in plan.obstacles:
                log.warning("balancing: %s", obstacle)
        if not plan.reassignments or not self._group.is_leader:
            return
        first = BalancePlan(plan.reassignments[:MOST_AT_ONCE])
        result = await self._carry_out(first)
        if isinstance(result, Refusal):
            log.warning("%s; another one is made", result.message)

    # -- for operators

    async def plan(self, planning: Planning, settings: BalanceSettings) -> BalancePlan:
        """Make a plan on what all nodes tell now, to be shown."""
        plan, load = await self._make(planning, settings)
        self._kept[plan.digest] = plan, load
        self._kept.move_to_end(plan.digest)
        while len(self._kept) > KEPT_PLANS:
            self._kept.popitem(last=False)
        return plan

    async def _make(self, planning: Planning, settings: BalanceSettings) -> tuple[BalancePlan, BalanceInput]:
        load = await self._reports.gather()
        return await asyncio.to_thread(planning, load, settings), load

    def kept(self, digest: str) -> tuple[BalancePlan, BalanceInput] | None:
        """A plan that was shown here, and what it was made from; None: none of the last ones."""
        return self._kept.get(digest)

    async def apply(self, plan: BalancePlan) -> CommandResult:
        """Carry out a plan as it is. Refused as a whole if any of its groups has changed since. A refusal says what
        became of the plan."""
        if not plan.reassignments:
            return Ok()
        for command in commands_of(plan):
            if (refusal := self._view.refusal_of(command.reassign)) is not None:
                return _stale(plan, refusal)
            await asyncio.sleep(0)
        return await self._carry_out(plan)

    async def _carry_out(self, plan: BalancePlan) -> CommandResult:
        log.info("plan %s: %d partition(s), first %s", plan.digest, len(plan.reassignments), plan.reassignments[0])
        stated = 0
        for command in commands_of(plan):
            result = await self._proposer.execute(command)
            if isinstance(result, Refusal):
                return self._broken_off(plan, result, stated, stated + len(command.reassign.items))
            stated += len(command.reassign.items)
        return Ok()

    def _broken_off(self, plan: BalancePlan, refusal: Refusal, stated: int, asked: int) -> Refusal:
        """Say what was wanted, what was done and what is left, after a command of a plan was refused. `asked`:
        partitions in the commands so far."""
        is_unknown = refusal.code == "unknown"
        if not stated and not is_unknown:
            return _stale(plan, refusal)
        every, first_without = len(plan.reassignments), asked if is_unknown else stated
        parts = (
            (0, stated, "moves, or waits for its turn", "move, or wait for their turn"),
            (stated, first_without, "may move, or not: its answer was lost", "may move, or not: their answer was lost"),
            (first_without, every, "stays where it is", "stay where they are"),
        )
        told = ". ".join(
            f"{self._shown(plan, first, end)} {one if end - first == 1 else more}"
            for first, end, one, more in parts
            if first < end
        )
        return Refusal(
            refusal.code,
            f"plan {plan.digest} was broken off: {refusal.message}. It was to move {every} partition(s). {told}. "
            "`holdfast cluster moves` lists what moves, and cancels it. Another --dry-run shows what is left to do",
        )

    def _shown(self, plan: BalancePlan, first: int, end: int) -> str:
        """Some partitions of a plan: how many, where in its order, and the names of the first and the last one."""
        items, count = plan.reassignments, end - first
        which = "The first" if not first else "The last" if end == len(items) else "The next"
        if count == 1:
            return f"{which} one ({self._name(items[first].group)})"
        return f"{which} {count} ({self._name(items[first].group)} to {self._name(items[end - 1].group)})"

    def _name(self, group: int) -> str:
        found = self._view.group(group)
        return f"group {group}, which is no more" if found is None else f"{found[0].name}/{found[1].name}"


def _stale(plan: BalancePlan, refusal: Refusal) -> Refusal:
    """Refuse a plan of which nothing is stated."""
    return Refusal(refusal.code, f"plan {plan.digest} cannot be carried out any more: {refusal.message}")


def commands_of(plan: BalancePlan) -> Iterator[Command]:
    """Commands that state all targets of a plan, in its order and under its digest."""
    whys = {item.why for item in plan.reassignments}
    reason = whys.pop() if len(whys) == 1 else f"plan {plan.digest}"
    items = [(item.group, item.configuration_version, item.target) for item in plan.reassignments]
    for first in range(0, len(items), IN_ONE_COMMAND):
        yield reassign(items[first : first + IN_ONE_COMMAND], reason=reason, plan=int(plan.digest, 16))
