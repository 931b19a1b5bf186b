"""A coordinator and three partitions, with a network that delays, repeats and reorders every message between them.

Nobody here is a server: the machines are the real ones, and what is random is who hears what when. What must hold at
the end, when every partition has asked for what it missed: each transaction is visible in all of its partitions or in
none; what was told to be committed is; nothing is open; and no event has found its way into another transaction.

Half of the writers begin in a partition with their first event there, while the coordinator's note of it is on its way,
where it may stay for ever. Those ask for the end right behind another one.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from node.client_transactions.transactional_producer import DECIDED
from node.partition.state_machine import AppendAccepted
from node.partition.transactions.transaction_state import TransactionDone
from node.transaction_coordinator.coordinator_commands import Added, Decided, Declined, Registered
from tests.unit.partition.transactions.driving import DrivenPartition
from tests.unit.transaction_coordinator.driving import DrivenCoordinator, Pair

PARTITIONS = (11, 12, 13)

WORDS = [*["write"] * 3, "commit", "abort", "late", "late", "drop", "markers", "usurp", "restart", "time", "ask"]
STEPS = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 40)), max_size=70)


class World:
    def __init__(self) -> None:
        self.coordinator = DrivenCoordinator(epochs=3)
        self.partitions = {group: DrivenPartition() for group in PARTITIONS}
        self.pair: Pair = self.coordinator.registered(timeout_ms=1000)
        self.holder = 0
        self.added: set[int] = set()
        self.unnoted: set[int] = set()  # written to, and the coordinator's note is on its way
        self.begun: set[int] = set()
        self.failed = False
        self.ended = False  # its end was asked for: the producer begins nothing more under the pair
        self.written: dict[int, int] = {}
        self.late: list[Callable[[], object]] = []  # messages that the network keeps, to be delivered (again) some day
        self.accepted: dict[Pair, list[tuple[int, int]]] = {}  # transaction -> (partition, offset) of its events
        self.told: dict[Pair, bool] = {}  # what clients were told

    # ------------------------------------------------------------ a producer, through a gateway

    def write(self, number: int) -> None:
        group = PARTITIONS[number % 3]
        pair, partition = self.pair, self.partitions[group]
        if group not in self.added | self.unnoted and number // 3 % 2 and not self.ended:
            self.unnoted.add(group)
            self.keep(lambda: self.coordinator.add(pair, group))
        elif group not in self.added | self.unnoted:
            if not isinstance(self.coordinator.add(pair, group), Added):
                return
            self.added.add(group)
            self.keep(lambda: self.coordinator.add(pair, group))
        if group not in self.begun:
            if not isinstance(partition.begin(*pair), TransactionDone):
                self.failed = True
                return
            self.begun.add(group)
            self.keep(lambda: partition.begin(*pair))
        first = self.written.get(group, 0)
        self.keep(lambda: self.send(group, pair, first))
        if not self.send(group, pair, first):
            self.failed = True
        self.written[group] = first + 1

    def send(self, group: int, pair: Pair, first: int) -> bool:
        result = self.partitions[group].send(*pair, first, "x")
        if isinstance(result, AppendAccepted):
            if result.count:
                self.accepted.setdefault(pair, []).append((group, result.base_offset))
            return True
        return False

    def end(self, commit: bool, *, at_once: bool) -> None:
        """Partitions are not asked first: only who stages offsets in them has to. `at_once`: the markers leave."""
        pair, self.ended = self.pair, True
        commit, unnoted = commit and not self.failed, sorted(self.unnoted)

        def note_and_end() -> None:
            if unnoted:  # whatever comes of that
                self.coordinator.add(pair, *unnoted)
            result = self.coordinator.end(pair, commit=commit)
            if isinstance(result, Decided):
                assert self.told.setdefault(pair, result.committed) == result.committed
            elif commit and isinstance(result, Declined) and result.code in DECIDED:
                assert self.told.setdefault(pair, False) is False

        note_and_end()
        self.keep(note_and_end)
        if at_once:
            self.markers()

    # ------------------------------------------------------------ a coordinator's leader

    def markers(self, only: int | None = None) -> None:
        for one in self.coordinator.machine.decided():
            commit = bool(self.coordinator.machine.outcome(*one.pair))
            for group in one.groups:
                if only is None or group == only:
                    self.mark(group, one.pair, commit)
            if only is None:
                pair = one.pair
                self.coordinator.complete(pair)
                self.keep(lambda pair=pair: self.coordinator.complete(pair))
        self.renew()

    def mark(self, group: int, pair: Pair, commit: bool) -> None:
        self.partitions[group].end(*pair, commit=commit)
        self.keep(lambda: self.partitions[group].end(*pair, commit=commit))

    def renew(self) -> None:
        """The producer goes on with whatever pair is its next one."""
        one = self.coordinator.machine.get("t")
        assert one is not None
        if one.pair != self.pair:
            self.pair = one.pair
            self.added, self.unnoted, self.begun, self.written = set(), set(), set(), {}
            self.failed = self.ended = False

    # ------------------------------------------------------------ a partition's leader

    def ask(self, group: int, *, overdue: bool) -> None:
        """What became of what is open there."""
        for one in self.partitions[group].machine.transactions.open():
            if overdue and self.coordinator.machine.next_of(*one.key) is not None:
                self.coordinator.fence(one.key)
            outcome = self.coordinator.machine.outcome(*one.key)
            if outcome is not None:
                self.mark(group, one.key, outcome)
        self.renew()

    # ------------------------------------------------------------ the rest of the world

    def keep(self, message: Callable[[], object]) -> None:
        self.late.append(message)

    def step(self, what: str, number: int) -> None:
        if what == "write":
            self.write(number)
        elif what in ("commit", "abort"):
            self.end(what == "commit", at_once=number % 2 == 0)
        elif what == "late" and self.late:
            self.late[number % len(self.late)]()
            self.renew()
        elif what == "drop":  # a marker reaches one partition only, for now
            pair = self.pair
            if isinstance(self.coordinator.end(pair, commit=False), Decided):
                self.told.setdefault(pair, bool(self.coordinator.machine.outcome(*pair)))
            self.markers(only=PARTITIONS[number % 3])
        elif what == "markers":
            self.markers()
        elif what == "usurp":
            self.holder += 1
            result = self.coordinator.register(holder=str(self.holder), timeout_ms=1000)
            if isinstance(result, Registered):
                self.renew()
        elif what == "restart":
            self.coordinator.restart()
            self.partitions[PARTITIONS[number % 3]].restart()
        elif what == "time":
            self.coordinator.now_ms += 600
            for one in self.coordinator.machine.overdue(self.coordinator.now_ms):
                self.coordinator.expire(one.pair)
        elif what == "ask":
            self.ask(PARTITIONS[number % 3], overdue=number // 3 % 2 == 0)

    def settle(self) -> None:
        """Everybody comes back: what is open is ended by time, and partitions pull what they missed."""
        for _ in range(2):
            self.coordinator.now_ms += 2000
            for one in self.coordinator.machine.overdue(self.coordinator.now_ms):
                self.coordinator.expire(one.pair)
            self.markers()
        for group in self.partitions:
            self.ask(group, overdue=True)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_a_transaction_is_seen_everywhere_or_nowhere(steps: list[tuple[str, int]]) -> None:
    play(steps)


def play(steps: list[tuple[str, int]]) -> None:
    """Raises AssertionError when something does not hold."""
    world = World()
    for step in steps:
        world.step(*step)
    world.settle()
    for partition in world.partitions.values():
        assert partition.machine.transactions.open() == []
        assert partition.stable_offset == partition.machine.state.next_offset
    for pair, events in world.accepted.items():
        aborted = {world.partitions[group].machine.transactions.is_aborted(pair, offset) for group, offset in events}
        assert len(aborted) == 1, f"{pair} was torn: {events}"
        if pair in world.told:
            assert aborted == {not world.told[pair]}, f"the client of {pair} was told {world.told[pair]}"
    stored = sum(partition.machine.state.next_offset for partition in world.partitions.values())
    assert stored == sum(map(len, world.accepted.values())), "an event belongs to one transaction"
