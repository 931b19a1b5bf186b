"""When who sends waits, is woken, and gives way; judged by what goes out, and when."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvloop

from holdfast.client.options import ProducerOptions
from holdfast.client.produce.accumulator import (
    EVENT_OVERHEAD_BYTES,
    ROOM_BYTES,
    YIELD_BYTES,
    YIELD_EVENTS,
    YIELD_EVENTS_OF_PARTITION,
    Accumulator,
)
from holdfast.client.produce.batch_queue import BatchQueue
from holdfast.client.produce.partition_routing import Partitions
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.transport.network import Network

BODY = bytes(100)
RECKONED = len(BODY) + EVENT_OVERHEAD_BYTES


class KeepingSender:
    """Where events go: it keeps them, and the test says what is confirmed."""

    def __init__(self, partition: str) -> None:
        self.queue = BatchQueue(partition, 10**6, lambda _: None)
        self.sent = 0

    def pump(self) -> None:
        self.queue.release()
        self.sent += sum(batch.events for batch in self.queue.withdraw_released())


def opened(**options: Any) -> Accumulator:
    return Partitions(cast(Network, None), "log", ProducerOptions(**options), ProducerStats()).accumulator


def take(one: Accumulator, sender: KeepingSender, events: int, body: bytes = BODY) -> None:
    sender.queue.extend([body] * events, bodies=True)
    one.took_in(sender, events, events * len(body))


async def confirm(one: Accumulator, events: int) -> None:
    one.settled("0", events, events * len(BODY), True)
    await asyncio.sleep(0)


async def test_who_waits_for_the_latency_is_woken_when_there_is_room_for_a_piece_not_for_one_event() -> None:
    one, sender = opened(), KeepingSender("0")
    one._latency.limit = 4 * ROOM_BYTES
    take(one, sender, 4 * ROOM_BYTES // RECKONED + 1)
    waiting = asyncio.ensure_future(one.wait_for_room())
    await confirm(one, ROOM_BYTES // RECKONED // 2)
    assert not waiting.done(), "what can be sent now is no good piece"
    await confirm(one, ROOM_BYTES // RECKONED // 2 + 4)
    await asyncio.wait_for(waiting, 10)
    assert one.events * RECKONED > 2.9 * ROOM_BYTES, "nodes have enough to do meanwhile"


async def test_of_a_small_bound_half_must_be_free() -> None:
    one, sender = opened(), KeepingSender("0")
    one._latency.limit = ROOM_BYTES
    events = ROOM_BYTES // RECKONED + 1
    take(one, sender, events)
    waiting = asyncio.ensure_future(one.wait_for_room())
    await confirm(one, events // 2 - 2)
    assert not waiting.done()
    await confirm(one, 4)
    await asyncio.wait_for(waiting, 10)


async def test_at_the_hard_bounds_half_of_all_must_be_free() -> None:
    one, sender = opened(max_buffered_events=1000, latency_target_s=None), KeepingSender("0")
    take(one, sender, 1000)
    waiting = asyncio.ensure_future(one.wait_for_room())
    await confirm(one, 499)
    assert not waiting.done()
    await confirm(one, 1)
    await asyncio.wait_for(waiting, 10)


@pytest.mark.parametrize(
    ("partitions", "most_events"),
    [(1, YIELD_EVENTS_OF_PARTITION), (2, 2 * YIELD_EVENTS_OF_PARTITION), (4, YIELD_EVENTS), (16, YIELD_EVENTS)],
)
async def test_a_turn_is_over_when_there_is_a_good_piece_for_each_partition(partitions: int, most_events: int) -> None:
    one = opened()
    there = [KeepingSender(str(number)) for number in range(partitions)]
    taken = 0
    while not one.turn_is_over:
        take(one, there[taken // 16 % partitions], 16)
        taken += 16
    assert taken - 16 < most_events <= taken
    await asyncio.sleep(0)
    assert [sender.sent > 0 for sender in there] == [True] * partitions
    assert not one.turn_is_over


async def test_a_turn_is_over_after_so_many_bytes_however_few_the_events() -> None:
    one, sender = opened(), KeepingSender("0")
    take(one, sender, 2, bytes(YIELD_BYTES // 3))
    assert not one.turn_is_over
    take(one, sender, 1, bytes(YIELD_BYTES // 2))
    assert one.turn_is_over


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_gives_way_goes_on_behind_those_who_learn_of_an_outcome_that_has_come(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    did: list[str] = []

    async def turns() -> None:
        ours, theirs = socket.socketpair()
        loop, outcome = asyncio.get_running_loop(), asyncio.Event()

        class Telling(KeepingSender):
            def pump(self) -> None:
                did.append("went out")

        async def learn() -> None:
            await outcome.wait()
            did.append("told")

        with ours, theirs:
            loop.add_reader(ours, outcome.set)
            learning = asyncio.ensure_future(learn())
            await asyncio.sleep(0)
            one = opened()
            loop.call_soon(did.append, "others")
            take(one, Telling("0"), YIELD_EVENTS_OF_PARTITION)
            theirs.send(b"an answer")
            await one.give_way()
            did.append("went on")
            await learning
            loop.remove_reader(ours)

    with contextlib.closing(new_loop()) as loop:
        loop.run_until_complete(turns())
    assert did == ["went out", "others", "told", "went on"]


async def test_who_waits_for_room_goes_on_behind_those_who_learn_of_outcomes_that_came_together() -> None:
    did: list[str] = []
    one, sender = opened(max_buffered_events=1000, latency_target_s=None), KeepingSender("0")
    take(one, sender, 1000)
    outcomes = [asyncio.Event() for _ in range(3)]

    async def send() -> None:
        await one.wait_for_room()
        did.append("went on")

    async def learn(outcome: asyncio.Event) -> None:
        await outcome.wait()
        did.append("told")

    sending = asyncio.ensure_future(send())
    learning = [asyncio.ensure_future(learn(outcome)) for outcome in outcomes]
    await asyncio.sleep(0)
    for outcome in outcomes:  # the first one makes the room
        outcome.set()
        one.settled("0", 600 if outcome is outcomes[0] else 100, 0, True)
    await asyncio.gather(sending, *learning)
    assert did == ["told", "told", "told", "went on"]


async def test_what_was_taken_in_goes_out_before_its_sender_waits_for_room() -> None:
    one, sender = opened(max_buffered_events=100, latency_target_s=None), KeepingSender("0")
    take(one, sender, 100)
    waiting = one.wait_for_room()
    waiting.send(None)
    assert sender.sent == 100
    waiting.close()
