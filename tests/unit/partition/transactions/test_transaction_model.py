"""Random lives of transactions, each message delayed, repeated and overtaken, against a model that knows the truth.

What must hold after each entry: the last stable offset never falls, and what a committed reader sees below it never
changes; at the end it is exactly the events of committed transactions, in the order of the log.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from node.partition.partition_commands import Trim, encode_transaction_command
from node.partition.state_machine import IndexBatch
from node.partition.transactions.transaction_commands import Begin
from tests.batches import records_in
from tests.unit.partition.transactions.driving import TIMEOUT_MS, DrivenPartition, batch, marker

PRODUCERS = 3
WORDS = ["begin", "delay", "send", "send", "end", "whole", "again", "plain", "trim", "restart"]


Step = tuple[str, int, int, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(WORDS),
        st.integers(0, PRODUCERS - 1),
        st.integers(0, 30),
        st.integers(0, 1),
    ),
    max_size=60,
)


class World:
    """Coordinators that follow the rules, and a network that keeps every message and delivers it again at will."""

    def __init__(self) -> None:
        self.partition = DrivenPartition()
        self.epoch = dict.fromkeys(range(PRODUCERS), 0)
        self.sent = dict.fromkeys(range(PRODUCERS), 0)
        self.decided: dict[tuple[int, int], bool] = {}
        self.kept: list[bytes] = []
        self.rows: list[tuple[int, bytes, tuple[int, int] | None]] = []  # offset, record, transaction
        self.seen: list[tuple[int, bytes]] = []
        self.stable = 0

    def deliver(self, entry: bytes) -> None:
        self.kept.append(entry)
        self.apply(entry)

    def apply(self, entry: bytes) -> None:
        partition = self.partition
        partition.index += 1
        _, effects = partition.machine.apply(partition.index, entry)
        for effect in effects:
            if isinstance(effect, IndexBatch):
                records = records_in(entry)[effect.skip :]
                self.rows += [
                    (effect.base_offset + place, record, effect.transaction) for place, record in enumerate(records)
                ]
        self.check()

    def check(self) -> None:
        machine = self.partition.machine
        assert machine.stable_offset >= self.stable, "the last stable offset fell"
        self.stable = machine.stable_offset
        visible = [
            (offset, record)
            for offset, record, transaction in self.rows
            if machine.state.start_offset <= offset < self.stable
            and (transaction is None or not machine.transactions.is_aborted(transaction, offset))
        ]
        seen = [(offset, record) for offset, record in self.seen if offset >= machine.state.start_offset]
        assert visible[: len(seen)] == seen, "what a committed reader has seen has changed"
        self.seen = visible

    def step(self, what: str, producer: int, number: int, commit: int) -> None:
        epoch = self.epoch[producer]
        if what == "begin":
            self.deliver(encode_transaction_command(Begin(producer, epoch, 3, TIMEOUT_MS, 1)))
        elif what == "delay":  # the begin is under way for a long time
            self.kept.append(encode_transaction_command(Begin(producer, epoch, 3, TIMEOUT_MS, 1)))
        elif what == "send":
            first = self.sent[producer]
            letters = "abcdefgh"[: 1 + number % 4]
            before = self.partition.machine.state.next_offset
            self.deliver(batch(producer, epoch, first, letters, 1))
            if self.partition.machine.state.next_offset > before:
                self.sent[producer] += len(letters)
        elif what == "end":
            self.decided[producer, epoch] = bool(commit)
            self.deliver(marker(producer, epoch, commit=bool(commit), now_ms=1))
            self.epoch[producer], self.sent[producer] = epoch + 1, 0
        elif what == "whole":
            for part in ("begin", "send", "end"):
                self.step(part, producer, number, commit)
        elif what == "again" and self.kept:
            self.apply(self.kept[number % len(self.kept)])
        elif what == "plain":
            self.partition.plain()
            self.rows.append((self.partition.machine.state.next_offset - 1, b"p", None))
            self.check()
        elif what == "trim":
            state = self.partition.machine.state
            offset = state.start_offset + 1 + number % 4
            self.partition.apply(Trim(offset, state.trimmed_index + 1, state.trimmed_bytes).encode())
            self.check()
        elif what == "restart":
            self.partition.restart()
            self.check()


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_a_committed_reader_sees_what_was_committed_and_it_never_changes(steps: list[Step]) -> None:
    play(steps)


def play(steps: list[Step]) -> None:
    """Raises AssertionError when something does not hold."""
    world = World()
    for step in steps:
        world.step(*step)
    for producer, epoch in world.epoch.items():  # the partition asks what became of those that are still open
        world.step("end", producer, 0, epoch % 2)
    machine = world.partition.machine
    assert machine.transactions.open() == []
    assert machine.stable_offset == machine.state.next_offset == len(world.rows)
    assert world.seen == [
        (offset, record)
        for offset, record, transaction in world.rows
        if offset >= machine.state.start_offset and (transaction is None or world.decided[transaction])
    ]
