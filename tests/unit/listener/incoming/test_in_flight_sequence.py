"""An append queue whose batches have numbers: in front of the real state machine, with leaders that come, go and lose
things."""

from __future__ import annotations

import asyncio
import random

import pytest

from holdfast.records.record_batch import RecordBatch
from node.listener.incoming.append_queue import AppendQueue, QueuedBatch
from node.partition.api import AppendDone, Appended, AppendOutcome, Begins, Failed
from node.partition.partition_commands import OpenProducer
from node.partition.raft_entry import join
from node.partition.state_machine import AppendAccepted, AppendRejected, PartitionMachine
from tests.batches import numbered
from tests.unit.listener.support.append_queues import (
    NOT_LEADER,
    UNKNOWN,
    QueueSender,
    Scripted,
)

OUT_OF_ORDER = Failed("out_of_order", False, "a gap")


def record(number: int) -> bytes:
    return b"%04d" % number


def batch(first: int, count: int = 1) -> QueuedBatch:
    records = [record(number) for number in range(first, first + count)]
    return QueuedBatch([records[0]], numbered(records, 7, 0, first, b"".join(records)), count, 4 * count)


def make(partition: Scripted | Replicated, *, follow: bool = True) -> tuple[AppendQueue, QueueSender]:
    sender = QueueSender()
    return AppendQueue(sender, partition, "log", "0", wait_s=5.0, follow=follow, numbered=True), sender


def proven(partition: Scripted, *, follow: bool = True) -> tuple[AppendQueue, QueueSender]:
    """An append queue whose number 1 was stored."""
    queue, sender = make(partition, follow=follow)
    queue.submit(batch(1))
    partition.answer()
    assert sender.answers == [("accepted", record(1))]
    sender.answers.clear()
    return queue, sender


async def test_a_link_waits_for_its_first_answer_and_is_pipelined_then() -> None:
    partition = Scripted()
    queue, _ = make(partition)
    for number in (1, 2, 3):
        queue.submit(batch(number))
    assert len(partition.calls) == 1
    partition.answer()
    assert len(partition.calls) == 2
    queue.submit(batch(4))
    assert len(partition.calls) == 3


async def test_batches_that_go_on_from_what_is_proven_are_under_way_together() -> None:
    partition = Scripted()
    queue, sender = proven(partition)
    for number in (2, 3, 4):
        queue.submit(batch(number))
    assert len(partition.calls) == 3
    for _ in range(3):
        partition.answer()
    assert [answer for answer, _ in sender.answers] == ["accepted"] * 3


async def test_what_was_stored_before_proves_nothing() -> None:
    partition = Scripted()
    queue, _ = make(partition)
    for number in (1, 2, 3):
        queue.submit(batch(number))
    for _ in range(2):
        partition.answer(Appended(0, 0, 1))
        assert len(partition.calls) == 1
    partition.answer()
    queue.submit(batch(4))
    queue.submit(batch(5))
    assert len(partition.calls) == 2


async def test_a_number_that_does_not_go_on_waits_until_all_before_it_is_answered() -> None:
    partition = Scripted()
    queue, _ = proven(partition)
    queue.submit(batch(2))
    queue.submit(batch(2))
    queue.submit(batch(3))
    assert len(partition.calls) == 1
    partition.answer()
    assert len(partition.calls) == 1
    partition.answer(Appended(0, 0, 1))
    assert len(partition.calls) == 1


async def test_nothing_goes_in_behind_a_refusal_of_what_was_not_proven() -> None:
    """IP-15: the numbers were given away before; the rest of the new batch would fit behind the old one."""
    partition = Scripted()
    queue, sender = make(partition)
    queue.submit(batch(1, 3))
    queue.submit(batch(4, 3))
    partition.answer(OUT_OF_ORDER)
    # the link is closed by its endpoint now; the append queue alone would ask anew
    assert sender.answers == [("refused", record(1))]
    assert [call[1] for call in partition.calls] == [[record(4), record(5), record(6)]]
    assert len(partition.calls) == 1


async def test_a_doubt_is_settled_by_asking_again() -> None:
    partition = Scripted()
    queue, sender = proven(partition)
    queue.submit(batch(2))
    queue.submit(batch(3))
    partition.leading = 2
    partition.answer(UNKNOWN)
    partition.answer(UNKNOWN)
    assert [(node, records) for node, records, _ in partition.calls] == [(2, [record(2)])]
    partition.answer(Appended(1, 0, 1))
    partition.answer()
    assert sender.answers == [("accepted", record(2)), ("accepted", record(3))]


async def test_a_doubt_that_cannot_be_settled_is_told() -> None:
    partition = Scripted()
    queue, sender = proven(partition, follow=False)
    queue.submit(batch(2))
    partition.answer(UNKNOWN)
    assert sender.answers == [("uncertain", record(2))]


async def test_who_gives_up_on_a_doubt_says_that_it_is_one() -> None:
    partition = Scripted()
    queue, sender = proven(partition)
    waiting = [batch(2), batch(3)]
    queue.submit(waiting[0])
    partition.leading = None
    partition.answer(UNKNOWN)
    queue.submit(waiting[1])
    queue.close()
    assert [answer for answer, _ in sender.answers] == ["turned away"] * 2
    assert [one.deliveries.in_doubt for one in waiting] == [True, False]


