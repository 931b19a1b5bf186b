"""One random schedule: a cluster, a while of faults and client input, then healing and a verdict.

Everything random comes from one generator seeded by the schedule's number, and time is a heap of events, so
the number replays the schedule exactly. A schedule picks its own cluster size, options and mix of faults
first; then it breaks things until `chaos_s` of virtual time are over; then it heals everything and demands
that the cluster elects, commits and agrees within `HEALING_S`.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cluster.raft import RaftOptions
from tests.simulation.checker import Checker, Violation
from tests.simulation.network import Link

HEALING_S = 12.0
"""Virtual time in which a healed cluster must be in order: many election timeouts."""
HEALTHY_LATENCY_S = 0.002
LINK_FAULTS = ("stall", "reset", "cut", "replay", "stutter")
MAX_EVENTS = 400_000
"""A schedule with more events than this spins."""
TRACE_LINES = 400
TRIMMED_TAIL = 30


class Stuck(Violation):
    """The cluster did not become healthy."""


@dataclass(frozen=True)
class Plan:
    """What a schedule is made of. Weights are relative frequencies of faults."""

    nodes: int
    preferred: int | None
    groups: int
    chaos_s: float
    fault_every_s: float
    burst_every_s: float
    latency_s: float
    bounce_voters: float
    weights: dict[str, float]
    wild: bool
    power_loss: bool
    options: RaftOptions

    @staticmethod
    def draw(randomness: random.Random) -> Plan:
        wild = randomness.random() < 0.6
        replicated = randomness.random() < 0.15
        nodes = randomness.choices((1, 2, 3, 5), (1, 1, 14, 6))[0]
        weights = {
            "stall": randomness.uniform(0.5, 3),
            "reset": randomness.uniform(0.5, 3),
            "cut": randomness.choice((0.0, 1.0)),
            "isolate": randomness.choice((0.0, 0.5, 1.0)),
            "heal": 2.0,
            "crash": randomness.choice((0.0, 1.0, 3.0)),
            "crash_all": randomness.choice((0.0, 0.0, 0.2)),
            "start": 3.0,
            "pause": randomness.choice((0.0, 1.0, 2.0)),
            "replay": randomness.choice((1.0, 4.0)) if wild else 0.0,
            "stutter": randomness.choice((0.0, 1.0)) if wild else 0.0,
            "bounce": randomness.choice((0.0, 1.0)),
            "trim": randomness.choice((0.0, 1.0)),
            "transfer": randomness.choice((0.0, 1.0)),
        }
        options = RaftOptions(
            durability="replicated" if replicated else "fsync",
            eager_appends=randomness.random() < 0.5,
            max_append_entries=randomness.choice((1, 3, 8, 1024)),
            window_messages=randomness.choice((1, 2, 64)),
            apply_entries_per_tick=randomness.choice((1, 4, 1024)),
            checkpoint_entries=randomness.choice((3, 20, 4096)),
            prefer_after_s=randomness.choice((0.3, 3.0)),
            prefer_retry_s=1.0,
            tail_cache_bytes=randomness.choice((0, 300, 1 << 20)),
        )
        return Plan(
            nodes=nodes,
            preferred=randomness.choice((None, randomness.randint(1, nodes))),
            groups=2 if randomness.random() < 0.15 else 1,
            chaos_s=randomness.uniform(6.0, 14.0),
            fault_every_s=randomness.choice((0.05, 0.1, 0.25)),
            burst_every_s=randomness.choice((0.05, 0.1, 0.2)),
            latency_s=randomness.choice((0.002, 0.002, 0.01, 0.05)),
            bounce_voters=randomness.choice((0.0, 0.0, 0.3)),
            weights=weights,
            wild=wild,
            power_loss=not replicated,
            options=options,
        )

    def varied(self, **changes: Any) -> Plan:
        return replace(self, **changes)


class Schedule:
    def __init__(
        self,
        seed: int,
        make_node: Callable[[Schedule, int, RaftOptions], Any],
        *,
        plan: Callable[[Plan], Plan] = lambda drawn: drawn,
        tracing: bool = False,
    ) -> None:
        self.seed = seed
        self.tracing = tracing
        self.lines: deque[str] = deque(maxlen=TRACE_LINES)
        self.randomness = random.Random(seed)
        self.plan = plan(Plan.draw(self.randomness))
        self.now = 0.0
        self.latency_s = self.plan.latency_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = 0
        self._unique = 0
        self._chaos_over = False
        self._healthy = False
        self.node_ids = list(range(1, self.plan.nodes + 1))
        self.checkers = {group: Checker() for group in range(1, self.plan.groups + 1)}
        self.links = {(a, b): Link(self, a, b) for a in self.node_ids for b in self.node_ids if a != b}
        self.nodes = {node: make_node(self, node, self.plan.options) for node in self.node_ids}
        self.faults = {name: getattr(self, f"_fault_{name}") for name in self.plan.weights}

    # ---- engine

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._tie += 1
        heapq.heappush(self._events, (max(time, self.now), self._tie, action))

    def trace(self, text: str) -> None:
        if self.tracing:
            self.lines.append(f"{self.now:9.4f} {text}")

    def unique(self) -> int:
        self._unique += 1
        return self._unique

    def _run_until(self, end: float) -> None:
        count = 0
        while not self._healthy and self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
            count += 1
            if count > MAX_EVENTS:
                raise Stuck(f"over {MAX_EVENTS} events by {self.now:.3f} s")
        self.now = self.now if self._healthy else end

    # ---- what links report

    def arrive(self, sender: int, receiver: int, frame: bytes) -> None:
        if self.nodes[receiver].is_running:
            self.nodes[receiver].arrive(sender, frame)

    def link_changed(self, sender: int, receiver: int, *, up: bool) -> None:
        self.trace(f"link {sender} -> {receiver} {'up' if up else 'down'}")
        if self.nodes[sender].is_running:
            self.nodes[sender].link_changed(receiver, up=up)

    # ---- the run

    def run(self) -> None:
        for node in self.nodes.values():
            node.start()
        self._later(self.plan.fault_every_s, self._fault)
        self._later(self.plan.burst_every_s, self._burst)
        self._run_until(self.plan.chaos_s)
        self._chaos_over = True
        self._heal_all()
        self._look_after()
        self._run_until(self.now + HEALING_S)
        if not self._healthy:
            state = "; ".join(node.describe() for node in self.nodes.values())
            raise Stuck(f"not healthy {HEALING_S} s after healing: {state}")
        for group_id, checker in self.checkers.items():
            checker.finish(node.log(group_id) for node in self.nodes.values())

    def _later(self, mean_s: float, action: Callable[[], None]) -> None:
        def again() -> None:
            if not self._chaos_over:
                action()
                self.at(self.now + self.randomness.expovariate(1 / mean_s), again)

        self.at(self.now + self.randomness.expovariate(1 / mean_s), again)

    def _burst(self) -> None:
        """Clients write to every node that believes it leads."""
        for group_id in self.checkers:
            for node in self.nodes.values():
                if node.is_leader(group_id):
                    for _ in range(self.randomness.randint(1, 4)):
                        size = self.randomness.choice((0, 10, 200))
                        node.propose(group_id, b"\0%d." % self.unique() + b"x" * size)

    def answered(self, node: Any) -> None:
        """Some clients go on writing at once, from inside the answer, to whatever group."""
        group_id = self.randomness.choice(list(self.checkers))
        if not self._chaos_over and self.randomness.random() < 0.2 and node.is_leader(group_id):
            node.propose(group_id, b"\0%d." % self.unique())

    # ---- faults

    def _fault(self) -> None:
        names = [name for name in self.plan.weights if self.links or name not in LINK_FAULTS]
        name = self.randomness.choices(names, [self.plan.weights[n] for n in names])[0]
        self.faults[name]()

    def _some_link(self) -> Link:
        return self.links[self.randomness.choice(list(self.links))]

    def _some_node(self) -> Any:
        """Leaders suffer more often than others."""
        if self.randomness.random() < 0.4:
            leaders = [node for node in self.nodes.values() if node.is_leader(1)]
            if leaders:
                return self.randomness.choice(leaders)
        return self.nodes[self.randomness.choice(self.node_ids)]

    def _fault_stall(self) -> None:
        link = self._some_link()
        seconds = self.randomness.choice((0.02, 0.1, 0.5, 1.5))
        self.trace(f"FAULT stall {link.sender} -> {link.receiver} {seconds} s")
        link.stall(seconds)

    def _fault_reset(self) -> None:
        link = self._some_link()
        self.trace(f"FAULT reset {link.sender} -> {link.receiver}")
        link.reset(wild=self.plan.wild)

    def _fault_replay(self) -> None:
        link = self._some_link()
        self.trace(f"FAULT replay {link.sender} -> {link.receiver}")
        link.replay()

    def _fault_stutter(self) -> None:
        link = self._some_link()
        self.trace(f"FAULT stutter {link.sender} -> {link.receiver}")
        link.stutter(self.randomness.uniform(0.05, 1.0))

    def _fault_cut(self) -> None:
        link = self._some_link()
        self.trace(f"FAULT cut {link.sender} -> {link.receiver}")
        link.cut(noticed_after=self.randomness.choice((None, 0.02, 1.0)))

    def _fault_isolate(self) -> None:
        node = self._some_node().id
        self.trace(f"FAULT isolate {node}")
        noticed_after = self.randomness.choice((None, 0.02, 1.0))
        for (a, b), link in self.links.items():
            if node in (a, b):
                link.cut(noticed_after=noticed_after)

    def _fault_heal(self) -> None:
        self.trace("FAULT heal links")
        for link in self.links.values():
            link.heal()

    def _fault_crash(self) -> None:
        self._crash(self._some_node())

    def _fault_crash_all(self) -> None:
        for node in self.nodes.values():
            self._crash(node)

    def _fault_bounce(self) -> None:
        """A supervisor restarts the process at once."""
        self._bounce(self._some_node(), down_s=self.randomness.uniform(0.002, 0.1))

    def _bounce(self, node: Any, down_s: float) -> None:
        self._crash(node)
        self.at(self.now + down_s, lambda: self._start(node))

    def voted(self, node: Any) -> None:
        """A node has just given its vote away: the moment at which forgetting it hurts most."""
        if not self._chaos_over and self.randomness.random() < self.plan.bounce_voters:
            self.at(self.now + self.randomness.uniform(0.0, 0.02), lambda: self._bounce(node, down_s=0.001))

    def _crash(self, node: Any) -> None:
        if not node.is_running:
            return
        power = self.plan.power_loss and self.randomness.random() < 0.7
        self.trace(f"FAULT {'power loss' if power else 'kill'} {node.id}")
        node.crash(lose_unsynced=power)
        for (a, b), link in self.links.items():
            if node.id == b and link.is_up and self.randomness.random() < 0.7:
                link.reset(wild=self.plan.wild)
            elif node.id == a and self.plan.wild is False:
                link.reset(wild=False)

    def _fault_start(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_running]
        if down:
            self._start(self.randomness.choice(down))

    def _start(self, node: Any) -> None:
        if not node.is_running:
            self.trace(f"start {node.id}")
            node.start()

    def _fault_pause(self) -> None:
        node = self._some_node()
        if node.is_running:
            seconds = self.randomness.choice((0.05, 0.3, 1.0, 2.0))
            self.trace(f"FAULT pause {node.id} {seconds} s")
            node.pause(seconds)

    def _fault_trim(self) -> None:
        for group_id in self.checkers:
            for node in self.nodes.values():
                if node.is_leader(group_id):
                    node.propose_trim(group_id, self.randomness.randint(0, TRIMMED_TAIL))

    def _fault_transfer(self) -> None:
        for group_id in self.checkers:
            for node in self.nodes.values():
                if node.is_leader(group_id):
                    node.transfer(group_id, self.randomness.choice(self.node_ids))

    # ---- the end

    def _heal_all(self) -> None:
        self.trace("HEAL everything")
        self.latency_s = HEALTHY_LATENCY_S
        for link in self.links.values():
            link.heal()
        for node in self.nodes.values():
            self._start(node)
        self._final: dict[int, bytes] = {}

    def _look_after(self) -> None:
        """Healthy: every group has one leader that is ready, and everybody applied an entry proposed after healing."""
        self._healthy = all([self._group_is_healthy(group_id) for group_id in self.checkers])  # noqa: C419 - look at all
        self.at(self.now + 0.02, self._look_after)

    def _group_is_healthy(self, group_id: int) -> bool:
        checker = self.checkers[group_id]
        marker = self._final.get(group_id)
        if marker is None or marker not in {data for _, data in checker.acknowledged.values()}:
            if marker is None or marker not in checker.unanswered:
                for node in self.nodes.values():
                    if node.is_ready(group_id):
                        marker = b"\0final %d" % self.unique()
                        if node.propose(group_id, marker):
                            self._final[group_id] = marker
            return False
        return all(
            node.applied(group_id) >= checker.highest and not (node.answers_everything and checker.unanswered)
            for node in self.nodes.values()
        )
