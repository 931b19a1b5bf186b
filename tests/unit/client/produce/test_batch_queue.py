"""What goes out together: events in the order of the calls, in batches that are no larger than is good for one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crc32c import crc32c

from holdfast.amqp.links.delivery_states import RELEASED
from holdfast.client import Event
from holdfast.client.events import encode_event
from holdfast.client.options import ProducerOptions
from holdfast.client.produce import batch_queue
from holdfast.client.produce.accumulator import Accumulator
from holdfast.client.produce.batch_queue import SLOTS, BatchQueue
from holdfast.client.produce.delivery import EVENT_COST, PendingBatch
from holdfast.client.produce.partition_sender import PartitionSender
from holdfast.client.produce.send_api import PIECE_BYTES, PIECE_EVENTS, Sending
from holdfast.client.transport.links import Sender
from holdfast.records.codec import Codec
from holdfast.records.record_batch import RecordBatch
from node.listener.incoming import batch_link

SIZES = {
    "one size": [7] * 20,
    "none": [0, 0, 0],
    "around the long form": [0, 1, 255, 256, 257, 70_000, 3],
    "one": [300],
}


def queue(most_events: int = 10**6) -> BatchQueue:
    return BatchQueue("3", most_events, lambda _: None)


def bodies_of(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def batches_of(one: BatchQueue) -> list[PendingBatch]:
    """All that is there, as it leaves."""
    one.release()
    found = []
    while one.first is not None:
        found.append(one.pop_first())
    return found


def link(batch_bytes: int = 10**6) -> Sender:
    """One that takes as much as is given to it."""
    return cast(Sender, SimpleNamespace(credit=1, batch_bytes=batch_bytes))


def sealed(batch: PendingBatch, *, numbered: bool = False) -> RecordBatch:
    return batch.seal(Codec.NONE, with_digests=numbered)


def messages_in(batches: Sequence[PendingBatch]) -> list[list[bytes]]:
    found = [sealed(batch).messages() for batch in batches]
    assert [len(messages) for messages in found] == [batch.events for batch in batches]
    return found


class SendsToOne(Sending):
    """Everything goes into one queue; `pieces` are the sizes of what was put there at a time."""

    def __init__(self) -> None:
        self.queue, self.pieces = queue(), list[int]()
        self._accumulator = Accumulator(ProducerOptions())
        self._partitions = cast(Any, SimpleNamespace(place_for=lambda key, partition: "3"))

    def _check_takes(self) -> None:
        pass

    def _took_a_part(self) -> None:
        raise AssertionError("nothing fails here")

    def _sender(self, partition: str) -> PartitionSender:
        return cast(PartitionSender, self)

    def pump(self) -> None:
        pass

    def _take(self, sender: Any, records: Sequence[bytes], given: Any, *, bodies: bool) -> Any:
        self.pieces.append(len(records))
        return super()._take(sender, records, given, bodies=bodies)


async def taken(events: Sequence[Event | bytes | str], key: str | None = None) -> list[PendingBatch]:
    """One call of `send_many`."""
    one = SendsToOne()
    await one.send_many(events, key=key, partition="3")
    return batches_of(one.queue)


@pytest.mark.parametrize("key", [None, "IBM", "k" * 300])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
async def test_bodies_are_encoded_together_as_each_for_itself(sizes: list[int], key: str | None) -> None:
    bodies = [random.randbytes(size) for size in sizes]
    [batch] = await taken(bodies, key)
    assert sealed(batch).messages() == [encode_event(body, key) for body in bodies]
    assert sealed(batch).are_bodies is (key is None)


async def test_pieces_of_a_call_are_bounded_and_are_the_whole() -> None:
    sent = [*bodies_of(2 * PIECE_EVENTS + 1), bytes(PIECE_BYTES // 2), bytes(PIECE_BYTES), b"next"]
    one = SendsToOne()
    await one.send_many(sent, partition="3")
    assert one.pieces == [PIECE_EVENTS, PIECE_EVENTS, 2, 1, 1]
    found = messages_in(batches_of(one.queue))
    assert [message for batch in found for message in batch] == [encode_event(event) for event in sent]


def test_events_stand_in_the_order_of_the_calls_whatever_they_travel_as_and_however_they_are_cut() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    one, expected, found = queue(50), [], []

    def given(count: int, *, bodies: bool) -> list[bytes]:
        start = len(expected)
        those = bodies_of(count, start)
        expected.extend(those)
        return those if bodies else [encode_event(body) for body in those]

    for number in range(500):
        bodies = chance.random() < 0.7
        roll = chance.random()
        if roll < 0.5:
            one.add(*given(1, bodies=bodies), body=bodies)
        elif roll < 0.7:
            one.extend(given(chance.randrange(1, 120), bodies=bodies), bodies=bodies)
        elif roll < 0.8:
            alone = PendingBatch("3", lambda _: None)
            alone.stands_alone = True
            alone.extend(given(3, bodies=False), 0, bodies=False)
            one.put(alone)
        elif roll < 0.9:
            one.release()
        elif (first := one.next_for(link(chance.randrange(1, 40 * EVENT_COST)))) is not None:
            one.leaves(number)
            if chance.random() < 0.3:
                assert one.sent.came_back(number, RELEASED) is first
                assert one.take_back() == [(first, RELEASED)]
            else:
                assert one.sent.settled(number) is first
                found.append(first)
    found += batches_of(one)
    assert all(batch.events <= 50 for batch in found), f"seed {seed}"
    bodies_found = [message for batch in messages_in(found) for message in batch]
    assert bodies_found == [encode_event(body) for body in expected], f"seed {seed}"


@pytest.mark.parametrize("events", range(1, 15))
def test_batches_are_filled_before_the_next_one_begins(events: int) -> None:
    one = queue(events)
    one.add(b"0", body=True)
    one.extend(bodies_of(5, 1), bodies=True)
    one.add(encode_event(b"6"), body=False)
    one.extend(bodies_of(6, 7), bodies=True)
    found = messages_in(batches_of(one))
    assert [message for batch in found for message in batch] == [encode_event(body) for body in bodies_of(13)]
    assert {len(batch) for batch in found[:-1]} <= {events}


@pytest.mark.parametrize("events", [1, 2, 3, 7])
def test_no_more_bytes_either_with_what_each_costs_besides(events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_queue, "MOST_BYTES", events * (6 + EVENT_COST))
    together, singly = queue(), queue()
    together.extend([bytes(6)] * 10, bodies=True)
    for _ in range(10):
        singly.add(bytes(6), body=True)
    for one in (together, singly):
        assert [batch.events for batch in batches_of(one)] == [events] * (10 // events) + [10 % events] * bool(
            10 % events
        )


def test_an_event_that_is_larger_than_a_batch_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_queue, "MOST_BYTES", 100)
    large = b"x" * 200
    one = queue()
    one.add(b"a", body=True)
    one.add(large, body=True)
    one.extend([b"b", large, b"c"], bodies=True)
    one.extend([large], bodies=True)
    expected = [[b"a"], [large], [b"b"], [large], [b"c"], [large]]
    assert messages_in(batches_of(one)) == [[encode_event(body) for body in batch] for batch in expected]


def test_a_batch_is_not_given_out_before_its_turn_is_over_and_then_goes_on_being_filled() -> None:
    one = queue()
    one.add(b"a", body=True)
    assert one.first is None
    one.release()
    one.add(b"b", body=True)
    assert one.first is not None
    assert messages_in([one.pop_first()]) == [[encode_event(b"a"), encode_event(b"b")]]
    one.add(b"c", body=True)
    assert one.first is None


def test_a_publication_stands_alone_between_what_came_before_and_behind_it() -> None:
    one, alone = queue(), PendingBatch("3", lambda _: None)
    alone.extend([encode_event(b"b")], 0, bodies=False)
    one.add(b"a", body=True)
    one.put(alone)
    one.add(b"c", body=True)
    assert messages_in(batches_of(one)) == [[encode_event(body)] for body in (b"a", b"b", b"c")]


def test_what_is_withdrawn_leaves_the_others_in_their_order() -> None:
    one = queue(1)
    for body in bodies_of(6):
        one.add(body, body=True)
        if body == b"3":
            one.release()
    gone = one.withdraw(lambda batch: sealed(batch).messages()[0][-1:] in b"14")
    assert messages_in(gone) == [[encode_event(b"1")], [encode_event(b"4")]]
    assert messages_in(one.withdraw_released()) == [[encode_event(b"0")], [encode_event(b"2")], [encode_event(b"3")]]
    assert messages_in(list(one)) == [[encode_event(b"5")]]


def test_events_of_a_numbered_producer_have_digests_whatever_they_travel_as() -> None:
    whole = [encode_event(b"x", properties={"a": 1}), encode_event(b"yy")]
    for records in ([(b"yy", True)], [(whole[0], False), (whole[1], False)], [(whole[0], False), (b"yy", True)]):
        one = queue()
        for record, body in records:
            one.add(record, body=body)
        [batch] = batches_of(one)
        found = sealed(batch, numbered=True)
        assert found.digests == b"".join(crc32c(event).to_bytes(4, "big") for event in found.messages())
        assert sealed(batch, numbered=True) is found, "the same one is sent again"


def test_what_is_sent_and_not_settled_stands_before_what_waits_and_goes_back_there() -> None:
    one = queue(1)
    for body in bodies_of(4):
        one.add(body, body=True)
    one.release()
    expected = list(one)
    for number in (7, 8, 9):
        one.leaves(number)
    assert list(one) == expected
    assert one.sent.settled(8) is expected.pop(1)
    assert one.sent.settled(8) is None, "it was answered before"
    assert one.sent.came_back(9, RELEASED) is expected[1]
    assert one.take_back() == [(expected[0], None), (expected[1], RELEASED)]
    assert list(one) == expected == batches_of(one)


def test_no_more_events_are_unanswered_than_may_be() -> None:
    one = queue(5)
    for events in (3, 2, 1):
        one.extend(bodies_of(events), bodies=True)
        alone = PendingBatch("3", lambda _: None)
        alone.extend([encode_event(b"b")], 0, bodies=False)
        one.put(alone)
    one.release()
    numbers = count()

    def unanswered() -> int:
        while one.next_for(link()) is not None:
            one.leaves(next(numbers))
        return sum(batch.events for batch in one.sent)

    assert unanswered() == 4, "a batch of two would be one too many"
    one.sent.settled(1)
    assert unanswered() == 5
    one.take_back()
    assert unanswered() == 5, "what was taken back is not unanswered any more"


def test_nothing_leaves_without_credit() -> None:
    one = queue()
    one.add(b"a", body=True)
    one.release()
    assert one.next_for(cast(Sender, SimpleNamespace(credit=0, batch_bytes=10**6))) is None


def test_a_publication_waits_while_many_batches_are_unanswered() -> None:
    one = queue()
    for number in range(SLOTS):
        one.add(b"event", body=True)
        one.release()
        assert one.next_for(link()) is not None
        one.leaves(number)
    publication = PendingBatch("3", lambda _: None)
    publication.extend((b"published",), 9, bodies=True)
    publication.stands_alone = True
    one.put(publication)
    one.release()
    assert one.next_for(link()) is None
    assert one.sent.settled(0) is not None
    assert one.next_for(link()) is publication


def test_a_node_takes_all_batches_beside_which_one_waits() -> None:
    assert SLOTS <= batch_link.MOST_UNANSWERED
