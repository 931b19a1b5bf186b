"""One random schedule: a cluster, a while of faults and client input, then healing and a verdict.

Everything random comes from one generator seeded by the schedule's number, and time is a heap of events, so the number
replays the schedule exactly. Three phases:

* safety: for `chaos_s` anything may fail, at any moment nothing may be violated;
* liveness: in half of the schedules first only a connected majority of the nodes is healed while the rest is down, cut
  off, or heard in one direction only: it must elect, serve and agree; then all the others are healed too;
* verdict: all replicas have the same bytes, and every client got what it was promised.

A schedule in which hardly anything was acknowledged or broken proves nothing, and is reported as `Empty`.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tests.simulation.checker import Empty, GroupJudge, Violation
from tests.simulation.moving.judge import MovingJudge
from tests.simulation.plan import Plan, draw
from tests.simulation.rebalancing.judge import MovingPartitionJudge
from tests.simulation.transactions.judge import Ledger, TransactionsJudge
from tests.simulation.world.events import PartitionJudge
from tests.simulation.world.faults import Faults
from tests.simulation.world.identity.connections import Connections
from tests.simulation.world.network import SimLink
from tests.simulation.world.rpc.calls import SimWire
from tests.simulation.world.rpc.virtual_loop import VirtualLoop

HEALING_S = 12.0
"""Virtual time in which a healed cluster must be in order: many election timeouts."""
PEACE_WITHIN_S = 20.0
"""Virtual time in which a healed cluster must have been silent: leaders hand over to preferred ones first."""
CALM_S = 5.0
"""Virtual time in which a healthy cluster must begin to serve, where the faults wait for that."""
SLOW_CALM_S = 20.0
"""The same where every third sync takes as long as an election's patience, or nearly: some terms end in split votes."""
SLOW_SYNCS = 0.1
"""The share of slow syncs from which on a plan's disks are slow."""
LOOK_EVERY_S = 0.02
HEALTHY_LATENCY_S = 0.002
MAX_EVENTS = 400_000
"""A schedule with more events than this spins."""
TRACE_LINES = 400
MIN_ACKNOWLEDGED = 5
MIN_FAULTS = 5


class Stuck(Violation):
    """The cluster did not become healthy."""


class SimulatedLoad(Protocol):
    """Clients, and what they were promised."""

    acknowledged: int

    def start(self) -> None: ...
    def serves(self) -> bool:
        """Every log has been written to."""
        ...

    def begin_healing(self, healthy: Sequence[Any]) -> None:
        """From now on these nodes must do everything that a majority of a group can do."""
        ...

    def is_healthy(self) -> bool: ...
    def finish(self) -> None: ...


