"""The rules of idempotent publishing that bind a client, IP-1 to IP-21, each by its name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import Error, decode_message
from holdfast.amqp.states import ACCEPTED, Modified, Rejected
from holdfast.client import (
    ClosedError,
    ConfigurationError,
    Event,
    EventBatch,
    EventTooLargeError,
    HoldfastError,
    InvalidOperationError,
    NotFoundError,
    OutOfOrderError,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
    ProducerClient,
    ProducerOptions,
    ProducerStateError,
    ProducerStolenError,
    RejectedError,
    UndeliveredError,
    UnsupportedError,
)
from holdfast.client.publishing import MAX_SEQUENCE, NUMBERING_BYTES
from tests.unit.client.tiny_node import UNKNOWN, TinyNode
from tests.unit.client.tiny_producers import EPOCH, ID, NAMES, OUT_OF_ORDER, SEQUENCE, STOLEN

CAPABILITY = "com.microsoft:idempotent-producer"


def idempotent(node: TinyNode, **options: Any) -> ProducerClient:
    """A client of this node; keywords of `PartitionPublishingOptions` are for partition 0, others of the client."""
    own = {name: options.pop(name) for name in list(options) if name in PartitionPublishingOptions.__annotations__}
    partition_options = {"0": PartitionPublishingOptions(**own)} if own else None
    settings = ProducerOptions(idempotent=True, **options)
    return ProducerClient(node.address, "trades", settings, partition_options=partition_options)


async def batch_of(producer: ProducerClient, *bodies: bytes, partition: str = "0") -> EventBatch:
    batch = await producer.create_batch(partition=partition)
    for body in bodies:
        batch.add(body)
    return batch


async def last(producer: ProducerClient, partition: str = "0") -> int | None:
    return (await producer.get_partition_publishing_properties(partition)).last_published_sequence_number


async def link_gone(producer: ProducerClient, partition: str = "0") -> None:
    """Until the client has noticed that the node ended the link."""
    line = producer._intake._lanes[partition]
    async with asyncio.timeout(5):
        while line._publisher._sender is not None:  # type: ignore[union-attr]  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.002)


def drop_connection_once() -> Callable[..., bool]:
    """The first transfers are not stored, and get no answer but the end of the connection."""
    dropped = False

    def mishap(connection: Any, partition: str, count: int) -> bool:
        nonlocal dropped
        if dropped:
            return False
        dropped = True
        asyncio.get_running_loop().call_soon(connection.abort)
        return True

    return mishap


def lose_answers(node: TinyNode, times: int) -> None:
    """The next events are stored, and their producer hears "perhaps" instead, so often."""
    left = times

    def answer(payload: bytes) -> Any:
        nonlocal left
        left -= 1
        return UNKNOWN if left >= 0 else ACCEPTED

    node.answer = answer


# ------------------------------------------------------------------------------------------------ IP-1, 2, 3, 4


async def test_ip_1_idempotence_is_chosen_at_construction_and_then_everything_is_numbered(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as plain:
        await plain.send_and_confirm(b"plain", partition="0")
        assert not (await plain.get_partition_publishing_properties("0")).is_idempotent_publishing_enabled
    async with idempotent(node) as producer:
        assert producer.options.idempotent
        with pytest.raises(AttributeError):
            producer.options.idempotent = False  # type: ignore[misc]
        await producer.send_and_confirm(b"single", partition="0")
        await producer.send_batch([b"a list"], partition="0")
        await producer.send_batch(await batch_of(producer, b"a batch"))
    stored = [decode_message(payload).message_annotations for _, payload in node.log.partitions["0"]]
    assert stored[0] == {}
    assert [int(annotations[SEQUENCE]) for annotations in stored[1:]] == [1, 2, 3]


async def test_ip_1_a_batch_of_a_producer_of_the_other_kind_is_refused(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as plain, idempotent(node) as producer:
        numbered = await batch_of(producer, b"x")
        with pytest.raises(InvalidOperationError):
            await plain.send_batch(numbered)
        with pytest.raises(InvalidOperationError):
            await producer.send_batch(await batch_of(plain, b"x"))


async def test_ip_2_a_key_or_no_partition_is_refused_before_the_network(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        attaches = len(node.attaches)
        batch = await producer.create_batch(partition="0")
        for attempt in (
            lambda: producer.send(b"x", key="IBM", partition="0"),
            lambda: producer.send(b"x", key="IBM"),
            lambda: producer.send(b"x"),
            lambda: producer.send(Event(b"x", key="IBM"), partition="0"),
            lambda: producer.send_batch([b"x"], key="IBM"),
            lambda: producer.send_batch([b"x"]),
            lambda: producer.send_batch([Event(b"x", key="IBM")], partition="0"),
            lambda: producer.create_batch(key="IBM"),
            lambda: producer.create_batch(),
        ):
            with pytest.raises(ConfigurationError) as caught:
                await attempt()
            assert caught.value.advice
            assert not caught.value.retriable
        with pytest.raises(ConfigurationError):
            producer.send_nowait(b"x", key="IBM")
        with pytest.raises(ConfigurationError):
            batch.try_add(Event(b"x", key="IBM"))
        with pytest.raises(NotFoundError):
            await producer.send(b"x", partition="17")
        assert len(node.attaches) == attaches
    with pytest.raises(ConfigurationError, match="node cannot choose"):
        ProducerClient(node.address, "trades", ProducerOptions(idempotent=True, route_by="node"))


async def test_ip_3_partitions_have_numbers_of_their_own_and_publish_at_the_same_time(node: TinyNode) -> None:
    held: list[tuple[Any, str]] = []

    def hold_partition_zero(connection: Any, partition: str, count: int) -> bool:
        held.append((connection, partition))
        return partition == "0"

    node.after_transfers = hold_partition_zero
    async with idempotent(node, starting_sequence_number=40, delivery_timeout_s=1.0) as producer:
        stuck = asyncio.create_task(producer.send_batch([b"0"], partition="0"))
        await producer.send_batch([b"1", b"2"], partition="1")  # is not held up
        assert not stuck.done()
        assert await last(producer, "1") == 2
        assert await last(producer, "0") == 40
        with pytest.raises(UndeliveredError):
            await stuck
        await producer.send_batch([b"3"], partition="1")
    assert node.log.numbers("1") == [1, 2, 3]


async def test_ip_4_one_publish_at_a_time_and_the_others_wait_in_line(node: TinyNode) -> None:
    seen: list[bytes] = []
    node.answer = lambda payload: (seen.append(decode_message(payload).body), ACCEPTED)[1]  # type: ignore[arg-type,func-returns-value]
    async with idempotent(node) as producer:
        names = [f"{name}".encode() for name in range(8)]
        batches = [[name + b":" + str(n).encode() for n in range(600)] for name in names]  # more than one credit
        await asyncio.gather(*(producer.send_batch(batch, partition="0") for batch in batches))
    assert seen == [body for batch in batches for body in batch], "batches came one after the other, in order"
    assert node.log.numbers("0") == list(range(1, 8 * 600 + 1))


async def test_ip_4_the_buffer_and_batches_take_turns(node: TinyNode) -> None:
    async with idempotent(node) as producer:

        async def singles() -> None:
            for n in range(3000):
                await producer.send(f"single {n}", partition="0")

        async def batches() -> None:
            for n in range(10):
                await producer.send_batch([f"batch {n} {m}" for m in range(50)], partition="0")

        await asyncio.gather(singles(), batches())
        await producer.flush()
        assert producer.stats.accepted == 3500
    assert node.log.numbers("0") == list(range(1, 3501))
    bodies = node.log.bodies("0")
    for n in range(10):
        first = bodies.index(f"batch {n} 0".encode())
        assert bodies[first : first + 50] == [f"batch {n} {m}".encode() for m in range(50)], "nobody came between"
    assert [body for body in bodies if body.startswith(b"single")] == [f"single {n}".encode() for n in range(3000)]


# ------------------------------------------------------------------------------------------------ IP-5, 6, 7, 8, 9, 20


@pytest.mark.parametrize(
    ("own", "asked", "first"),
    [
        ({"producer_group_id": 11}, {ID: 11, EPOCH: None, SEQUENCE: None}, 1),
        ({"owner_level": 3}, {ID: None, EPOCH: 3, SEQUENCE: None}, 1),
        ({"starting_sequence_number": 99}, {ID: None, EPOCH: None, SEQUENCE: 99}, 100),
        ({"producer_group_id": 11, "owner_level": 3}, {ID: 11, EPOCH: 3, SEQUENCE: None}, 1),
    ],
)
async def test_ip_5_settings_of_a_partition_override_and_the_rest_is_filled_in(
    node: TinyNode, own: dict[str, int], asked: dict[str, int | None], first: int
) -> None:
    async with idempotent(node, **own) as producer:
        await producer.send_batch([b"x"], partition="0")
        await producer.send_batch([b"x"], partition="1")
        properties = await producer.get_partition_publishing_properties("0")
    assert node.identities == [asked, dict.fromkeys(NAMES)], "settings are for their partition alone"
    assert node.log.numbers("0") == [first]
    for name, value in own.items():
        if name != "starting_sequence_number":
            assert getattr(properties, name) == value


@pytest.mark.parametrize(
    "own",
    [
        {"producer_group_id": -1},
        {"producer_group_id": 1 << 63},
        {"owner_level": -1},
        {"owner_level": 1 << 15},
        {"starting_sequence_number": -1},
        {"starting_sequence_number": 1 << 31},
        {"owner_level": True},
        {"producer_group_id": "7"},
        {"starting_sequence_number": 1.0},
        {"owner_level": -(1 << 40)},
    ],
)
async def test_ip_5_settings_out_of_range_are_refused_at_construction(own: dict[str, Any]) -> None:
    options = {"0": PartitionPublishingOptions(**own)}
    with pytest.raises(ConfigurationError, match=f"partition 0: {next(iter(own))}"):
        ProducerClient("127.0.0.1:1", "trades", idempotent=True, partition_options=options)


async def test_ip_5_settings_without_idempotence_or_for_no_partition_are_refused(node: TinyNode) -> None:
    options = {"9": PartitionPublishingOptions(owner_level=1)}
    with pytest.raises(ConfigurationError, match="idempotent producer"):
        ProducerClient(node.address, "trades", partition_options=options)
    with pytest.raises(NotFoundError, match="no partition '9'"):
        async with ProducerClient(node.address, "trades", idempotent=True, partition_options=options):
            pass


async def test_ip_6_the_state_is_kept_by_the_client_and_can_only_be_read(node: TinyNode) -> None:
    async with idempotent(node, producer_group_id=5, owner_level=2) as producer:
        before = await producer.get_partition_publishing_properties("0")
        assert before == PartitionPublishingProperties(True, 5, 2, 0)
        await producer.send_batch([b"1", b"2"], partition="0")
        after = await producer.get_partition_publishing_properties("0")
        assert after == PartitionPublishingProperties(True, 5, 2, 2)
        assert before.last_published_sequence_number == 0, "what was read is a picture of its moment"
        with pytest.raises(AttributeError):
            after.owner_level = 9  # type: ignore[misc]
        with pytest.raises(NotFoundError):
            await producer.get_partition_publishing_properties("17")
    assert len(node.identities) == 1, "asking opens the partition once"


async def test_ip_7_the_first_open_asks_for_the_capability_and_takes_what_it_is_given(node: TinyNode) -> None:
    node.answer_identity = lambda answer: answer | {ID: 1 << 62, SEQUENCE: 500}
    async with idempotent(node) as producer:
        properties = await producer.get_partition_publishing_properties("0")
    assert properties == PartitionPublishingProperties(True, 1 << 62, 0, 500)
    assert node.capabilities == [(CAPABILITY,)]
    assert node.identities == [dict.fromkeys(NAMES)]


async def test_ip_7_a_producer_that_never_published_may_begin_with_zero(node: TinyNode) -> None:
    node.answer_identity = lambda answer: answer | {SEQUENCE: -1}
    async with idempotent(node) as producer:
        assert await last(producer) is None
        assert (await producer.send_batch([b"x", b"y"], partition="0")).sequence_number == 0
        assert await last(producer) == 1


@pytest.mark.parametrize("answer", [{}, {ID: 7}, {ID: 7, EPOCH: 0, SEQUENCE: None}, {ID: 7, EPOCH: -4, SEQUENCE: 0}])
async def test_ip_7_a_node_that_does_not_answer_who_we_are_is_no_place_to_publish(
    node: TinyNode, answer: dict[str, Any]
) -> None:
    node.answer_identity = lambda _: answer
    async with idempotent(node) as producer:
        with pytest.raises(UnsupportedError):
            await producer.send_batch([b"x"], partition="0")
    assert node.log.partitions["0"] == []


async def test_ip_8_a_reopened_link_states_what_is_known_and_takes_the_answer(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        await producer.send_batch([b"1", b"2", b"3"], partition="0")
        node.close_links(Error("amqp:link:detach-forced", "leadership moves"))
        await link_gone(producer)
        node.answer_identity = lambda answer: answer | {SEQUENCE: 3}
        await producer.send_batch([b"4"], partition="0")
        assert node.identities[1] == {ID: 7000, EPOCH: 0, SEQUENCE: 3}
        node.close_links(None)
        await link_gone(producer)
        node.log.producers.known["0", 7000].last = 20
        node.answer_identity = lambda answer: answer | {SEQUENCE: 20}  # the node knows better
        assert (await producer.send_batch([b"21"], partition="0")).sequence_number == 21
    assert node.capabilities == [(CAPABILITY,)] * 3
    assert node.log.numbers("0") == [1, 2, 3, 4, 21]


@pytest.mark.parametrize("condition", ["amqp:not-allowed", "com.microsoft:argument-out-of-range"])
async def test_ip_9_a_refusal_to_reopen_ends_the_partition(node: TinyNode, condition: str) -> None:
    async with idempotent(node) as producer:
        await producer.send_batch([b"x"], partition="0")
        node.close_links(None)
        await link_gone(producer)
        node.refuse = lambda address, partition: Error(condition, "unknown producer") if partition == "0" else None
        for _ in range(2):
            with pytest.raises(ProducerStateError, match="unknown producer") as caught:
                await producer.send_batch([b"y"], partition="0")
            assert not caught.value.retriable
            assert "recreate" in caught.value.advice
        attaches = len(node.attaches)
        with pytest.raises(ProducerStateError):
            await producer.send(b"y", partition="0")
        assert await last(producer) == 1, "what was published can still be read, and saved"
        assert len(node.attaches) == attaches, "it does not ask again"
        await producer.send_batch([b"z"], partition="1")


async def test_ip_20_the_default_owner_level_is_zero(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        assert (await producer.get_partition_publishing_properties("0")).owner_level == 0


# ------------------------------------------------------------------------------------------------ IP-10, 11


async def test_ip_10_numbers_are_given_when_sending_so_batches_go_in_any_order(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        first, second = await batch_of(producer, b"a", b"b"), await batch_of(producer, b"c")
        assert first.starting_published_sequence_number is second.starting_published_sequence_number is None
        await producer.send_batch(second)
        await producer.send_batch(first)
        assert (second.starting_published_sequence_number, first.starting_published_sequence_number) == (1, 2)
    assert node.log.bodies("0") == [b"c", b"a", b"b"]


async def test_ip_10_events_are_measured_with_the_largest_number(node: TinyNode) -> None:
    async with idempotent(node, starting_sequence_number=MAX_SEQUENCE - 3) as producer:
        batch = await producer.create_batch(partition="0", max_bytes=5 * (NUMBERING_BYTES + 105))
        assert [batch.try_add(bytes(100)) for _ in range(6)] == [True] * 5 + [False]
        await producer.send_batch(batch)
    numbers = [MAX_SEQUENCE - 2, MAX_SEQUENCE - 1, MAX_SEQUENCE, 0, 1]
    assert node.log.numbers("0") == numbers
    sizes = {len(payload) for _, payload in node.log.partitions["0"]}
    assert sizes == {NUMBERING_BYTES + 105}, "none is larger than it was measured"


async def test_ip_10_numbers_run_over_from_the_largest_to_zero(node: TinyNode) -> None:
    async with idempotent(node, starting_sequence_number=MAX_SEQUENCE) as producer:
        assert (await producer.send_batch([b"x"], partition="0")).sequence_number == 0
        assert await last(producer) == 0


@pytest.mark.parametrize("stored", [True, False], ids=["the answer got lost", "the events got lost"])
async def test_ip_11_numbers_are_the_same_in_every_attempt(node: TinyNode, stored: bool) -> None:
    node.after_transfers = drop_connection_once()
    if stored:
        lose_answers(node, 2)
        node.after_transfers = None
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1", b"2", b"3")
        await producer.send_batch(batch)
        assert batch.starting_published_sequence_number == 1
        assert await last(producer) == 3
    assert node.log.numbers("0") == [1, 2, 3]
    assert node.log.bodies("0") == [b"1", b"2", b"3"]
    assert (node.log.producers.duplicates > 0) == stored


async def test_ip_11_numbers_are_the_same_at_another_leader(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    seen = 0

    def store_and_crash(payload: bytes) -> Any:
        nonlocal seen
        seen += 1
        if seen == 300:
            first.lead()
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(second.crash()))
        return ACCEPTED

    second.answer = store_and_crash
    servers = [first.address, second.address]
    async with ProducerClient(servers, "trades", idempotent=True) as producer:
        for n in range(10):
            await producer.send_batch([f"{n}:{m}" for m in range(100)], partition="3")
        assert await last(producer, "3") == 1000
        assert producer.stats.attached == 2
    assert first.log.numbers("3") == list(range(1, 1001))
    assert first.log.bodies("3") == [f"{n}:{m}".encode() for n in range(10) for m in range(100)]


async def test_ip_11_buffered_events_keep_their_numbers_too(node: TinyNode) -> None:
    connections: list[Any] = []

    def cut_sometimes(connection: Any, partition: str, count: int) -> bool:
        if len(node.log.partitions["0"]) > 700 * (len(connections) + 1) and len(connections) < 4:
            connections.append(connection)
            asyncio.get_running_loop().call_soon(connection.abort)
        return False

    node.after_transfers = cut_sometimes
    async with idempotent(node) as producer:
        deliveries = [await producer.send(f"{n}", partition="0") for n in range(5000)]
        await producer.flush()
        assert [delivery.sequence_number for delivery in deliveries] == list(range(1, 5001))
        assert (await deliveries[-1]).sequence_number == 5000
    assert len(connections) == 4
    assert node.log.bodies("0") == [f"{n}".encode() for n in range(5000)], "each once, in order"


# ------------------------------------------------------------------------------------------------ IP-12, 13, 14


async def test_ip_12_what_was_published_is_not_published_again(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"x")
        await producer.send_batch(batch)
        with pytest.raises(InvalidOperationError, match="published before"):
            await producer.send_batch(batch)
        events = [Event(b"1"), Event(b"2")]
        await producer.send_batch(events, partition="0")
        assert [event.published_sequence_number for event in events] == [2, 3]
        for again in ([events[1]], [Event(b"new"), events[0]]):
            with pytest.raises(InvalidOperationError, match="published before, with number"):
                await producer.send_batch(again, partition="0")
        with pytest.raises(InvalidOperationError):
            await producer.send(events[0], partition="1")
        fresh = Event(b"3")
        await producer.send_and_confirm(fresh, partition="0")
        assert fresh.published_sequence_number == 4
        with pytest.raises(InvalidOperationError):
            await producer.send(fresh, partition="0")
        twice = Event(b"4")
        with pytest.raises(InvalidOperationError, match="twice"):
            await producer.send_batch([twice, twice], partition="0")
        await producer.send_batch([twice], partition="0")
    assert node.log.numbers("0") == [1, 2, 3, 4, 5]


async def test_ip_12_what_is_being_published_is_not_published_a_second_time(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch, event = await batch_of(producer, b"x"), Event(b"y")
        first = asyncio.create_task(producer.send_batch(batch))
        second = asyncio.create_task(producer.send_batch([event], partition="0"))
        await asyncio.sleep(0)
        with pytest.raises(InvalidOperationError, match="is being published"):
            await producer.send_batch(batch)
        with pytest.raises(InvalidOperationError, match="being published"):
            await producer.send_batch([event], partition="1")
        await asyncio.gather(first, second)
    assert node.log.bodies("0") == [b"x", b"y"]
    assert node.log.bodies("1") == []


async def test_ip_13_a_batch_is_locked_while_and_after_it_is_published(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"x")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await asyncio.sleep(0)
        assert batch.is_locked
        with pytest.raises(InvalidOperationError, match="locked"):
            batch.try_add(b"y")
        await publishing
        assert batch.is_locked
        assert batch.is_published
        with pytest.raises(InvalidOperationError, match="locked"):
            batch.add(b"y")
        assert len(batch) == 1


async def test_ip_14_success_keeps_the_numbers_and_moves_the_state_on(node: TinyNode) -> None:
    lose_answers(node, 3)  # the node stores them, and answers "known" when they come again
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1", b"2", b"3")
        result = await producer.send_batch(batch)
        assert (result.partition, result.sequence_number, result.count, result.offset) == ("0", 1, 3, None)
        assert batch.starting_published_sequence_number == 1
        assert await last(producer) == 3
        assert node.log.producers.duplicates == 3
        events = [Event(b"4"), Event(b"5")]
        assert (await producer.send_batch(events, partition="0")).sequence_number == 4
        assert await last(producer) == 5
        assert (await producer.send_batch([], partition="0")).count == 0
        assert await last(producer) == 5


# ------------------------------------------------------------------------------------------------ IP-15, 16


@pytest.mark.parametrize("stored", [True, False], ids=["it was stored all the same", "it was not stored"])
async def test_ip_15_a_failed_batch_is_free_again_and_the_state_stays(node: TinyNode, stored: bool) -> None:
    async with idempotent(node, delivery_timeout_s=0.3) as producer:
        await producer.send_batch([b"before"], partition="0")
        batch, event = await batch_of(producer, b"1", b"2"), Event(b"3")
        if stored:
            node.answer = lambda payload: UNKNOWN
        else:
            node.after_transfers = lambda connection, partition, count: True
        with pytest.raises(UndeliveredError) as caught:
            await producer.send_batch(batch)
        assert caught.value.count == 2
        assert not batch.is_locked
        assert batch.starting_published_sequence_number is None
        batch.add(b"more") if not stored else None
        assert await last(producer) == 1
        node.answer, node.after_transfers = lambda payload: ACCEPTED, None
        await producer.send_batch(batch)  # a new request, with the same numbers again
        assert batch.starting_published_sequence_number == 2
        await producer.send_batch([event], partition="0")
    expected = [b"before", b"1", b"2", *([] if stored else [b"more"]), b"3"]
    assert node.log.bodies("0") == expected, "even what was in doubt stands there once"
    assert node.log.numbers("0") == list(range(1, len(expected) + 1))


async def test_ip_15_another_batch_in_the_place_of_one_in_doubt_is_not_swallowed(node: TinyNode) -> None:
    async with idempotent(node, delivery_timeout_s=0.3) as producer:
        node.answer = lambda payload: UNKNOWN
        with pytest.raises(UndeliveredError):
            await producer.send_batch([b"in doubt"], partition="0")
        node.answer = lambda payload: ACCEPTED
        with pytest.raises(OutOfOrderError):
            await producer.send_batch([b"another"], partition="0")
    assert node.log.bodies("0") == [b"in doubt"]


async def test_ip_15_a_list_that_failed_has_no_numbers(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        events = [Event(b"fine"), Event(b"unwanted"), Event(b"behind")]
        node.answer = lambda payload: (
            Rejected(Error("amqp:precondition-failed", "not wanted")) if b"unwanted" in payload else ACCEPTED
        )
        with pytest.raises(RejectedError, match="not wanted"):
            await producer.send_batch(events, partition="0")
        assert [event.published_sequence_number for event in events] == [None] * 3
        assert await last(producer) == 0


async def test_ip_15_a_refused_buffered_event_fails_alone(node: TinyNode) -> None:
    node.answer = lambda payload: (
        Rejected(Error("amqp:precondition-failed", "not wanted")) if b"unwanted" in payload else ACCEPTED
    )
    async with idempotent(node) as producer:
        bodies = [f"{n}" for n in range(5)] + ["unwanted"] + [f"{n}" for n in range(5, 10)]
        deliveries = [await producer.send(body, partition="0") for body in bodies]
        with pytest.raises(RejectedError, match="not wanted"):
            await producer.flush()
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        assert [isinstance(outcome, RejectedError) for outcome in outcomes] == [body == "unwanted" for body in bodies]
    assert node.log.bodies("0") == [f"{n}".encode() for n in range(10)]
    assert node.log.numbers("0") == list(range(1, 11))


async def test_ip_16_cancelled_before_it_was_sent_it_was_never_published(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        await producer.send_batch([b"0"], partition="0")
        first, second = await batch_of(producer, b"1"), await batch_of(producer, b"2")
        publishing = asyncio.create_task(producer.send_batch(first))
        waiting = asyncio.create_task(producer.send_batch(second))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not second.is_locked
        await publishing
        assert await last(producer) == 2
        await producer.send_batch(second)
    assert node.log.bodies("0") == [b"0", b"1", b"2"]


async def test_ip_16_cancelled_under_way_it_is_published_if_the_node_says_so(node: TinyNode) -> None:
    under_way = asyncio.Event()
    real = node.answer

    def tell(connection: Any, partition: str, count: int) -> bool:
        under_way.set()
        return False

    node.after_transfers, node.answer = tell, real
    async with idempotent(node) as producer:
        batch = await batch_of(producer, *(b"%d" % n for n in range(1500)))  # several rounds of credit
        publishing = asyncio.create_task(producer.send_batch(batch))
        await under_way.wait()
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert batch.is_published
        assert batch.starting_published_sequence_number == 1
        assert await last(producer) == 1500
        await producer.send_batch([b"next"], partition="0")
    assert node.log.numbers("0") == list(range(1, 1502))


async def test_ip_16_cancelled_under_way_and_never_answered_it_is_free_again(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.numbered.CANCEL_BOUND_S", 0.05)
    under_way = asyncio.Event()

    def swallow(connection: Any, partition: str, count: int) -> bool:
        under_way.set()
        return True

    node.after_transfers = swallow
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await under_way.wait()
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert not batch.is_locked
        assert batch.starting_published_sequence_number is None
        assert await last(producer) == 0
        node.after_transfers = None
        await producer.send_batch(batch)
        assert batch.starting_published_sequence_number == 1


async def test_ip_16_cancelled_twice_leaves_the_line_usable(node: TinyNode) -> None:
    node.after_transfers = lambda connection, partition, count: True
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1")
        publishing = asyncio.create_task(producer.send_batch(batch))
        while not node.identities:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        publishing.cancel()
        await asyncio.sleep(0.02)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        node.after_transfers = None
        await asyncio.sleep(0)
        await producer.send_batch(batch)
    assert node.log.numbers("0") == [1]


# ------------------------------------------------------------------------------------------------ IP-17, 18, 19, 21


async def test_ip_17_what_may_pass_is_tried_again(node: TinyNode) -> None:
    left = {"attach": 2, "send": 4}  # both events, twice

    def refuse(address: str, partition: str | None) -> Error | None:
        if partition == "0" and left["attach"] > 0:
            left["attach"] -= 1
            return Error("amqp:internal-error", "no leader at the moment")
        return None

    def answer(payload: bytes) -> Any:
        if left["send"] > 0:
            left["send"] -= 1
            return Modified(delivery_failed=False)
        return ACCEPTED

    node.refuse, node.answer = refuse, answer
    async with idempotent(node) as producer:
        await producer.send_batch([b"1", b"2"], partition="0")
    assert left == {"attach": 0, "send": 0}
    assert node.log.numbers("0") == [1, 2]


async def test_ip_17_a_wrong_number_is_fatal_at_once_and_says_what_to_do(node: TinyNode) -> None:
    async with idempotent(node, starting_sequence_number=5, producer_group_id=3) as producer:
        await producer.send_batch([b"6"], partition="0")
        node.log.producers.known["0", 3].last = 17  # somebody else went on with the same numbers
        for _ in range(2):
            with pytest.raises(OutOfOrderError, match="18 is next") as caught:
                await producer.send_batch([b"7"], partition="0")
            assert caught.value.condition == OUT_OF_ORDER
            assert not caught.value.retriable
            assert "recreate the client" in caught.value.advice
        with pytest.raises(OutOfOrderError):
            producer.send_nowait(b"8", partition="0")
        await producer.send_batch([b"1"], partition="1")  # the others go on


@pytest.mark.parametrize("how", ["the link is ended", "the event is refused"])
async def test_ip_18_a_higher_owner_level_ends_publishing_to_the_partition(node: TinyNode, how: str) -> None:
    async with idempotent(node, producer_group_id=3) as producer:
        await producer.send_batch([b"old 1"], partition="0")
        async with idempotent(node, producer_group_id=3, owner_level=1) as younger:
            await younger.send_batch([b"young 1"], partition="0")
            if how == "the link is ended":
                node.close_links(Error(STOLEN, "opened with epoch 1"))
                await link_gone(producer)
            with pytest.raises(ProducerStolenError, match="opened with epoch 1") as caught:
                await producer.send_batch([b"old 2"], partition="0")
            assert not caught.value.retriable
            assert "stop publishing" in caught.value.advice
            with pytest.raises(ProducerStolenError):
                await producer.send(b"old 3", partition="0")
            await producer.send_batch([b"old"], partition="1")
            if how == "the event is refused":
                await younger.send_batch([b"young 2"], partition="0")
    assert b"old 2" not in node.log.bodies("0")


async def test_ip_18_buffered_events_hear_of_it(node: TinyNode) -> None:
    async with idempotent(node, producer_group_id=3) as producer:
        await producer.send_and_confirm(b"1", partition="0")
        node.log.producers.open("0", {ID: 3, EPOCH: 1, SEQUENCE: None})
        delivery = await producer.send(b"2", partition="0")
        with pytest.raises(ProducerStolenError):
            await delivery
        with pytest.raises(ProducerStolenError):
            await producer.send(b"3", partition="0")


async def test_ip_19_after_a_crash_the_partitions_state_is_taken(node: TinyNode) -> None:
    async with idempotent(node, producer_group_id=3) as producer:
        await producer.send_batch([b"1", b"2"], partition="0")
    async with idempotent(node, producer_group_id=3) as producer:  # knows its group, and nothing else
        assert await last(producer) == 2
        await producer.send_batch([b"3"], partition="0")
    assert node.log.numbers("0") == [1, 2, 3]


async def test_ip_19_after_a_crash_a_saved_state_continues_and_recognises_what_was_in_doubt(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        await producer.send_batch([b"1", b"2"], partition="0")
        saved = await producer.get_partition_publishing_properties("0")
        await producer.send_batch([b"3", b"4"], partition="0")
        # ... and the program died before it could note that these are published.
    options = {"0": saved.to_options()}
    assert options["0"] == PartitionPublishingOptions(7000, 0, 2)
    async with ProducerClient(node.address, "trades", idempotent=True, partition_options=options) as producer:
        result = await producer.send_batch([b"3", b"4"], partition="0")
        assert result.sequence_number == 3
        await producer.send_batch([b"5"], partition="0")
    assert node.log.bodies("0") == [b"1", b"2", b"3", b"4", b"5"]
    assert node.log.producers.duplicates == 2


async def test_ip_19_a_saved_state_that_the_partition_has_forgotten_is_refused(node: TinyNode) -> None:
    own = {"producer_group_id": 4711, "owner_level": 1, "starting_sequence_number": 20}
    async with idempotent(node, **own) as producer:
        with pytest.raises(ProducerStateError, match="not known here") as caught:
            await producer.send_batch([b"21"], partition="0")
        assert "recreate the client" in caught.value.advice


async def test_ip_21_at_least_once_remains_where_the_node_has_forgotten_the_producer(node: TinyNode) -> None:
    async with idempotent(node, delivery_timeout_s=0.3) as producer:
        node.answer = lambda payload: UNKNOWN
        batch = await batch_of(producer, b"in doubt")
        with pytest.raises(UndeliveredError):
            await producer.send_batch(batch)
    node.log.producers.known.clear()
    node.answer = lambda payload: ACCEPTED
    async with idempotent(node) as producer:
        await producer.send_batch(batch)  # a batch is its events: another producer may publish it
    assert node.log.bodies("0") == [b"in doubt", b"in doubt"]


async def test_ip_16_cancelled_while_it_looks_for_a_leader_it_is_published_if_one_is_found(node: TinyNode) -> None:
    """What was sent may be stored: it is not given up before its outcome is known, or the patience is over."""
    node.after_transfers = drop_connection_once()
    looking = asyncio.Event()
    leaderless = True

    def refuse(address: str, partition: str | None) -> Error | None:
        if partition is None or not node.identities or not leaderless:
            return None
        looking.set()
        return Error("amqp:internal-error", "no leader at the moment")

    node.refuse = refuse
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1", b"2")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await looking.wait()
        publishing.cancel()
        await asyncio.sleep(0.02)
        assert not publishing.done()
        assert batch.is_locked
        leaderless = False
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert batch.is_published
        assert (await producer.send_batch([b"3"], partition="0")).sequence_number == 3
    assert node.log.bodies("0") == [b"1", b"2", b"3"]


async def test_ip_16_who_waits_behind_a_cancelled_publish_comes_after_its_end(node: TinyNode) -> None:
    held: list[Any] = []

    def hold(connection: Any, partition: str, count: int) -> bool:
        held.append(connection)
        return len(held) == 1

    node.after_transfers = hold
    async with idempotent(node) as producer:
        publishing = asyncio.create_task(producer.send_batch([b"1"], partition="0"))
        waiting = asyncio.create_task(producer.send_batch([b"2"], partition="0"))
        while not held:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.002)
        publishing.cancel()
        await asyncio.sleep(0.02)
        assert not waiting.done()
        held[0].abort()  # now the first is sent again, and stored
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert (await waiting).sequence_number == 2
    assert node.log.bodies("0") == [b"1", b"2"]


# ------------------------------------------------------------------------------------------------ bad use


async def test_use_after_close_is_refused_everywhere(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"x")
    for attempt in (
        lambda: producer.send(b"x", partition="0"),
        lambda: producer.send_batch(batch),
        lambda: producer.send_batch([b"x"], partition="0"),
        lambda: producer.create_batch(partition="0"),
        lambda: producer.get_partition_publishing_properties("0"),
        lambda: producer.start(),
    ):
        with pytest.raises(ClosedError):
            await attempt()
    assert not batch.is_locked
    await producer.close()


async def test_closing_waits_for_what_is_being_published(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch = await batch_of(producer, *(b"%d" % n for n in range(1000)))
        publishing = asyncio.create_task(producer.send_batch(batch))
        await asyncio.sleep(0)
    await publishing
    assert len(node.log.partitions["0"]) == 1000


async def test_leaving_by_an_error_does_not_wait_and_tells_everybody(node: TinyNode) -> None:
    node.after_transfers = lambda connection, partition, count: True
    told: list[HoldfastError | None] = []
    async with asyncio.timeout(5):
        try:
            async with idempotent(node) as producer:
                publishing = [asyncio.create_task(producer.send_batch([b"1"], partition=p)) for p in ("0", "0", "1")]
                await producer.send(b"2", partition="2", done=told.append)
                await asyncio.sleep(0.05)
                raise KeyError("other worries")
        except KeyError:
            pass
        outcomes = await asyncio.gather(*publishing, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ClosedError] * 3
    assert [type(error) for error in told] == [UndeliveredError]


async def test_an_event_that_the_node_would_not_take_is_refused_before_it_is_numbered(node: TinyNode) -> None:
    node.max_message_size = 1000
    async with idempotent(node) as producer:
        with pytest.raises(EventTooLargeError):
            await producer.send_batch([b"small", bytes(1000)], partition="0")
        small, large = await producer.send(b"small", partition="0"), await producer.send(bytes(1000), partition="0")
        await small
        with pytest.raises(EventTooLargeError):
            await large
        await producer.send_batch([b"next"], partition="0")
    assert node.log.numbers("0") == [1, 2]
    assert node.log.bodies("0") == [b"small", b"next"]


async def test_what_was_accepted_in_front_of_a_refusal_stays_counted(node: TinyNode) -> None:
    """Also when the answers come in one piece, and the rest is given up afterwards."""
    async with idempotent(node, delivery_timeout_s=0.4) as producer:
        seen = 0

        def first_three(payload: bytes) -> Any:
            nonlocal seen
            seen += 1
            return ACCEPTED if seen <= 3 else Modified(delivery_failed=False)

        node.answer = first_three
        deliveries = [await producer.send(f"{n}", partition="0") for n in range(6)]
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        assert [isinstance(outcome, UndeliveredError) for outcome in outcomes] == [False] * 3 + [True] * 3
        assert await last(producer) == 3
        node.answer = lambda payload: ACCEPTED
        assert (await producer.send_batch([b"next"], partition="0")).sequence_number == 4


async def test_a_link_that_ends_as_soon_as_it_is_open_is_no_place_to_wait(node: TinyNode) -> None:
    """The detach may come in the same piece as the answer to the attach."""
    ends = 3

    def end_at_once(answer: dict[str, Any]) -> dict[str, Any]:
        nonlocal ends
        ends -= 1
        if ends >= 0:
            asyncio.get_running_loop().call_soon(node.close_links, Error("amqp:link:detach-forced", "not here"))
        return answer

    node.answer_identity = end_at_once
    async with asyncio.timeout(10), idempotent(node) as producer:
        await producer.send_batch([b"x"], partition="0")
    assert node.log.numbers("0") == [1]


async def test_without_any_server_a_batch_fails_and_is_free_again(node: TinyNode) -> None:
    async with idempotent(node, delivery_timeout_s=0.3) as producer:
        await producer.send_batch([b"1"], partition="0")
        port = node.port
        await node.crash()
        batch = await batch_of(producer, b"2")
        with pytest.raises(UndeliveredError) as caught:
            await producer.send_batch(batch)
        assert "the same batch again" in caught.value.advice
        assert not batch.is_locked
        await node.start(port)
        await producer.send_batch(batch)
    assert node.log.numbers("0") == [1, 2]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda producer: producer.send_batch("text", partition="0"),
        lambda producer: producer.send_batch(b"bytes", partition="0"),
        lambda producer: producer.send_batch(Event(b"one"), partition="0"),
        lambda producer: producer.send_batch(None, partition="0"),
        lambda producer: producer.send_batch([b"fine", 7], partition="0"),
        lambda producer: producer.send(None, partition="0"),
        lambda producer: producer.send(b"x", partition=0),
        lambda producer: producer.send(b"x", partition="0", properties=[1]),
        lambda producer: producer.send(b"x", partition="0", properties={"p": object()}),
        lambda producer: producer.create_batch(partition=0),
        lambda producer: producer.create_batch(partition="0", max_bytes=0),
        lambda producer: producer.get_partition_publishing_properties(0),
    ],
    ids=lambda _: "",
)
async def test_what_can_be_seen_to_be_wrong_is_refused_before_the_network(node: TinyNode, attempt: Any) -> None:
    async with idempotent(node) as producer:
        attaches = len(node.attaches)
        with pytest.raises(ConfigurationError) as caught:
            await attempt(producer)
        assert caught.value.advice
        assert len(node.attaches) == attaches
        await producer.send_batch([b"fine"], partition="0")
    assert node.log.bodies("0") == [b"fine"]


@pytest.mark.parametrize(
    "options", [{"0": {"owner_level": 1}}, {"0": None}, {0: PartitionPublishingOptions()}], ids=["dict", "none", "name"]
)
async def test_options_that_are_none_are_refused_at_construction(options: Any) -> None:
    with pytest.raises(ConfigurationError):
        ProducerClient("127.0.0.1:1", "trades", idempotent=True, partition_options=options)


def test_every_rule_and_every_case_has_a_test() -> None:
    """IP-1 to IP-21 are the client's rules, IS-1 to IS-10 the service's cases."""
    here = Path(__file__)
    rules = set(map(int, re.findall(r"def test_ip_(\d+)_", here.read_text())))
    assert rules == set(range(1, 22))
    listener = here.parent.parent / "listener" / "test_idempotent.py"
    names = re.findall(r"def test_is_(\d+)_(?:and_(\d+)_)?", listener.read_text())
    assert {int(number) for found in names for number in found if number} == set(range(1, 11))