@pytest.mark.parametrize("torn_by", [NOT_LEADER, UNKNOWN])
async def test_a_gap_that_was_torn_here_is_not_the_producers_fault(torn_by: Failed) -> None:
    """The same node leads again, without the first of two batches: the second one met a gap."""
    partition = Scripted()
    queue, sender = proven(partition)
    queue.submit(batch(2))
    queue.submit(batch(3))
    partition.answer(torn_by)
    partition.answer(OUT_OF_ORDER)
    partition.leading = 2
    queue.attempt()
    for _ in range(2):
        partition.answer()
    assert sender.answers == [("accepted", record(2)), ("accepted", record(3))]


async def test_a_gap_behind_what_was_torn_and_sent_again_is_the_producers_fault() -> None:
    partition = Scripted()
    queue, sender = proven(partition)
    queue.submit(batch(2))
    partition.leading = 2
    partition.answer(NOT_LEADER)
    queue.submit(batch(9))
    partition.answer()
    partition.answer(OUT_OF_ORDER)
    assert sender.answers == [("accepted", record(2)), ("refused", record(9))]


async def test_a_doubt_of_a_closed_queue_is_told() -> None:
    partition = Scripted()
    queue, sender = proven(partition)
    queue.submit(batch(2))
    queue.close()
    partition.answer(UNKNOWN)
    assert sender.answers == [("uncertain", record(2))]


async def test_a_refusal_on_the_spot_does_not_overtake_what_was_proposed_before() -> None:
    partition = Scripted()
    queue, sender = proven(partition)
    queue.submit(batch(2))
    queue.submit(batch(3))
    second = partition.calls.pop(1)
    second[2](NOT_LEADER)
    partition.leading = 2
    partition.answer(NOT_LEADER)
    for _ in range(2):
        partition.answer()
    assert sender.answers == [("accepted", record(2)), ("accepted", record(3))]


class Replicated:
    """A partition whose committed entries go through the real machine. A change of leader loses a tail of what is under
    way, and what it does not lose may still be answered with a doubt."""

    def __init__(self, chance: random.Random) -> None:
        self.partition = "0"
        self.leading: int | None = 1
        self.stored: list[bytes] = []
        self._chance = chance
        self._machine = PartitionMachine()
        self._index = 1
        self._machine.apply(1, OpenProducer(7, 0, None, 1).encode())
        self._under_way: list[tuple[AppendDone, AppendOutcome | RecordBatch]] = []

    def leader(self, log: str, partition: str) -> int | None:
        return self.leading

    def handle(self, log: str, partition: str) -> Replicated:
        return self

    def append(self, batch: RecordBatch, done: AppendDone, begins: Begins | None = None) -> None:
        if self.leading is None or self._chance.random() < 0.03:
            done(NOT_LEADER)
        else:
            self._under_way.append((done, batch))

    def answer(self) -> bool:
        """The oldest that is under way."""
        if not self._under_way:
            return False
        done, what = self._under_way.pop(0)
        done(what if isinstance(what, Appended | Failed) else self._apply(what))
        return True

    def change(self, leader: int | None) -> None:
        """A majority has a front of what is under way; the rest is lost with the old leader's log."""
        kept = self._chance.randint(0, len(self._under_way))
        for place, (done, what) in enumerate(self._under_way):
            if not isinstance(what, Appended | Failed):
                outcome = self._apply(what) if place < kept else NOT_LEADER
                self._under_way[place] = (done, UNKNOWN if self._chance.random() < 0.5 else outcome)
        self.leading = leader

    def _apply(self, batch: RecordBatch) -> AppendOutcome:
        self._index += 1
        entry = join([batch.stamped(1)])
        (result,), _ = self._machine.apply(self._index, entry)  # type: ignore[misc]
        if isinstance(result, AppendRejected):
            assert result.code == "out-of-order"
            return Failed("out_of_order", False, result.detail)
        assert isinstance(result, AppendAccepted)
        known = sum(place.events for place in result.known)
        self.stored += batch.records()[known:]
        return Appended(*result.place_of(0), known)


async def test_whatever_leaders_do_each_number_is_stored_once_in_order_and_accepted() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        partition = Replicated(chance)
        queue, sender = make(partition)
        batches: list[QueuedBatch] = []
        following = 1
        for _ in range(80):
            action = chance.random()
            if action < 0.4:
                batches.append(batch(following, chance.randint(1, 4)))
                following += batches[-1].deliveries.count
                queue.submit(batches[-1])
            elif action < 0.85:
                partition.answer()
            else:
                partition.change(chance.choice([1, 1, 2, 3, None]))
                queue.attempt()
        partition.change(1)
        while len(sender.answers) < len(batches):
            queue.attempt()
            while partition.answer():
                pass
            await asyncio.sleep(0)
        expected = [record(number) for number in range(1, following)]
        assert partition.stored == expected, f"seed {seed}"
        assert sorted(sender.answers) == [("accepted", one.sealed.records()[0]) for one in batches], f"seed {seed}"
        queue.close()
