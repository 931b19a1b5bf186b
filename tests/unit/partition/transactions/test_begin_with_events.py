"""A transaction that begins in a partition with its first events there, and what the partition asks when it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from node.partition.api import Failed
from node.partition.partition_commands import encode_transaction_command
from node.partition.transactions import participant
from node.partition.transactions.transaction_commands import Begin
from tests.batches import batch_of, numbered
from tests.unit.partition.support import Answers, PartitionNode
from tests.unit.partition.transactions.driving import marker

P = 12 << 32
COORDINATOR, TIMEOUT_MS = 3, 60_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    with PartitionNode(tmp_path) as node:
        yield node


def send(node: PartitionNode, *records: bytes, epoch: int = 0, first: int = 0, begins: bool = True) -> Answers:
    answers = Answers()
    terms = (COORDINATOR, TIMEOUT_MS) if begins else None
    node.replica.append(numbered(records, P, epoch, first, transactional=True), answers, terms)
    return answers


def told(answers: Answers) -> Failed:
    (failed,) = answers.all
    assert isinstance(failed, Failed)
    return failed


def open_keys(node: PartitionNode) -> list[tuple[int, int]]:
    return [one.key for one in node.replica._machine.transactions.open()]


def end(node: PartitionNode, epoch: int, *, commit: bool) -> None:
    node.group.propose(marker(P, epoch, commit=commit, now_ms=node.now_ms), lambda _: None)
    node.turns()


def test_it_begins_in_the_same_round_as_its_first_events_which_are_invisible(node: PartitionNode) -> None:
    before = node.group.last_index
    first, second = send(node, b"a", b"b"), send(node, b"c", first=2, begins=False)
    node.turns()
    assert first.offsets == [0]
    assert second.offsets == [2]
    assert node.group.last_index == before + 2, "a begin, and one entry with the events"
    (one,) = node.replica._machine.transactions.open()
    assert (one.key, one.coordinator, one.timeout_ms, one.first_offset) == ((P, 0), COORDINATOR, TIMEOUT_MS, 0)
    assert node.replica.stable_offset == 0


def test_what_comes_again_with_its_begin_is_stored_once(node: PartitionNode) -> None:
    send(node, b"a")
    node.turns()
    again = send(node, b"a")
    node.turns()
    assert again.offsets == [0]
    assert node.replica.next_offset == 1


def test_a_begin_is_an_entry_right_in_front_of_its_batch(node: PartitionNode) -> None:
    before, other = node.group.last_index, Answers()
    node.replica.append(batch_of([b"plain"]), other)
    answers = send(node, b"a")
    node.replica.append(batch_of([b"behind"]), other)
    node.turns()
    entries = [node.group.entry(index)[1] for index in range(before + 1, node.group.last_index + 1)]
    begin = encode_transaction_command(Begin(P, 0, COORDINATOR, TIMEOUT_MS, node.now_ms))
    assert (len(entries), entries.index(begin)) == (3, 1)
    assert (other.offsets, answers.offsets) == ([0, 2], [1])


def test_it_begins_though_its_first_events_have_wrong_numbers_and_that_is_what_they_are_told(
    node: PartitionNode,
) -> None:
    skipping = send(node, b"b", first=1)
    node.turns()
    assert told(skipping).kind == "out_of_order"
    assert open_keys(node) == [(P, 0)]
    first = send(node, b"a")
    node.turns()
    assert first.offsets == [0]


def test_what_begins_has_its_begin_in_front_whatever_was_gathered_before(node: PartitionNode) -> None:
    too_early, begins = send(node, b"a", begins=False), send(node, b"b", first=1)
    node.turns()
    assert told(too_early).kind == "transaction_ended"
    assert told(begins).kind == "out_of_order"
    assert open_keys(node) == [(P, 0)]


def test_a_leader_that_is_deposed_says_that_its_begin_is_not_known_to_be_stored(
    node: PartitionNode, caplog: pytest.LogCaptureFixture
) -> None:
    answers = send(node, b"a")
    node.replica.flush()
    node.multiraft.close_group(node.group.group_id, erase=False)
    assert told(answers).kind == "unknown", "as of its events, whose answer is the only one"
    assert caplog.text == ""


def test_after_its_end_nothing_of_it_is_stored(node: PartitionNode) -> None:
    end(node, 4, commit=False)
    late = send(node, b"late", epoch=4)
    node.turns()
    assert told(late).kind == "transaction_ended"
    assert not told(late).retriable
    assert "has ended here" in told(late).detail
    assert node.replica.next_offset == 0
    assert open_keys(node) == []


def test_while_an_earlier_one_is_open_it_is_told_to_try_again_and_that_one_is_asked_about(node: PartitionNode) -> None:
    send(node, b"a")
    node.turns()
    early = send(node, b"b", epoch=1)
    node.turns()
    assert told(early).kind == "overloaded"
    assert told(early).retriable
    assert node.replica.taking_part._urgent == {(P, 0)}
    end(node, 0, commit=True)
    again = send(node, b"b", epoch=1)
    node.turns()
    assert again.offsets == [1]


# ---------------------------------------------------------------- asking


@dataclass
class Said:
    committed: bool | None
    coordinator_epoch: int = 5
    soon: bool = False


class Asked:
    """Of the coordinator: what it says next, and what it was asked."""

    def __init__(self) -> None:
        self.says: bool | None = None
        self.soon = False
        self.questions: list[tuple[int, int, int, bool]] = []

    async def __call__(self, coordinator: int, producer_id: int, epoch: int, overdue: bool) -> Said:
        self.questions.append((coordinator, producer_id, epoch, overdue))
        return Said(self.says, soon=self.soon)


async def passes(node: PartitionNode, now_s: float) -> None:
    node.replica.tick(now_s)
    for _ in range(3):
        await asyncio.sleep(0)
    node.turns()


def test_the_coordinator_is_asked_early_less_and_less_often_and_again_when_time_is_over(node: PartitionNode) -> None:
    asked = node.replica.taking_part.ask_outcome = Asked()
    send(node, b"a")
    node.turns()

    async def story() -> None:
        first_s = participant.FIRST_ASKED_AFTER_S
        over_s = TIMEOUT_MS / 1000 + participant.GRACE_S
        await passes(node, 0.0)
        await passes(node, first_s - 0.1)
        assert asked.questions == []
        await passes(node, first_s)
        await passes(node, 2 * first_s - 0.1)
        assert asked.questions == [(COORDINATOR, P, 0, False)]
        await passes(node, 2 * first_s)
        await passes(node, 4 * first_s - 0.1)
        assert asked.questions == [(COORDINATOR, P, 0, False)] * 2
        await passes(node, 4 * first_s)
        assert len(asked.questions) == 3
        await passes(node, over_s)
        assert asked.questions[3:] == [(COORDINATOR, P, 0, True)]
        assert open_keys(node) == [(P, 0)], "what is not decided stays open"
        asked.says = False
        await passes(node, over_s + participant.ASK_AGAIN_S)
        assert open_keys(node) == []
        assert node.replica.taking_part._ask_at_s != {}
        await passes(node, over_s + participant.ASK_AGAIN_S + 1)
        assert node.replica.taking_part._ask_at_s == {}, "and nothing of it is kept"

    asyncio.run(story())


def test_what_its_coordinator_never_began_is_over_when_it_is_first_asked_about(node: PartitionNode) -> None:
    asked = node.replica.taking_part.ask_outcome = Asked()
    asked.says = False
    send(node, b"a")
    node.append(b"behind")
    assert node.replica.stable_offset == 0

    async def story() -> None:
        await passes(node, 0.0)
        await passes(node, participant.FIRST_ASKED_AFTER_S)

    asyncio.run(story())
    assert node.replica.stable_offset == node.replica.next_offset


def test_what_is_held_at_a_node_that_is_not_heard_is_asked_about_again_at_once(node: PartitionNode) -> None:
    asked = node.replica.taking_part.ask_outcome = Asked()
    asked.soon = True
    send(node, b"a")
    node.turns()

    async def story() -> None:
        first_s = participant.FIRST_ASKED_AFTER_S
        await passes(node, 0.0)
        for look in range(4):
            await passes(node, first_s + look / 2)
        assert len(asked.questions) == 4
        asked.soon = False
        for look in range(4, 6):
            await passes(node, first_s + look / 2)
        assert len(asked.questions) == 5

    asyncio.run(story())


def test_a_new_leader_asks_about_what_has_been_open_for_long(node: PartitionNode) -> None:
    asked = node.replica.taking_part.ask_outcome = Asked()
    send(node, b"a")
    node.turns()

    async def story() -> None:
        await passes(node, 0.0)
        node.replica.taking_part.not_leading()
        node.now_ms += round(participant.FIRST_ASKED_AFTER_S * 1000) - 500
        await passes(node, 100.0)
        assert asked.questions == []
        await passes(node, 100.5)
        assert len(asked.questions) == 1

    asyncio.run(story())
