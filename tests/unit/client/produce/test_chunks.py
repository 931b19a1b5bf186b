"""Many events in one piece: encoded, cut, counted and sent as each for itself would be."""

from __future__ import annotations

import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c

from holdfast.amqp import OtherState
from holdfast.amqp.links.delivery_states import ACCEPTED, RELEASED
from holdfast.client import HoldfastError, RejectedError
from holdfast.client.events import encode_bodies, encode_event
from holdfast.client.produce.chunks.chunk import Chunk, Run
from holdfast.client.produce.chunks.delivery import ChunkDelivery
from holdfast.client.produce.chunks.single_events import Delivery, Staged
from holdfast.client.produce.transfers import (
    LEAST_CUT,
    Room,
    Transfer,
    UnderWay,
    next_transfers,
    room_of,
    runs_of,
    transfer_of,
    worth_waiting,
)
from holdfast.client.transport.batch_transfers import EVENT_BYTES
from holdfast.protocol import STORED_CODE
from holdfast.records.codec import Codec
from holdfast.records.record_batch import Numbering, RecordBatch

SIZES = {
    "one size": [7] * 20,
    "none": [0, 0, 0],
    "around the long form": [0, 1, 255, 256, 257, 70_000, 3],
    "one": [300],
}


class Unheard:
    """Who is told of failures that nobody asked for."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __call__(self, delivery: Any) -> None:
        self.told.append(delivery)


def chunk_of(bodies: list[bytes], *, key: str | None = None, leads: bool = True) -> tuple[Run, ChunkDelivery]:
    delivery = ChunkDelivery(len(bodies), Unheard())
    return Chunk.of_bodies(bodies, key, delivery, leads=leads, numbered=False).whole(), delivery


def sealed(run: Run) -> RecordBatch:
    """As it goes to the node."""
    return transfer_of([run]).sealed(Codec.NONE)


def bodies_of(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def encoded(bodies: list[bytes], key: str | None = None) -> list[bytes]:
    return [encode_event(body, key) for body in bodies]


@pytest.mark.parametrize("key", [None, "IBM", "k" * 300])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_bodies_are_encoded_together_as_each_for_itself(sizes: list[int], key: str | None) -> None:
    bodies = [random.randbytes(size) for size in sizes]
    data, lengths = encode_bodies(bodies, key)
    assert data == b"".join(encoded(bodies, key))
    assert list(lengths) == [len(message) for message in encoded(bodies, key)]
    run, _ = chunk_of(bodies, key=key)
    assert run.messages() == encoded(bodies, key)
    assert sealed(run).messages() == encoded(bodies, key)
    assert sealed(run).are_bodies is (key is None)


def test_a_run_is_cut_between_events_and_its_parts_are_the_whole() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    bodies = [chance.randbytes(chance.randrange(400)) for _ in range(200)]
    waiting, found, events = deque([chunk_of(bodies)[0]]), [], 0
    while waiting:
        run = waiting.popleft()
        if run.events > 1 and chance.random() < 0.8:
            waiting.extendleft(reversed(run.cut(chance.randrange(1, run.events))))
            continue
        messages = run.messages()
        assert sealed(run).messages() == messages, f"seed {seed}"
        assert (run.events, run.size) == (len(messages), sealed(run).uncompressed_bytes), f"seed {seed}"
        found += messages
        events += run.events
    assert found == encoded(bodies), f"seed {seed}"


@pytest.mark.parametrize(
    ("most_events", "most_bytes", "overhead", "expected"),
    [(100, 10**6, 4, 20), (7, 10**6, 4, 7), (100, 4 * 12 + 3, 0, 4), (100, 5 * (12 + 4), 4, 5), (100, 5, 0, 0)],
)
def test_what_of_a_run_fits(most_events: int, most_bytes: int, overhead: int, expected: int) -> None:
    run, _ = chunk_of([b"1234567"] * 20)  # 12 bytes each
    assert run.fitting(most_events, most_bytes, overhead) == expected


# ---------------------------------------------------------------- one outcome for all of them


async def test_a_chunk_is_done_when_the_last_of_it_is_settled() -> None:
    run, delivery = chunk_of(bodies_of(10))
    first, rest = run.cut(4)
    first.stands_at(0x20, "3")
    rest.stands_at(0x70, "3")
    rest.settle(None)
    assert not delivery.is_done
    first.settle(None)
    told = await delivery
    assert (told.partition, told.offset, told.sequence_number, told.count) == ("3", f"{0x20:016x}", None, 10)


async def test_only_the_first_of_a_call_tells_its_place_and_number() -> None:
    delivery = ChunkDelivery(4, Unheard())
    first, second = (
        Chunk.of_bodies(bodies_of(2), None, delivery, leads=leads, numbered=False).whole() for leads in (True, False)
    )
    for run, number in ((first, 7), (second, 9)):
        run.sequence_number = number
        run.stands_at(number * 10, "0")
        run.settle(None)
    told = await delivery
    assert (told.sequence_number, told.offset) == (7, f"{70:016x}")


async def test_a_failure_is_told_once_to_who_asks_or_else_to_who_collects() -> None:
    error = RejectedError("not wanted")
    run, delivery = chunk_of(bodies_of(10))
    first, rest = run.cut(4)
    first.settle(error)
    rest.settle(None)
    unheard = delivery._unclaimed
    assert isinstance(unheard, Unheard)
    assert unheard.told == [delivery]
    assert (delivery.failed, delivery.error) == (4, error)
    with pytest.raises(RejectedError, match="not wanted") as caught:
        await delivery
    assert caught.value.__notes__ == ["4 of the 10 events failed; this is the first failure"]
    asked_run, asked = chunk_of(bodies_of(2))
    waiting = asked.__await__()
    next(waiting)
    asked_run.settle(error)
    asked_unheard = asked._unclaimed
    assert isinstance(asked_unheard, Unheard)
    assert not asked_unheard.told


async def test_what_was_never_taken_in_is_not_waited_for() -> None:
    delivery = ChunkDelivery(10, Unheard())
    run = Chunk.of_bodies(bodies_of(4), None, delivery, leads=True, numbered=False).whole()
    delivery.without(6)
    run.settle(None)
    assert (await delivery).count == 4
    assert (await ChunkDelivery(0, Unheard())).count == 0


# ---------------------------------------------------------------- what goes out together


def sent(body: bytes) -> tuple[Run, Delivery]:
    """As `send` makes it of an event with a key or properties."""
    staged = Staged(None, Unheard(), numbered=False)
    delivery = staged.add(encode_event(body), None, None, body=False)
    [run] = staged.take()
    return run, delivery


def single(body: bytes) -> Run:
    return sent(body)[0]


def batches(events: int = 10**6, size: int = 10**6) -> Room:
    return Room(True, events, size, False)


def bodies_in(transfers: list[Transfer]) -> list[list[bytes]]:
    found = []
    for transfer in transfers:
        batch, messages = transfer.sealed(Codec.NONE), transfer.messages()
        assert batch.messages() == messages
        assert (len(messages), batch.are_bodies) == (transfer.events, all(run.bodies for run in transfer.runs))
        sizes = [run.size for run in transfer.runs]
        assert transfer.size == sum(sizes)
        found.append([message[5:] for message in messages])
    return found


def all_of(waiting: deque[Run], room: Room) -> list[list[bytes]]:
    found = []
    while waiting:
        found += bodies_in(next_transfers(waiting, room))
    return found


def queue() -> deque[Run]:
    """0 to 12: two single events, a run of five, one, a run of five."""
    return deque([single(b"0"), single(b"1"), chunk_of(bodies_of(5, 2))[0], single(b"7"), chunk_of(bodies_of(5, 8))[0]])


@pytest.mark.parametrize("events", range(1, 15))
def test_transfers_hold_what_stood_side_by_side_and_no_more_events_than_there_is_room_for(events: int) -> None:
    found = all_of(queue(), batches(events))
    assert [body for transfer in found for body in transfer] == bodies_of(13)
    assert {len(transfer) for transfer in found[:-1]} <= {events}


@pytest.mark.parametrize("events", [1, 2, 3, 7])
def test_no_more_bytes_either_with_what_each_costs_besides(events: int) -> None:
    room = batches(size=events * (6 + EVENT_BYTES))
    keyed = [encode_event(b"x", properties={}) for _ in range(10)]
    delivery = ChunkDelivery(10, Unheard())
    whole = Chunk.of_messages(keyed, delivery, leads=True).whole()
    queues = [deque[Run]([single(b"x") for _ in range(10)]), deque[Run]([whole])]
    for items in queues:
        sizes = [len(transfer) for transfer in all_of(items, room)]
        assert sizes == [events] * (10 // events) + ([10 % events] if 10 % events else [])


def test_numbers_of_a_batch_follow_each_other() -> None:
    runs = [single(b"%d" % number) for number in range(5)]
    for run, number in zip(runs, (2**31 - 2, 2**31 - 1, 0, 5, None), strict=True):
        run.sequence_number = number
    found = all_of(deque(runs), batches())
    assert found == [[b"0", b"1", b"2"], [b"3"], [b"4"]]


def test_events_of_a_numbered_producer_have_digests_whatever_they_travel_as() -> None:
    delivery = ChunkDelivery(3, Unheard())
    whole = [encode_event(b"x", properties={"a": 1}), encode_event(b"yy")]
    messages = Chunk.of_messages(whole, delivery, leads=True, numbered=True).whole()
    bodies = Chunk.of_bodies([b"yy"], None, delivery, leads=False, numbered=True).whole()
    for runs, events in (([bodies], whole[1:]), ([messages], whole), ([messages, bodies], [*whole, whole[1]])):
        transfer = transfer_of(runs)
        transfer.numbering = Numbering(7, 0, 40)
        batch = transfer.sealed(Codec.NONE)
        assert (batch.messages(), batch.numbering) == (events, Numbering(7, 0, 40))
        assert batch.digests == b"".join(crc32c(event).to_bytes(4, "big") for event in events)


def test_a_message_that_is_larger_than_a_batch_goes_alone() -> None:
    for large in (single(b"x" * 100), chunk_of([b"x" * 100])[0]):
        found = all_of(deque[Run]([single(b"a"), large, chunk_of([b"b", b"x" * 100, b"c"])[0]]), batches(size=50))
        assert found == [[b"a"], [b"x" * 100], [b"b"], [b"x" * 100], [b"c"]]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_is_left_behind_the_last_one_that_is_larger_than_a_batch(count: int) -> None:
    for bodies in ([b"x" * 100], [b"a", b"x" * 100]):
        waiting = deque(chunk_of(bodies)[0] for _ in range(count))
        assert all_of(waiting, batches(size=50)) == [[body] for body in bodies] * count
        assert not waiting


def test_a_link_for_single_messages_gets_them_one_by_one() -> None:
    found = next_transfers(queue(), Room(False, 11, 0, False))
    assert [transfer.messages() for transfer in found] == [[message] for message in encoded(bodies_of(11))]
    assert {transfer.events for transfer in found} == {1}


def test_a_run_is_not_cut_for_a_small_piece_while_something_is_under_way() -> None:
    large = deque[Run]([chunk_of([b""] * (LEAST_CUT * 2))[0]])
    wide: Any = SimpleNamespace(sends_batches=True, batch_events=2000, batch_bytes=10**6)
    assert worth_waiting(large, room_of(wide, LEAST_CUT - 1))
    assert not worth_waiting(large, room_of(wide, LEAST_CUT))
    assert not worth_waiting(deque[Run]([chunk_of([b""] * 10)[0]]), room_of(wide, 10))
    assert not worth_waiting(deque[Run]([single(b"")]), room_of(wide, 1))


def test_who_never_gives_more_room_than_a_little_is_not_waited_for() -> None:
    large = deque[Run]([chunk_of([b""] * (LEAST_CUT * 2))[0]])
    small: Any = SimpleNamespace(sends_batches=True, batch_events=50, batch_bytes=10**6)
    assert worth_waiting(large, room_of(small, 49))
    assert not worth_waiting(large, room_of(small, 50))
    plain: Any = SimpleNamespace(sends_batches=False)
    assert not worth_waiting(large, room_of(plain, 3))


# ---------------------------------------------------------------- what is under way


class Batches:
    """A link that carries record batches."""

    sends_batches = True

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []

    codec = Codec.NONE

    def send_batch(self, batch: RecordBatch, *, txn_id: bytes | None = None) -> int:
        self.sent.append(batch.messages())
        return 10 + len(self.sent)


class Plain(Batches):
    sends_batches = False

    def send_many(self, messages: list[bytes], *, txn_id: bytes | None = None) -> range:
        first = 11 + len(self.sent)
        self.sent += [[message] for message in messages]
        return range(first, first + len(messages))


def stored(offset: int, count: int) -> OtherState:
    return OtherState(STORED_CODE, (offset, count, "5"))


async def test_a_batch_hears_one_outcome_and_its_place() -> None:
    link: Any = Batches()
    one, (a, of_a), (b, of_b) = UnderWay(), sent(b"a"), sent(b"b")
    run, delivery = chunk_of(bodies_of(3))
    assert one.send(link, [transfer_of([a, run]), transfer_of([b])], now_s=5.0) == [11, 12]
    assert (bool(one), one.events) == (True, 5)
    assert one.says_stored(11, stored(40, 1))
    assert (taken := one.pop(11, 5.75)) is not None
    assert taken.runs == [a, run]
    for settled in (a, run, b):
        settled.settle(None)
    assert (of_a.offset, delivery.offset, delivery.partition, of_b.offset) == (40, 41, "5", None)
    assert one.round_trips.shortest_s == 0.75
    assert not one.says_stored(12, RELEASED)
    assert one.says_stored(12, ACCEPTED)
    assert (one.events, one.pop(11, 6.0), one.round_trips.shortest_s) == (1, None, 0.75)


def test_the_place_of_single_messages_is_told_for_a_row_of_them() -> None:
    link: Any = Plain()
    one = UnderWay()
    runs, deliveries = zip(*map(sent, (b"a", b"b", b"c")), strict=True)
    many, of_many = chunk_of(bodies_of(3))
    apart = next_transfers(deque([many]), Room(False, 9, 0, False))
    transfers = [*(transfer_of([run]) for run in runs), *apart]
    assert list(one.send(link, transfers, now_s=0.0)) == [11, 12, 13, 14, 15, 16]
    assert one.says_stored(11, stored(7, 2))
    assert one.says_stored(13, stored(30, 4))
    for transfer in transfers:
        for run in transfer.runs:
            run.settle(None)
    assert [delivery.offset for delivery in deliveries] == [7, 8, 30]
    assert of_many.offset == 31


def test_what_is_taken_back_comes_in_the_order_sent() -> None:
    link: Any = Batches()
    one = UnderWay()
    items = [single(b"a"), chunk_of(bodies_of(3))[0], single(b"b"), single(b"c")]
    one.send(link, [transfer_of(items[:2]), transfer_of(items[2:3]), transfer_of(items[3:])], now_s=0.0)
    answered = one.pop(11, 0.0)
    assert answered is not None
    assert runs_of([*one.take_back(), (11, answered)]) == items
    assert (bool(one), one.events) == (False, 0)


def test_a_failure_without_anybody_to_tell_is_no_secret() -> None:
    error = HoldfastError("gone")
    run, delivery = chunk_of(bodies_of(2))
    run.settle(error)
    assert delivery.is_done
    with pytest.raises(HoldfastError, match="gone"):
        delivery.result()