class Schedule:
    def __init__(
        self,
        seed: int,
        make_node: Callable[[Schedule, int], Any],
        make_load: Callable[[Schedule], SimulatedLoad],
        *,
        plan: Callable[[Plan], Plan] = lambda drawn: drawn,
        tracing: bool = False,
    ) -> None:
        self.seed = seed
        self.tracing = tracing
        self.lines: deque[str] = deque(maxlen=TRACE_LINES)
        self.randomness = random.Random(seed)
        self.plan = plan(draw(self.randomness))
        self.now = 0.0
        self.latency_s, self.slow_syncs = self.plan.latency_s, self.plan.slow_syncs
        self.chaos_begun = self.chaos_over = False
        self.done: Counter[str] = Counter()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = 0
        self._unique = 0
        self._stop = False
        self.node_ids = list(range(1, self.plan.nodes + 1))
        self.judges: dict[int, GroupJudge] = {}
        self.links = {(a, b): SimLink(self, a, b) for a in self.node_ids for b in self.node_ids if a != b}
        self.nodes = {node: make_node(self, node) for node in self.node_ids}
        self.connections = Connections(self) if self.plan.tells_starts else None
        self.loop = VirtualLoop(self)
        self.wire = SimWire(self) if self.plan.gateways or self.plan.streams else None
        self.crash_points: Any = None
        self.delays: Any = None
        self.ledger = Ledger() if self.plan.transactions else None
        self.faults = Faults(self)
        self.load = make_load(self)

    def judge(self, group_id: int, members: Sequence[int]) -> GroupJudge:
        if group_id not in self.judges:
            self.judges[group_id] = self._new_judge(group_id)
        judge = self.judges[group_id]
        judge.members = judge.members or tuple(members)  # a replica that was moved is told of none
        return judge

    def _new_judge(self, group_id: int) -> GroupJudge:
        if self.plan.moves:
            return MovingJudge(group_id)
        if not group_id:
            return GroupJudge(group_id)
        if self.plan.rebalances:
            return MovingPartitionJudge(group_id)
        return PartitionJudge(group_id) if self.ledger is None else TransactionsJudge(group_id, self.ledger)

    # ---- engine

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._tie += 1
        heapq.heappush(self._events, (max(time, self.now), self._tie, action))

    def every(self, mean_s: float, action: Callable[[], None]) -> None:
        """Until the faults are over."""

        def again() -> None:
            if not self.chaos_over:
                action()
                self.at(self.now + self.randomness.expovariate(1 / mean_s), again)

        self.at(self.now + self.randomness.expovariate(1 / mean_s), again)

    def trace(self, text: str) -> None:
        if self.tracing:
            self.lines.append(f"{self.now:9.4f} {text}")

    def count(self, what: str) -> None:
        self.done[what] += 1

    def unique(self) -> int:
        self._unique += 1
        return self._unique

    def _run_until(self, end: float, condition: Callable[[], bool] | None = None) -> bool:
        """Whether `condition` became true."""
        self._stop = False

        def look() -> None:
            assert condition is not None
            if condition():
                self._stop = True
            elif self.now < end:
                self.at(self.now + LOOK_EVERY_S, look)

        if condition is not None:
            look()
        events, pop, run_ready = self._events, heapq.heappop, self.loop.run_ready
        count = run_ready()
        while not self._stop and events and events[0][0] <= end:
            self.now, _, action = pop(events)
            action()
            count += 1 + run_ready()
            if count > MAX_EVENTS:
                raise Stuck(f"over {MAX_EVENTS} events by {self.now:.3f} s")
        if not self._stop:
            self.now = end
        return self._stop

    @property
    def somebody_lacks_memory(self) -> bool:
        return any(node.lacks_memory for node in self.nodes.values())

    # ---- what links report

    def arrive(self, sender: int, receiver: int, frame: Any) -> None:
        node = self.nodes[receiver] if self.connections is None else self.connections.receiver(sender, receiver)
        if node.is_running:
            node.arrive(sender, frame)

    def is_heard(self, node: Any, peer: int) -> bool:
        """The peer has let the node in, where that is asked for."""
        return self.connections is None or self.connections.carries(node, peer)

    def link_changed(self, sender: int, receiver: int, *, up: bool) -> None:
        self.trace(f"link {sender} -> {receiver} {'up' if up else 'down'}")
        if self.connections is not None:
            self.connections.link_changed(sender, receiver, up=up)
            return
        if self.wire is not None and not up:
            self.wire.link_down(sender, receiver)
        if self.nodes[sender].is_running:
            self.nodes[sender].link_changed(receiver, up=up)

    def carry(self, sender: int, receiver: int, action: Callable[[Any], None]) -> None:
        """A question or an answer beside the messages: it arrives, late, if both ends live and nothing is cut."""

        def arrive() -> None:
            node = self.nodes[receiver]
            if node.is_running and not self.links[sender, receiver].is_cut:
                action(node)

        if self.links[sender, receiver].is_up:
            self.at(self.now + self.randomness.uniform(0.0002, self.latency_s), arrive)

    # ---- the run

    def run(self) -> None:
        with self.loop.running():
            self._run()

    def _run(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.load.start()
        calm_s = SLOW_CALM_S if self.plan.slow_syncs > SLOW_SYNCS else CALM_S
        if self.plan.calm_start and not self._run_until(calm_s, self.load.serves):
            raise Stuck(f"nothing is served {calm_s} s after the start: {self._state()}")
        self.chaos_begun = True
        self.every(self.plan.fault_every_s, self.faults.one)
        self._run_until(self.now + self.plan.chaos_s)
        self.chaos_over = True
        self._check_not_empty()
        self._liveness()
        if self.plan.peace_s:
            self._peace()
        for judge in self.judges.values():
            judge.finish()
        self.load.finish()
        self.loop.judge()
        for node in self.nodes.values():
            if node.disk.damaged and not node.is_damaged:
                node.must_refuse()

    def close(self) -> None:
        self.loop.close()
        for node in self.nodes.values():
            node.disk.close()

    def start(self, node: Any) -> None:
        if not node.is_running and not node.is_damaged:
            self.trace(f"start {node.id}")
            node.start()

    def _check_not_empty(self) -> None:
        faults = sum(self.done.values())
        if self.load.acknowledged < MIN_ACKNOWLEDGED or faults < MIN_FAULTS:
            raise Empty(f"{self.load.acknowledged} acknowledged events, {faults} faults")

    def _state(self) -> str:
        load = getattr(self.load, "describe", str)()
        return "; ".join([*(node.describe() for node in self.nodes.values()), *([load] if self.plan.moves else [])])

    # ---- the end

    def _liveness(self) -> None:
        self.latency_s, self.slow_syncs = HEALTHY_LATENCY_S, 0.0
        for node in self.nodes.values():
            node.disk.heal()
        if self.plan.core_first and len(self.nodes) > 2:
            self._heal_core()
        self.trace("HEAL everything")
        for link in self.links.values():
            link.heal()
        if self.randomness.random() < 0.5:
            self.faults.replace_the_damaged()
        self._until_healthy(self.nodes.values())

    def _peace(self) -> None:
        """Nobody comes, and no group is disturbed."""
        silent_since_s = self.now

        def is_at_peace() -> bool:
            nonlocal silent_since_s
            running = [node for node in self.nodes.values() if node.is_running]
            if not all(group.is_quiet for node in running for group in node.multiraft.groups.values()):
                silent_since_s = self.now
            return self.now - silent_since_s >= self.plan.peace_s

        if not self._run_until(self.now + PEACE_WITHIN_S, is_at_peace):
            raise Stuck(f"never silent for {self.plan.peace_s} s within {PEACE_WITHIN_S} s of peace: {self._state()}")

    def _is_healthy(self) -> bool:
        awaited = self.faults.copies.awaited or self.faults.impostors.awaited
        return not awaited and self.load.is_healthy()

    def _heal_core(self) -> None:
        whole = [node for node in self.nodes.values() if not node.disk.damaged and not node.lacks_memory]
        majority = len(self.nodes) // 2 + 1
        if len(whole) < majority:
            return
        core = self.randomness.sample(whole, self.randomness.randint(majority, max(majority, len(whole) - 1)))
        ids = {node.id for node in core}
        self.trace(f"HEAL {sorted(ids)}, the others are {self.plan.rest}")
        for (a, b), link in self.links.items():
            if a in ids and b in ids:
                link.heal()
            elif (a in ids) != (b in ids) and self._is_silent(outward=a in ids):
                link.cut(noticed_after=self.randomness.choice((None, 0.02, 1.0)))
            else:
                link.heal()
        for node in self.nodes.values():
            if node.id not in ids and self.plan.rest == "dead":
                self.faults.crash(node)
        self._until_healthy(core)

    def _is_silent(self, *, outward: bool) -> bool:
        """Of a link between the core and the rest; `outward`: from the core."""
        rest = self.plan.rest
        return rest in ("dead", "isolated") or (rest == "deaf") == outward

    def _until_healthy(self, nodes: Any) -> None:
        healthy = [node for node in nodes if not node.is_damaged]
        for node in healthy:
            self.start(node)
        self.load.begin_healing(healthy)
        if not self._run_until(self.now + HEALING_S, self._is_healthy):
            raise Stuck(f"not healthy {HEALING_S} s after healing: {self._state()}")
