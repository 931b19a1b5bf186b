"""Clients of groups that change their members, and an administrator that wishes moves."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.raft import Committed, Outcome, RaftError
from cluster.raft.membership.configuration import Configuration, Replica
from tests.simulation.checker import Violation
from tests.simulation.moving.board import Board
from tests.simulation.moving.judge import MovingJudge
from tests.simulation.moving.node import MovingNode

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

FIRST_GROUP = 7
MOST_VOTERS = 4


class MovingLoad:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.board = self._new_board()
        for group, nodes in self.board.founders.items():
            judge = schedule.judge(group, nodes)
            assert isinstance(judge, MovingJudge)
            self.board.judges[group] = judge
        self._answered: dict[int, list[bytes]] = {group: [] for group in self.board.founders}
        self._markers: dict[int, bytes] = {}
        self._healthy: Sequence[MovingNode] = ()

    def _new_board(self) -> Board:
        schedule = self._schedule
        return Board(
            {},
            {
                FIRST_GROUP + number: tuple(sorted(schedule.randomness.sample(schedule.node_ids, log.replicas)))
                for number, log in enumerate(schedule.plan.logs)
            },
        )

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self._answered.values()))

    def start(self) -> None:
        schedule, plan = self._schedule, self._schedule.plan
        schedule.every(plan.send_every_s, self._send)
        schedule.every(plan.read_every_s, self._read)
        schedule.every(plan.upkeep_every_s, self._compaction)
        schedule.every(plan.admin_every_s, self._wish)

    def serves(self) -> bool:
        return all(self._answered.values())

    # ---- clients

    def _leaders(self, group: int) -> list[Any]:
        return [node for node in self._schedule.nodes.values() if node.leads(group)]

    def _send(self) -> None:
        for group in self.board.founders:
            for node in self._leaders(group):
                for _ in range(self._schedule.randomness.randint(0, 3)):
                    self._propose(node, group, b"%d" % self._schedule.unique())

    def _propose(self, node: Any, group: int, text: bytes) -> None:
        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, Committed):
                self._answered[group].append(text)

        with contextlib.suppress(RaftError):
            node.multiraft.groups[group].propose(b"\0" + text, answered)

    def _read(self) -> None:
        for group, judge in self.board.judges.items():
            for node in self._leaders(group):
                with contextlib.suppress(RaftError):
                    node.read_confirmed(judge)

    def _compaction(self) -> None:
        for node in self._schedule.nodes.values():
            if node.is_running:
                node.compaction()

    # ---- the administrator

    def _wish(self) -> None:
        randomness, board = self._schedule.randomness, self.board
        if randomness.random() < 0.1:
            board.is_held = not board.is_held
        if board.is_held:
            return
        for group, known in board.now().items():
            if known.wish is not None:
                if randomness.random() < 0.15:
                    board.cancel(group)
                    self._schedule.count("cancel")
            elif randomness.random() < 0.7 and not self._schedule.somebody_lacks_memory:
                self._begin(group, known.configuration)

    def _begin(self, group: int, settled: Configuration) -> None:
        randomness, board = self._schedule.randomness, self.board
        voters, learners = sorted(settled.voters), sorted(settled.learners)
        free = [node for node in self._schedule.node_ids if node not in {one.node for one in settled.replicas}]
        kinds = ["swap", "swap", "add"] if free and len(voters) < MOST_VOTERS else ["swap", "swap"] if free else []
        kinds += ["remove", "demote"] if len(voters) > 1 else []
        kinds += ["promote", "drop"] if learners else []
        if not kinds:
            return
        kind, some = randomness.choice(kinds), randomness.choice(voters)
        self._schedule.count(f"move: {kind}")
        self._schedule.trace(f"the board: {kind} in group {group}, {some}")
        if kind in ("swap", "add"):
            board.begin(group, voter=randomness.choice(free), gone=some if kind == "swap" else None)
        elif kind == "remove":
            board.begin(group, gone=some)
        elif kind == "demote":
            board.begin(group, learner=some)
        else:
            other: Replica = randomness.choice(learners)
            if kind == "promote":
                board.begin(group, voter=other.node)
            else:
                board.begin(group, gone=other)

    # ---- nodes that lose their disks

    def can_lose(self, node: MovingNode) -> bool:
        """Every group can go on without what is on that disk, also if it is amid a change."""
        for group, judge in self.board.judges.items():
            known = [judge.latest] if judge.configurations else []
            for other in self._schedule.nodes.values():
                held = other.multiraft.groups.get(group) if other.is_running else None
                if held is not None and held.configuration is not None:
                    known.append(held.configuration)
            if not known or not all(bears_a_loss(one, node.id) for one in known):
                return False
        return True

    def describe(self) -> str:
        """What is missing, for people."""
        known = {group: (one.wish, str(one.configuration)) for group, one in self.board.now().items()}
        marked = {group: marker in self._answered[group] for group, marker in self._markers.items()}
        lacking = [node.id for node in self._schedule.nodes.values() if node.lacks_memory]
        return f"{self.board.length} postings, {known}, marked {marked}, without a memory {lacking}"

    def readmit(self, node: MovingNode) -> None:
        """The board knows already."""

    # ---- the end

    def begin_healing(self, healthy: Sequence[Any]) -> None:
        self._healthy = healthy
        self.board.is_held = False
        self._markers = {group: b"final %d" % self._schedule.unique() for group in self.board.founders}

    def is_healthy(self) -> bool:
        for node in self._healthy:
            node.readmission.look()
        return all([self._is_in_order(group) for group in self.board.founders])  # noqa: C419 - ask all

    def _is_in_order(self, group: int) -> bool:
        known, judge, marker = self.board.now()[group], self.board.judges[group], self._markers[group]
        if marker not in self._answered[group]:
            for node in self._leaders(group):
                self._propose(node, group, marker)
            return False
        if known.wish is not None or any(node.seen < self.board.length for node in self._healthy):
            return False
        if any(node.lacks_memory for node in self._healthy):
            return False
        births = {replica.node: replica.birth for replica in known.configuration.replicas}
        for node in self._healthy:
            held = node.multiraft.groups.get(group)
            if node.id not in births:
                in_order = held is None and group not in node.stored()
            else:
                wanted = (births[node.id], known.configuration)
                in_order = held is not None and (held.birth, held.configuration) == wanted
                in_order = in_order and held is not None and held.applied_index >= judge.highest
            if not in_order:
                return False
        return True

    def finish(self) -> None:
        for group, judge in self.board.judges.items():
            applied = [data for _, data in sorted(judge.committed.items())]
            lost = {b"\0" + text for text in self._answered[group]} - {data for _, data in applied}
            if lost:
                raise Violation(f"group {group}: {len(lost)} acknowledged entries are not there")
            machines = {
                node.id: tuple(node.machines[group].applied) for node in self._healthy if group in node.multiraft.groups
            }
            if len(set(machines.values())) != 1:
                raise Violation(f"group {group}: replicas differ: { {n: len(m) for n, m in machines.items()} }")


def bears_a_loss(configuration: Configuration, node: int) -> bool:
    """No set of voters is that node alone. A single voter's learner counts as one: it may soon take its place."""
    if node not in {replica.node for replica in configuration.replicas}:
        return True
    sets = [one for one in (configuration.voters, configuration.outgoing) if one]
    concerned = [one for one in sets if node in {replica.node for replica in one}] or sets
    return all(len(one) > 1 for one in concerned)
