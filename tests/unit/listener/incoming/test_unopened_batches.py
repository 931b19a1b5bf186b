"""Packed batches that wait: how many of them are opened in one turn of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from node.listener.incoming.unopened_batches import MESSAGES_A_TURN, Unopened, UnopenedBatches
from tests.unit.listener.support.peer import eventually


class Link:
    """Refuses each batch as soon as it is opened, so that there is always room for the next."""

    def __init__(self, messages: int) -> None:
        self.batches = UnopenedBatches(1000, self.take)
        self.messages = messages
        self.taken: list[bytes] = []

    def take(self, batch: Unopened) -> None:
        self.taken.append(batch.payload)
        self.batches.opened(10, self.messages)
        self.batches.answered(10)


@pytest.mark.parametrize(("messages", "at_once"), [(MESSAGES_A_TURN, 1), (MESSAGES_A_TURN // 4, 4), (1, 20)])
async def test_no_more_is_opened_in_a_turn_than_may_be(messages: int, at_once: int) -> None:
    link = Link(messages)
    payloads = [b"%d" % number for number in range(20)]
    for payload in payloads:
        link.batches.put(Unopened([], payload, None))
    link.batches.take_on()
    link.batches.take_on()  # more has come, or something was answered
    assert len(link.taken) == at_once
    await eventually(lambda: len(link.taken) == 20)
    assert link.taken == payloads


async def test_what_waits_for_the_next_turn_can_be_given_up() -> None:
    link = Link(MESSAGES_A_TURN)
    for number in range(3):
        link.batches.put(Unopened([], b"%d" % number, None))
    link.batches.take_on()
    assert [batch.payload for batch in link.batches.given_up()] == [b"1", b"2"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert link.taken == [b"0"]
