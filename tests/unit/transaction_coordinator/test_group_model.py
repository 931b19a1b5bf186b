"""A coordinator, three partitions, and runs of one writer that open, join, prepare and commit, through a network that
delays, repeats and reorders every message between them.

The machines are the real ones, and what is random is who hears what when. What must hold: of each batch there is one
decision at most, and what a driver was told stands; nothing of a batch is visible before it, and at the end all of it
is, of each part once, and nothing of anybody else; no member outlives its group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.partition.state_machine import AppendAccepted
from node.partition.transactions.transaction_state import TransactionDone
from node.transaction_coordinator.coordinator_commands import Added, How, Result
from node.transaction_coordinator.transaction_groups import group_state_machine as writers_module
from node.transaction_coordinator.transaction_groups.group_commands import (
    CommitGroup,
    GroupDecided,
    Joined,
    JoinGroup,
    OpenGroup,
    Prepared,
    WriterOpened,
)
from node.transaction_coordinator.transaction_groups.group_state import GroupRecord, MemberRecord
from node.transaction_coordinator.transaction_groups.group_state_machine import Writers
from node.transaction_coordinator.transaction_groups.group_transitions import GroupState, MemberFate
from node.transaction_coordinator.transitions import DECIDED
from tests.unit.partition.transactions.driving import DrivenPartition
from tests.unit.transaction_coordinator.driving import DrivenCoordinator, Pair

PARTITIONS = (11, 12, 13)
PARTS = ("0", "1")

WORDS = [
    *["write"] * 3, *["join"] * 2, *["prepare"] * 3, *["commit"] * 2, "open", "restart run", "late", "late", "abort",
    "markers", "marker", "lease", "restart", "time",
]  # fmt: skip
STEPS = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 40)), max_size=80)


@dataclass
class Attempt:
    member: Joined
    part: str
    batch: int
    added: set[int] = field(default_factory=set)
    written: dict[int, int] = field(default_factory=dict)
    failed: bool = False
    prepared: bool = False


class World:
    def __init__(self) -> None:
        self.coordinator = DrivenCoordinator(epochs=3)
        self.partitions = {group: DrivenPartition() for group in PARTITIONS}
        self.run, self.batch = 0, 0
        self.attempts: list[Attempt] = []  # of the batch that the present run writes
        self.zombies: list[Attempt] = []
        self.late: list[Callable[[], object]] = []  # messages that the network keeps, to be delivered (again) some day
        self.accepted: dict[Pair, list[tuple[int, int]]] = {}  # member -> (partition, offset) of its events
        self.parts: dict[Pair, tuple[int, str]] = {}  # member -> batch and part
        self.asked: dict[int, list[frozenset[Pair]]] = {}  # batch -> what drivers wanted to win
        self.done: set[int] = set()  # batches that a driver was told are committed
        self.joins = 0

    # ------------------------------------------------------------ a driver

    @property
    def run_name(self) -> str:
        return f"run-{self.run}"

    def ask(self, question: Callable[[], Result]) -> Result:
        self.late.append(question)
        return question()

    def open(self) -> None:
        command = OpenGroup("w", self.batch, self.run_name, "", 5_000, self.coordinator.now_ms)
        answer = self.ask(lambda: self.coordinator.apply(command))
        if isinstance(answer, WriterOpened) and answer.already_done:
            self.next_batch()

    def next_batch(self) -> None:
        self.batch += 1
        self.zombies += self.attempts
        self.attempts = []

    def restart_run(self, number: int) -> None:
        """The driver died; the next one begins with the batch before, at times."""
        self.run += 1
        self.zombies += self.attempts
        self.attempts = []
        self.batch = max(0, self.batch - number % 2)
        self.open()

    def commit(self) -> None:
        """As a driver does: one prepared attempt of each part."""
        ready = {one.part: one for one in self.attempts if one.prepared and one.batch == self.batch}
        if len(ready) < len(PARTS):
            return
        pairs = frozenset((one.member.producer_id, one.member.epoch) for one in ready.values())
        winners = [one.member.member for one in ready.values()]
        command = CommitGroup("w", self.batch, self.run_name, winners, self.coordinator.now_ms)
        self.asked.setdefault(self.batch, []).append(pairs)
        answer = self.ask(lambda: self.coordinator.apply(command))
        if isinstance(answer, GroupDecided):
            assert answer.committed
            self.done.add(self.batch)
            if answer.complete:
                self.next_batch()

    # ------------------------------------------------------------ tasks

    def join(self, number: int) -> None:
        self.joins += 1
        part, holder = PARTS[number % 2], str(self.joins)
        command = JoinGroup("w", self.batch, self.run_name, part, holder, holder, 2000, self.coordinator.now_ms)
        answer = self.ask(lambda: self.coordinator.apply(command))
        if isinstance(answer, Joined):
            pair = (answer.producer_id, answer.epoch)
            assert pair not in self.parts, "a pair is one member's"
            self.parts[pair] = (self.batch, part)
            self.attempts.append(Attempt(answer, part, self.batch))

    def chosen(self, number: int) -> Attempt | None:
        everybody = [*self.attempts, *self.zombies[-2:]]
        return everybody[number % len(everybody)] if everybody else None

    def write(self, number: int) -> None:
        one = self.chosen(number)
        if one is None or one.prepared:
            return
        group, pair = PARTITIONS[number % 3], (one.member.producer_id, one.member.epoch)
        if group not in one.added:
            added = self.ask(lambda: self.coordinator.write(one.member, group))
            begun = self.partitions[group].begin(*pair)
            self.late.append(lambda: self.partitions[group].begin(*pair))
            if not isinstance(added, Added) or not isinstance(begun, TransactionDone):
                one.failed = True
                return
            one.added.add(group)
        first = one.written.get(group, 0)
        one.written[group] = first + 1
        self.late.append(lambda: self.send(group, pair, first))
        if not self.send(group, pair, first):
            one.failed = True

    def send(self, group: int, pair: Pair, first: int) -> bool:
        result = self.partitions[group].send(*pair, first, "x")
        if not isinstance(result, AppendAccepted):
            return False
        if result.count:
            self.accepted.setdefault(pair, []).append((group, result.base_offset))
        return True

    def prepare(self, number: int) -> None:
        one = self.chosen(number)
        if one is None or one.failed:
            return
        if isinstance(self.ask(lambda: self.coordinator.prepare(one.member)), Prepared):
            one.prepared = True

    # ------------------------------------------------------------ a coordinator's leader

    def markers(self, only: int | None = None) -> None:
        for one in self.coordinator.machine.decided():
            commit = bool(self.coordinator.machine.outcome(*one.pair))
            for group in one.groups:
                if only is None or group == only:
                    self.mark(group, one.pair, commit)
            if only is None:
                name, pair = one.name, one.pair
                self.ask(lambda name=name, pair=pair: self.coordinator.complete(pair, name))

    def mark(self, group: int, pair: Pair, commit: bool) -> None:
        self.partitions[group].end(*pair, commit=commit)
        self.late.append(lambda: self.partitions[group].end(*pair, commit=commit))

    def lose_lease(self, number: int) -> None:
        leased = self.coordinator.machine.writers.leased()
        if leased:
            member = leased[number % len(leased)]
            self.ask(lambda: self.coordinator.expire_member(Joined(member.id, 0, 0, 0, 0)))

    def pass_time(self, ms: int) -> None:
        self.coordinator.now_ms += ms
        machine = self.coordinator.machine
        for _, group in machine.writers.overdue(machine.lived_ms(self.coordinator.now_ms)):
            self.coordinator.expire_group(group.batch)

    # ------------------------------------------------------------ the rest of the world

    def step(self, what: str, number: int) -> None:
        match what:
            case "open":
                self.open()
            case "restart run":
                if number % 3 == 0:
                    self.restart_run(number)
            case "join":
                self.join(number)
            case "write":
                self.write(number)
            case "prepare":
                self.prepare(number)
            case "commit":
                self.commit()
            case "abort":
                if number % 4 == 0:
                    self.ask(lambda batch=self.batch, run=self.run_name: self.coordinator.abort_group(batch, run))
            case "late":
                if self.late:
                    self.late[number % len(self.late)]()
            case "markers":
                self.markers()
            case "marker":
                self.markers(only=PARTITIONS[number % 3])
            case "lease":
                self.lose_lease(number)
            case "restart":
                self.coordinator.restart()
                self.partitions[PARTITIONS[number % 3]].restart()
            case "time":
                self.pass_time(1000)
        self.check()

    def check(self) -> None:
        """At any moment."""
        machine = self.coordinator.machine
        writer = machine.writers.get("w")
        group = None if writer is None else writer.group
        alive = set() if group is None else {(one.producer_id, one.epoch) for one in group.members}
        for one in machine:
            assert not one.writer or one.pair in alive or one.state in DECIDED, f"{one.name} outlives its group"
        closed = -1 if writer is None else writer.closed
        for pair in self.accepted:
            batch, _ = self.parts[pair]
            deciding = group is not None and group.batch == batch and group.state is GroupState.DECIDING
            if batch > closed and not deciding:
                assert not self.is_visible(pair, everywhere=False), f"{pair} is visible, and batch {batch} not decided"

    def is_visible(self, pair: Pair, *, everywhere: bool) -> bool:
        """Below the last stable offset, and not aborted."""
        seen = [
            offset < self.partitions[group].stable_offset
            and not self.partitions[group].machine.transactions.is_aborted(pair, offset)
            for group, offset in self.accepted[pair]
        ]
        return all(seen) if everywhere else any(seen)

    def settle(self) -> None:
        """Time ends what is open, and partitions pull what they missed."""
        for _ in range(3):
            self.pass_time(6000)
            self.markers()
        for partition in self.partitions.values():
            for open_transaction in partition.machine.transactions.open():
                outcome = self.coordinator.machine.outcome(*open_transaction.key)
                assert outcome is not None
                partition.end(*open_transaction.key, commit=outcome)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_a_batch_is_decided_once_and_seen_as_it_was_decided(steps: list[tuple[str, int]]) -> None:
    play(steps)


def play(steps: list[tuple[str, int]]) -> World:
    """Raises AssertionError when something does not hold."""
    world = World()
    world.open()
    for step in steps:
        world.step(*step)
    world.settle()
    assert len(world.coordinator.machine) == 0, "members are gone"
    assert world.coordinator.group is None
    for partition in world.partitions.values():
        assert partition.machine.transactions.open() == []
        assert partition.stable_offset == partition.machine.state.next_offset
    visible: dict[int, set[Pair]] = {}
    for pair, events in world.accepted.items():
        seen = world.is_visible(pair, everywhere=True)
        assert seen == world.is_visible(pair, everywhere=False), f"{pair} was torn: {events}"
        if seen:
            visible.setdefault(world.parts[pair][0], set()).add(pair)
    for batch, pairs in visible.items():
        assert any(pairs <= winners for winners in world.asked[batch]), f"batch {batch}: {pairs} were never chosen so"
        parts = [world.parts[pair][1] for pair in pairs]
        assert len(parts) == len(set(parts)), f"batch {batch} holds a part twice"
    for batch in world.done:
        chosen = world.asked[batch]
        wrote = [{pair for pair in winners if world.accepted.get(pair)} for winners in chosen]
        assert visible.get(batch, set()) in wrote, f"batch {batch} was told to be committed: {visible.get(batch)}"
    return world


DIRECT = [
    ("join", 0), ("join", 1), ("join", 0), ("write", 0), ("write", 1), ("write", 2), ("prepare", 0), ("prepare", 1),
    ("prepare", 2), ("commit", 0), ("marker", 0), ("write", 2), ("join", 1), ("open", 0), ("markers", 0), ("late", 9),
    ("restart run", 3), ("open", 0), ("join", 0), ("join", 1), ("write", 0), ("write", 1),
]  # fmt: skip


def test_the_model_commits_batches() -> None:
    """A plain story, so that the model is known to get anywhere."""
    world = play(DIRECT)
    assert world.done == {0}
    assert sum(world.is_visible(pair, everywhere=True) for pair in world.accepted) == 2


# ---------------------------------------------------------------- the model notices


def _decides_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that comes again, with other winners, is taken for a new one."""
    commit = Writers._commit

    def anew(self: Writers, command: CommitGroup) -> Result:
        writer = self.get(command.writer)
        if writer is not None and writer.group is not None and writer.group.state is GroupState.DECIDING:
            writer.group.state = GroupState.OPEN
            for member in writer.group.members:
                member.fate = MemberFate.PREPARED
        return commit(self, command)

    monkeypatch.setattr(Writers, "_commit", anew)


