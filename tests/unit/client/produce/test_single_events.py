"""Single events, gathered into chunks: what they travel as, and that each hears its own outcome."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections import deque
from functools import partial
from typing import Any

import pytest

from holdfast.client import (
    ConfigurationError,
    Event,
    ProducerClient,
    ProducerOptions,
    RejectedError,
)
from holdfast.client.events import encode_event
from holdfast.client.produce import intake
from holdfast.client.produce.chunks.chunk import Run
from holdfast.client.produce.chunks.delivery import ChunkDelivery, Outcome, Settled
from holdfast.client.produce.chunks.pieces import PIECE_BYTES, PIECE_EVENTS
from holdfast.client.produce.chunks.single_events import Delivery, Staged
from holdfast.client.produce.idempotent.producer_identity import MAX_SEQUENCE, following
from holdfast.client.produce.transfers import PUMP_BYTES, Room, next_transfers, transfer_of
from holdfast.records.codec import Codec
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually


class Producer:
    """Gathers events, and hears of failures."""

    def __init__(self, *, numbered: bool = False, partition: str | None = "3") -> None:
        self.unclaimed: list[Outcome] = []
        self.staged = Staged(partition, self.unclaimed.append, numbered=numbered)

    def send(self, *bodies: bytes, done: Any = None) -> list[Delivery]:
        return [self.staged.add(body, done, None, body=True) for body in bodies]

    def run(self) -> Run:
        [run] = self.staged.take()
        return run


def bodies_of(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# ---------------------------------------------------------------- what they travel as


@pytest.mark.parametrize("numbered", [False, True])
def test_single_events_become_one_run_of_bodies(numbered: bool) -> None:
    producer = Producer(numbered=numbered)
    producer.send(*bodies_of(300))
    run = producer.run()
    assert run.messages() == [encode_event(body) for body in bodies_of(300)]
    assert (run.events, run.size, run.bodies) == (300, sum(map(len, bodies_of(300))), True)
    assert len(run.digests) == 4 * 300 * numbered
    assert transfer_of([run]).sealed(Codec.NONE).are_bodies
    assert producer.staged.take() == []


def test_they_stay_in_order_among_messages_and_runs() -> None:
    seed = random.randrange(1 << 32)
    chance, producer, expected = random.Random(seed), Producer(), []
    for number in range(500):
        body = b"%d" % number
        if chance.random() < 0.05:
            other = Producer()
            other.send(body)
            producer.staged.append(other.run())
            expected.append(encode_event(body))
        elif producer.staged.takes_messages or chance.random() < 0.3:
            message = encode_event(body, chance.choice([None, "key"]))
            producer.staged.add(message, None, None, body=False)
            expected.append(message)
        else:
            producer.send(body)
            expected.append(encode_event(body))
    found = [message for run in producer.staged.take() for message in run.messages()]
    assert found == expected, f"seed {seed}"


def test_chunks_of_them_are_no_larger_than_pieces_of_a_call() -> None:
    producer = Producer()
    producer.send(*[b""] * (2 * PIECE_EVENTS + 1))
    producer.send(bytes(PIECE_BYTES // 2), bytes(PIECE_BYTES), b"next")
    runs = producer.staged.take()
    assert [run.events for run in runs] == [PIECE_EVENTS, PIECE_EVENTS, 3, 1]


# ---------------------------------------------------------------- what becomes of each


async def test_each_is_told_its_own_place_and_number() -> None:
    producer = Producer(numbered=True, partition=None)
    deliveries = producer.send(*bodies_of(10))
    assert not any(one.is_done for one in deliveries)
    assert (deliveries[0].partition, deliveries[0].offset, deliveries[0].error) == (None, None, None)
    run = producer.run()
    run.sequence_number = MAX_SEQUENCE - 5
    first, rest = run.cut(4)
    middle, last = rest.cut(3)
    for one, offset in ((last, 90), (first, 10), (middle, 50)):
        one.stands_at(offset, "5")
        one.settle(None)
        assert deliveries[0].is_done is (one is not last)
    results = [await one for one in deliveries]
    assert [int(result.offset or "", 16) for result in results] == [10, 11, 12, 13, 50, 51, 52, 90, 91, 92]
    numbers = [*range(MAX_SEQUENCE - 5, MAX_SEQUENCE + 1), *range(4)]
    assert [result.sequence_number for result in results] == numbers
    assert {(result.partition, result.count) for result in results} == {("5", 1)}


async def test_who_waits_hears_of_it_and_nobody_else_is_woken() -> None:
    producer = Producer()
    deliveries = producer.send(*bodies_of(6))
    waiting = [asyncio.ensure_future(result_of(one)) for one in (deliveries[1], deliveries[1], deliveries[4])]
    await asyncio.sleep(0)
    first, rest = producer.run().cut(3)
    first.settle(None)
    assert [(await one).partition for one in waiting[:2]] == ["3", "3"]
    assert not waiting[2].done()
    rest.settle(RejectedError("no"))
    with pytest.raises(RejectedError, match="no"):
        await waiting[2]
    assert [one.error is None for one in deliveries] == [True] * 3 + [False] * 3
    assert [(one.claimed, one.count, one.failed) for one in producer.unclaimed] == [(False, 1, 1)] * 2


async def result_of(delivery: Outcome) -> Any:
    return await delivery


@pytest.mark.parametrize("kind", ["one of many", "chunk"])
async def test_each_who_waits_goes_on_in_the_same_turn_whoever_else_is_cancelled(kind: str) -> None:
    delivery: Outcome
    if kind == "chunk":
        delivery = chunk = ChunkDelivery(3, lambda _: None)
        settle = partial(chunk.settle, Settled(0, 3, None, "3", 7, None, True))
    else:
        producer = Producer()
        delivery = producer.send(*bodies_of(3))[1]
        settle = partial(producer.run().settle, None)
    waiting = [asyncio.ensure_future(result_of(delivery)) for _ in range(4)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    waiting[2].cancel()
    settle()
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True] * 4, "one turn after it was settled"
    assert [one.cancelled() for one in waiting] == [True, False, True, False]
    assert {one.result().partition for one in waiting[1::2]} == {"3"}


@pytest.mark.parametrize("kind", ["one of many", "chunk"])
async def test_who_gives_up_again_and_again_leaves_nothing_behind(kind: str) -> None:
    delivery = ChunkDelivery(1, lambda _: None) if kind == "chunk" else Producer().send(b"")[0]
    futures: list[weakref.ref[Any]] = []
    for _ in range(10):
        waiting = asyncio.ensure_future(result_of(delivery))
        await asyncio.sleep(0)
        futures.append(weakref.ref(waiting._fut_waiter))  # type: ignore[attr-defined]
        waiting.cancel()
        await asyncio.wait([waiting])
    del waiting
    gc.collect()
    assert [future() for future in futures] == [None] * 10


async def test_callbacks_are_called_in_order_and_one_that_raises_stops_none() -> None:
    told: list[tuple[int, Any]] = []
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def callback(number: int) -> Any:
        def done(error: Any) -> None:
            told.append((number, error))
            if number == 2:
                raise KeyError("the program's own")

        return done

    producer, error = Producer(), RejectedError("no")
    for number in range(6):
        producer.send(b"", done=callback(number) if number != 4 else None)
    first, rest = producer.run().cut(3)
    first.settle(None)
    rest.settle(error)
    assert told == [(0, None), (1, None), (2, None), (3, error), (5, error)]
    assert [type(one["exception"]) for one in complaints] == [KeyError]
    assert [one.error for one in producer.unclaimed] == [error], "the one without a callback"


async def test_who_asks_too_late_to_hear_first_is_heard_to_ask() -> None:
    producer = Producer()
    [delivery] = producer.send(b"a")
    producer.run().settle(RejectedError("no"))
    [unclaimed] = producer.unclaimed
    assert not unclaimed.claimed
    with pytest.raises(RejectedError):
        await delivery
    assert unclaimed.claimed, "it is the same event"


@pytest.mark.parametrize("again", [(0, 4), (2, 1), (3, 2), (5, 4)], ids=str)
def test_no_event_is_settled_twice(again: tuple[int, int]) -> None:
    producer = Producer()
    producer.send(*bodies_of(10))
    run = producer.run()
    first, rest = run.cut(4)
    second, third = rest.cut(4)
    first.settle(None)
    third.settle(None)
    start, events = again
    part = run.cut(start)[1] if start else run
    overlapping = part.cut(events)[0]
    with pytest.raises(AssertionError, match="settled twice"):
        overlapping.settle(None)
    second.settle(None)


def test_what_a_callback_holds_is_let_go_when_it_was_called() -> None:
    class Held:
        pass

    held = Held()
    gone, producer = weakref.ref(held), Producer()
    [kept] = producer.send(b"a", done=lambda _, held=held: None)
    producer.send(b"b")
    first, _ = producer.run().cut(1)
    first.settle(None)
    del held
    gc.collect()
    assert gone() is None
    assert kept.is_done


async def test_events_that_are_given_as_objects_learn_their_numbers() -> None:
    producer, events = Producer(numbered=True), [Event(b"a"), Event(b"b")]
    deliveries = [
        producer.staged.add(b"x", None, given, body=True) for given in (None, events[0], None, events[1], None)
    ]
    run = producer.run()
    assert [delivery.event for delivery in deliveries] == [None, events[0], None, events[1], None]
    run.sequence_number = 7
    first, rest = run.cut(2)
    first.settle(None)
    rest.settle(RejectedError("no"))
    assert [event.published_sequence_number for event in events] == [8, None]
    assert not any(event.being_published for event in events)


# ---------------------------------------------------------------- from the producer


async def test_what_is_wrong_with_an_event_raises_before_it_is_taken_in(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MAX_MESSAGE_BYTES", 1000)
    async with ProducerClient(node.address, "trades", idempotent=True) as producer:
        event = Event(bytes(1001))
        with pytest.raises(ConfigurationError, match="1001 bytes is more than any message holds"):
            await producer.send(event, partition="1")
        assert not event.being_published
        with pytest.raises(ConfigurationError):
            await producer.send(b"", key=5, partition="1")  # type: ignore[arg-type]
        assert producer.outstanding == 0
        await producer.flush()
        assert producer.stats.attached == 0, "for nothing"


async def test_a_thousand_events_that_nobody_asks_for_are_few_objects(node: TinyNode) -> None:
    """Nothing is kept for each of them that the collector would have to walk through."""
    node.credit = 0
    producer = ProducerClient(node.address, "trades", ProducerOptions(max_buffered_events=20_000))
    await producer.start()
    producer.send_nowait(b"first", partition="0")
    await eventually(lambda: producer._accumulator.this_turn == 0)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(10_000):
        producer.send_nowait(b"body", partition="0")
    assert len(gc.get_objects()) - before < 1000
    await producer.abandon()


@pytest.mark.parametrize("most", [1, 4, 10, 11])
def test_a_run_comes_apart_into_single_events_with_their_numbers(most: int) -> None:
    producer = Producer(numbered=True)
    producer.send(*bodies_of(12))
    _, run = producer.run().cut(2)
    run.sequence_number = MAX_SEQUENCE - 1
    singles, rest = run.singles(most)
    assert [one.messages() for one in singles] == [[encode_event(body)] for body in bodies_of(12)[2 : 2 + most]]
    assert [(one.events, one.size) for one in singles] == [(1, len(body)) for body in bodies_of(12)[2 : 2 + most]]
    numbers = [following(MAX_SEQUENCE - 1, place) for place in range(10)]
    assert [one.sequence_number for one in singles] == numbers[:most]
    if most >= 10:
        assert rest is None
        return
    assert rest is not None
    assert rest.messages() == [encode_event(body) for body in bodies_of(12)[2 + most :]]
    assert (rest.events, rest.size) == (10 - most, run.size - sum(one.size for one in singles))
    assert rest.sequence_number == numbers[most]


async def test_a_thousand_that_are_awaited_and_settled_singly_hear_each_its_own() -> None:
    seed = random.randrange(1 << 32)
    producer = Producer()
    waiting = [asyncio.ensure_future(result_of(one)) for one in producer.send(*bodies_of(1000))]
    await asyncio.sleep(0)
    singles, _ = producer.run().singles(1000)
    places = list(enumerate(singles))
    random.Random(seed).shuffle(places)
    for place, one in places:
        one.stands_at(2 * place, "3")
        one.settle(None)
    results = await asyncio.gather(*waiting)
    assert [int(result.offset or "", 16) for result in results] == [2 * place for place in range(1000)], f"seed {seed}"


def test_single_messages_go_out_until_there_are_bytes_enough() -> None:
    producer = Producer()
    producer.send(*[bytes(1000)] * 400)
    waiting, room = deque(producer.staged.take()), Room(False, 512, 0, False)
    first = next_transfers(waiting, room)
    assert PUMP_BYTES - 1100 <= sum(one.size for one in first) <= PUMP_BYTES + 1100
    assert len(first) + len(next_transfers(waiting, room)) == 400
