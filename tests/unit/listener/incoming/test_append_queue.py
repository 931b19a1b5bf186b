"""An append queue's order and answers while leaders come and go. The partition is scripted: what is tested is the
append queue alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from node.listener.incoming.append_queue import AppendQueue, QueuedBatch
from node.partition.api import Failed
from tests.batches import batch_of
from tests.unit.listener.support.append_queues import (
    NOT_LEADER,
    UNKNOWN,
    QueueSender,
    Scripted,
)
from tests.unit.listener.support.peer import eventually


def batch(name: int) -> QueuedBatch:
    record = b"%04d" % name
    return QueuedBatch([record], batch_of([record]), 1, len(record))


def make(partition: Any, *, wait_s: float = 5.0, follow: bool = True) -> tuple[AppendQueue, QueueSender]:
    sender = QueueSender()
    return AppendQueue(sender, partition, "log", "0", wait_s=wait_s, follow=follow), sender


async def test_the_old_order_is_that_of_submission_whatever_comes_back_first() -> None:
    partition = Scripted()
    queue, sender = make(partition)
    for name in range(1, 5):
        queue.submit(batch(name))
    partition.leading = 2
    partition.calls.reverse()
    for outcome in (NOT_LEADER, None, NOT_LEADER, NOT_LEADER):
        partition.answer(outcome)
    assert [records for _, records, _ in partition.calls] == [[b"0001"], [b"0002"], [b"0004"]]
    for _ in range(3):
        partition.answer()
    assert sender.answers == [
        ("accepted", b"0003"),
        ("accepted", b"0001"),
        ("accepted", b"0002"),
        ("accepted", b"0004"),
    ]


async def test_what_was_certainly_not_appended_goes_to_the_new_leader_in_the_old_order() -> None:
    partition = Scripted()
    queue, sender = make(partition)
    for name in (1, 2):
        queue.submit(batch(name))
    partition.answer(NOT_LEADER)
    queue.submit(batch(3))  # must not overtake 1, which waits, nor 2, which is unanswered
    assert len(partition.calls) == 1
    partition.leading = 2
    partition.answer(NOT_LEADER)
    assert [(node, records) for node, records, _ in partition.calls] == [
        (2, [b"0001"]),
        (2, [b"0002"]),
        (2, [b"0003"]),
    ]
    for _ in range(3):
        partition.answer()
    assert sender.answers == [("accepted", b"0001"), ("accepted", b"0002"), ("accepted", b"0003")]


async def test_a_new_leader_gets_nothing_while_the_old_one_may_still_answer() -> None:
    partition = Scripted()
    queue, sender = make(partition)
    queue.submit(batch(1))
    partition.leading = 2
    queue.submit(batch(2))
    assert len(partition.calls) == 1
    partition.answer()
    assert [node for node, _, _ in partition.calls] == [2]
    partition.answer()
    assert [answer for answer, _ in sender.answers] == ["accepted", "accepted"]


async def test_an_unknown_outcome_is_reported_and_never_repeated() -> None:
    partition = Scripted()
    queue, sender = make(partition)
    queue.submit(batch(1))
    partition.answer(UNKNOWN)
    assert sender.answers == [("uncertain", b"0001")]
    assert not partition.calls


async def test_without_a_leader_patience_ends_and_everything_is_turned_away() -> None:
    partition = Scripted()
    queue, sender = make(partition, wait_s=0.05)
    queue.submit(batch(1))
    partition.leading = None
    partition.answer(NOT_LEADER)
    queue.submit(batch(2))
    await eventually(lambda: len(sender.answers) == 2)
    assert sender.answers == [("turned away", b"0001"), ("turned away", b"0002")]
    partition.leading = 3
    queue.submit(batch(3))
    partition.answer()
    assert sender.answers[-1] == ("accepted", b"0003")


async def test_an_overloaded_leader_is_asked_again_by_and_by() -> None:
    partition = Scripted()
    queue, sender = make(partition)
    queue.submit(batch(1))
    partition.answer(Failed("overloaded", True, "busy"))
    assert not partition.calls
    await eventually(lambda: partition.calls)
    partition.answer()
    assert sender.answers == [("accepted", b"0001")]


async def test_a_lane_that_does_not_follow_turns_away_at_once() -> None:
    partition = Scripted()
    queue, sender = make(partition, follow=False)
    queue.submit(batch(1))
    partition.answer(NOT_LEADER)
    assert sender.answers == [("turned away", b"0001")]


async def test_a_closed_lane_still_answers_what_is_under_way() -> None:
    partition = Scripted()
    queue, sender = make(partition)
    for name in (1, 2, 3):
        queue.submit(batch(name))
    queue.close()
    queue.submit(batch(4))
    partition.answer()
    partition.answer(NOT_LEADER)
    partition.answer(UNKNOWN)
    assert sender.answers == [
        ("turned away", b"0004"),
        ("accepted", b"0001"),
        ("turned away", b"0002"),
        ("uncertain", b"0003"),
    ]


async def test_what_came_back_to_a_lane_that_closes_is_turned_away_and_the_rest_is_still_answered() -> None:
    partition = Scripted()
    queue, sender = make(partition)
    for name in (1, 2, 3):
        queue.submit(batch(name))
    partition.calls.pop(1)[2](NOT_LEADER)
    queue.submit(batch(4))
    queue.close()
    assert sender.answers == [("turned away", b"0002"), ("turned away", b"0004")]
    partition.answer()
    partition.answer(NOT_LEADER)
    assert sender.answers[2:] == [("accepted", b"0001"), ("turned away", b"0003")]


async def test_patience_ends_for_what_came_back_and_the_rest_is_still_answered() -> None:
    partition = Scripted()
    queue, sender = make(partition, wait_s=0.05)
    queue.submit(batch(1))
    queue.submit(batch(2))
    partition.leading = 2
    for _ in range(2):
        partition.answer(NOT_LEADER)
    assert len(partition.calls) == 2, "the next leader has them"
    partition.calls.pop(1)[2](NOT_LEADER)
    await eventually(lambda: sender.answers)
    assert sender.answers == [("turned away", b"0002")]
    partition.leading = 3
    for outcome in (NOT_LEADER, None):
        partition.answer(outcome)
    assert sender.answers[1:] == [("accepted", b"0001")]


async def test_any_schedule_keeps_the_order_and_answers_once() -> None:
    """Random answers, leaders and submissions. Without unknown outcomes the log holds everything, in order."""
    for seed in range(200):
        rng = random.Random(seed)
        partition = Scripted()
        queue, sender = make(partition)
        submitted = 0
        for _ in range(60):
            action = rng.random()
            if action < 0.4:
                submitted += 1
                queue.submit(batch(submitted))
            elif action < 0.8 and partition.calls:
                old = partition.calls[0][0]
                if old == partition.leading and rng.random() < 0.7:
                    partition.answer()
                else:  # who has lost the lead appends nothing more of what it was given
                    for _ in range(len(partition.calls)):
                        partition.answer(NOT_LEADER)
            else:
                partition.leading = rng.choice([1, 2, 3, None])
                queue.attempt()
        partition.leading = 1
        while len(sender.answers) < submitted:
            queue.attempt()
            while partition.calls:
                partition.answer(NOT_LEADER if partition.calls[0][0] != 1 else None)
            await asyncio.sleep(0)
        expected = [b"%04d" % name for name in range(1, submitted + 1)]
        assert partition.log == expected, f"seed {seed}"
        assert sender.answers == [("accepted", record) for record in expected], f"seed {seed}"