def _losers_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Writers._end

    def winners_only(self: Writers, member: MemberRecord, *, commit: bool, how: How) -> bool:
        return how != "group" and end(self, member, commit=commit, how=how)

    monkeypatch.setattr(Writers, "_end", winners_only)


def _unprepared_members_win(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Writers._commit

    def whoever(self: Writers, command: CommitGroup) -> Result:
        writer = self.get(command.writer)
        for member in [] if writer is None or writer.group is None else writer.group.members:
            if member.fate is MemberFate.JOINED:
                member.fate = MemberFate.PREPARED
            command.winners.append(member.id) if member.id not in command.winners else None
        return commit(self, command)

    monkeypatch.setattr(Writers, "_commit", whoever)
    monkeypatch.setattr(writers_module, "unfit", lambda *_: None)


def _closes_before_the_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And forgets the members, with what they still owe."""

    def forgetting(self: Writers, writer: object, group: GroupRecord) -> None:
        for member in group.members:
            one = self._transactions.get(f"$member-{member.id}")  # type: ignore[attr-defined]
            if one is not None:
                self._transactions._drop(one)  # type: ignore[attr-defined]
        close(self, writer, group)  # type: ignore[arg-type]

    close = Writers._close
    monkeypatch.setattr(Writers, "_close", forgetting)
    commit = Writers._commit

    def at_once(self: Writers, command: CommitGroup) -> Result:
        answer = commit(self, command)
        writer = self.get(command.writer)
        if isinstance(answer, GroupDecided) and writer is not None and writer.group is not None:
            self._close(writer, writer.group)
        return answer

    monkeypatch.setattr(Writers, "_commit", at_once)


FAULTS = [_decides_again, _losers_live_on, _unprepared_members_win, _closes_before_the_markers]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_notices(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)

    @settings(max_examples=2000, deadline=None, database=None, derandomize=True)
    @given(STEPS.map(lambda steps: [*DIRECT[:9], *steps[:20], *DIRECT[9:], *steps[20:]]))
    def look(steps: list[tuple[str, int]]) -> None:
        play(steps)

    with pytest.raises((AssertionError, KeyError)):
        look()
