"""What becomes of events that went into batches: who asks for them hears it, each what concerns it, whatever is cut."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from typing import Any

import pytest

from holdfast.client import ConfigurationError, Delivery, Event, ProducerClient, ProducerOptions, RejectedError
from holdfast.client.options import MAX_SEQUENCE
from holdfast.client.produce import batch_queue, send_api
from holdfast.client.produce.batch_queue import SLOTS, BatchQueue
from holdfast.client.produce.delivery import EVENT_COST, PendingBatch
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually


class Gathering:
    """Gathers events, and hears of failures."""

    def __init__(self, most_events: int = 10**6) -> None:
        self.unclaimed: list[PendingBatch] = []
        self.queue = BatchQueue("3", most_events, self.unclaimed.append)

    def send(self, *bodies: bytes, done: Any = None, given: Event | None = None) -> list[Delivery]:
        return [self.queue.add(body, body=True, done=done, given=given) for body in bodies]

    def send_many(self, count: int) -> Delivery:
        return Delivery.of(self.queue.extend([b"x"] * count, bodies=True), "3")

    def batches(self) -> list[PendingBatch]:
        self.queue.release()
        return self.queue.withdraw_released()


def stored(batch: PendingBatch, offset: int | None = None, number: int | None = None) -> None:
    batch.offset, batch.number = offset, number
    batch.settle(None)


async def result_of(delivery: Delivery) -> Any:
    return await delivery


async def test_each_is_told_its_own_place_and_number() -> None:
    producer = Gathering()
    deliveries = producer.send(*[b"x"] * 10)
    assert not any(one.is_done for one in deliveries)
    assert (deliveries[0].partition, deliveries[0].offset, deliveries[0].error) == ("3", None, None)
    [batch] = producer.batches()
    stored(batch, 0x20, MAX_SEQUENCE - 5)
    results = [await one for one in deliveries]
    assert [int(result.offset or "", 16) for result in results] == list(range(0x20, 0x2A))
    assert [result.sequence_number for result in results] == [*range(MAX_SEQUENCE - 5, MAX_SEQUENCE + 1), *range(4)]
    assert {(result.partition, result.count) for result in results} == {("3", 1)}


async def test_a_call_is_done_when_the_last_of_its_batches_is_settled_and_tells_the_place_of_its_first_event() -> None:
    producer = Gathering(4)
    producer.send(b"before")
    delivery = producer.send_many(10)
    first, second, last = producer.batches()
    for batch, offset in ((last, 90), (first, 0x20)):
        stored(batch, offset, offset)
        assert not delivery.is_done
    stored(second, 50, 50)
    told = await delivery
    assert (told.partition, told.offset, told.sequence_number, told.count) == ("3", f"{0x21:016x}", 0x21, 10)
    assert (await Delivery.of((), "3")).count == 0


async def test_who_waits_hears_of_it_and_nobody_else_is_woken() -> None:
    producer = Gathering(3)
    deliveries = producer.send(*[b"x"] * 6)
    waiting = [asyncio.ensure_future(result_of(one)) for one in (deliveries[1], deliveries[1], deliveries[4])]
    await asyncio.sleep(0)
    first, rest = producer.batches()
    stored(first)
    assert [(await one).partition for one in waiting[:2]] == ["3", "3"]
    assert not waiting[2].done()
    rest.settle(RejectedError("no"))
    with pytest.raises(RejectedError, match="no"):
        await waiting[2]
    assert [one.error is None for one in deliveries] == [True] * 3 + [False] * 3
    assert [batch.unheard for batch in producer.unclaimed] == [2]


async def test_a_failure_is_told_once_to_who_asks_or_else_to_who_collects() -> None:
    error, producer = RejectedError("not wanted"), Gathering(4)
    delivery = producer.send_many(10)
    first, *rest = producer.batches()
    first.settle(error)
    for batch in rest:
        stored(batch)
    assert producer.unclaimed == [first]
    assert (delivery.failed, delivery.error, first.unheard) == (4, error, 4)
    with pytest.raises(RejectedError, match="not wanted") as caught:
        await delivery
    assert caught.value.__notes__ == ["4 of the 10 events failed; this is the first failure"]
    assert first.unheard == 0
    asked = producer.send_many(2)
    waiting = asked.__await__()
    next(waiting)
    [batch] = producer.batches()
    batch.settle(error)
    assert producer.unclaimed == [first]


@pytest.mark.parametrize("count", [1, 3, 9])
async def test_each_who_waits_goes_on_in_the_same_turn_whoever_else_is_cancelled(count: int) -> None:
    producer = Gathering(4)
    delivery = producer.send_many(count) if count > 1 else producer.send(b"x")[0]
    waiting = [asyncio.ensure_future(result_of(delivery)) for _ in range(4)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    waiting[2].cancel()
    for batch in producer.batches():
        stored(batch)
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True] * 4, "one turn after it was settled"
    assert [one.cancelled() for one in waiting] == [True, False, True, False]
    assert {one.result().partition for one in waiting[1::2]} == {"3"}


@pytest.mark.parametrize("count", [1, 3])
async def test_who_gives_up_again_and_again_leaves_nothing_behind(count: int) -> None:
    producer = Gathering()
    delivery = producer.send_many(count)
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

    producer, error = Gathering(3), RejectedError("no")
    for number in range(6):
        producer.send(b"", done=callback(number) if number != 4 else None)
    first, rest = producer.batches()
    stored(first)
    rest.settle(error)
    assert told == [(0, None), (1, None), (2, None), (3, error), (5, error)]
    assert [type(one["exception"]) for one in complaints] == [KeyError]
    assert [(batch.error, batch.unheard) for batch in producer.unclaimed] == [(error, 1)], "the one without a callback"


async def test_who_asks_too_late_to_hear_first_is_heard_to_ask() -> None:
    producer = Gathering()
    [delivery] = producer.send(b"a")
    [batch] = producer.batches()
    batch.settle(RejectedError("no"))
    assert batch.unheard
    with pytest.raises(RejectedError):
        await delivery
    assert not batch.unheard, "it is the same event"


def test_no_batch_is_settled_twice() -> None:
    producer = Gathering()
    producer.send(b"a")
    [batch] = producer.batches()
    stored(batch)
    with pytest.raises(AssertionError, match="settled twice"):
        batch.settle(None)


def test_what_a_callback_holds_is_let_go_when_it_was_called_and_so_are_the_events() -> None:
    class Held:
        pass

    held = Held()
    gone, producer = weakref.ref(held), Gathering()
    [kept] = producer.send(b"a", done=lambda _, held=held: None)
    [batch] = producer.batches()
    stored(batch)
    del held
    gc.collect()
    assert gone() is None
    assert kept.is_done
    assert batch.open is batch.sealed is None


async def test_events_that_are_given_as_objects_learn_their_numbers() -> None:
    producer, events = Gathering(2), [Event(b"a"), Event(b"b")]
    deliveries = [producer.send(b"x", given=given)[0] for given in (None, events[0], None, events[1], None)]
    first, second, _ = producer.batches()
    assert [delivery.event for delivery in deliveries] == [None, events[0], None, events[1], None]
    stored(first, number=7)
    second.number = 9
    second.settle(RejectedError("no"))
    assert [event.published_sequence_number for event in events] == [8, None]
    assert not any(event.being_published for event in events)


# ---------------------------------------------------------------- a batch that was cut before it was sent


async def test_who_has_a_delivery_does_not_notice_that_its_batch_was_cut() -> None:
    seed = random.randrange(1 << 32)
    chance, producer = random.Random(seed), Gathering()
    given = [Event(b"%d" % number) for number in range(20)]
    told: list[int] = []
    singles = [
        producer.send(b"x", given=given[number], done=lambda _, number=number: told.append(number))[0]
        for number in range(20)
    ]
    many = [producer.send_many(10) for _ in range(3)]
    waiting = [asyncio.ensure_future(result_of(one)) for one in (singles[3], singles[17], many[1])]
    await asyncio.sleep(0)
    producer.queue.release()
    batches, place = [], 0
    while producer.queue.first is not None:
        producer.queue.cut_first(chance.randrange(1, 9) * (1 + EVENT_COST)) if producer.queue.first.events > 1 else None
        batches.append(producer.queue.pop_first())
    for batch in batches:
        stored(batch, 100 + place, place)
        place += batch.events
    assert place == 50, f"seed {seed}"
    assert [one.offset for one in singles] == list(range(100, 120)), f"seed {seed}"
    assert [one.sequence_number for one in singles] == list(range(20)), f"seed {seed}"
    assert [(one.offset, one.count) for one in many] == [(120, 10), (130, 10), (140, 10)], f"seed {seed}"
    assert [event.published_sequence_number for event in given] == list(range(20)), f"seed {seed}"
    assert told == list(range(20)), f"seed {seed}"
    assert [int((await one).offset or "", 16) for one in waiting] == [103, 117, 130], f"seed {seed}"


async def test_of_a_batch_that_was_cut_a_part_may_fail_and_who_asked_has_heard_of_it() -> None:
    producer = Gathering()
    asked, unasked = producer.send_many(10), producer.send_many(10)
    waiting = asyncio.ensure_future(result_of(asked))
    await asyncio.sleep(0)
    producer.queue.release()
    producer.queue.cut_first(15 * (1 + EVENT_COST))
    first, rest = producer.batches()
    first.settle(RejectedError("no"))
    stored(rest)
    with pytest.raises(RejectedError):
        await waiting
    assert (first.unheard, asked.failed, unasked.failed) == (5, 10, 5)
    assert unasked.is_done


# ---------------------------------------------------------------- from the producer


async def test_what_is_wrong_with_an_event_raises_before_it_is_taken_in(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_api, "MAX_MESSAGE_BYTES", 1000)
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


async def test_a_thousand_events_that_nobody_asks_for_are_few_objects(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept for each of them that the collector would have to walk through."""
    monkeypatch.setattr(batch_queue, "MOST_EVENTS", 2048)
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


async def test_what_waits_for_a_slot_grows_into_few_batches(node: TinyNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """While SLOTS batches are unanswered, the turns' events gather; a lone event waits for nobody."""
    monkeypatch.setattr(batch_queue, "MOST_EVENTS", 2048)
    pieces: list[int] = []
    held: list[Any] = []

    def hold(connection: Any, partition: str, count: int) -> bool:
        pieces.append(count)
        held.append(connection)
        return len(held) <= SLOTS

    node.after_transfers = hold
    async with ProducerClient(node.address, "trades") as producer:
        for number in range(SLOTS):
            await producer.send(b"lone", partition="0")
            await eventually(lambda number=number: sum(pieces) == number + 1)
        for _ in range(100):
            await producer.send(b"gathers", partition="0")
            await asyncio.sleep(0)
        assert pieces == [1] * SLOTS
        held[0].abort()
        await producer.flush()
    assert sum(pieces) - 2 * SLOTS == 100, "the first ones came again, and were stored then"
    assert len(pieces) <= 2 * SLOTS + 1
    assert sorted(node.log.bodies("0"))[:100] == [b"gathers"] * 100
