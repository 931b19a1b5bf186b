"""When publishing fails (IP-15, 17 to 19, 21): what is free again, tried again, or final, and what survives a crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.amqp import Error
from holdfast.amqp.links.delivery_states import ACCEPTED, Modified, Rejected
from holdfast.client import (
    DeliveryResult,
    Event,
    EventTooLargeError,
    OutOfOrderError,
    PartitionPublishingOptions,
    ProducerClient,
    ProducerStateError,
    ProducerStolenError,
    RejectedError,
    UndeliveredError,
)
from tests.unit.client.support.idempotent import (
    batch_of,
    idempotent,
    last,
    link_gone,
)
from tests.unit.client.support.patience import impatient
from tests.unit.client.support.tiny_node import UNKNOWN, TinyNode
from tests.unit.client.support.tiny_producers import (
    EPOCH,
    ID,
    OUT_OF_ORDER,
    SEQUENCE,
    STOLEN,
)
from tests.unit.listener.support.peer import eventually


@pytest.mark.parametrize("stored", [True, False], ids=["it was stored all the same", "it was not stored"])
async def test_ip_15_a_failed_batch_is_free_again_and_the_state_stays(node: TinyNode, stored: bool) -> None:
    async with idempotent(node) as producer:
        await producer.send_batch([b"before"], partition="0")
        batch, event = await batch_of(producer, b"1", b"2"), Event(b"3")
        if stored:
            node.answer = lambda payload: UNKNOWN
        else:
            node.after_transfers = lambda connection, partition, count: True
        async with impatient(producer):
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
    async with idempotent(node) as producer:
        node.answer = lambda payload: UNKNOWN
        async with impatient(producer):
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
    async with idempotent(node) as producer:
        node.answer = lambda payload: UNKNOWN
        batch = await batch_of(producer, b"in doubt")
        async with impatient(producer):
            with pytest.raises(UndeliveredError):
                await producer.send_batch(batch)
    node.log.producers.known.clear()
    node.answer = lambda payload: ACCEPTED
    async with idempotent(node) as producer:
        await producer.send_batch(batch)  # a batch is its events: another producer may publish it
    assert node.log.bodies("0") == [b"in doubt", b"in doubt"]


async def test_what_was_accepted_in_front_of_a_refusal_stays_counted(node: TinyNode) -> None:
    """Also when the answers come in one piece, and the rest is given up afterwards."""
    async with idempotent(node) as producer:
        seen = 0

        def first_three(payload: bytes) -> Any:
            nonlocal seen
            seen += 1
            return ACCEPTED if seen <= 3 else Modified(delivery_failed=False)

        node.answer = first_three
        async with impatient(producer):
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
    async with asyncio.timeout(40), idempotent(node) as producer:
        await producer.send_batch([b"x"], partition="0")
    assert node.log.numbers("0") == [1]


async def test_without_any_server_a_batch_fails_and_is_free_again(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        batch = await batch_of(producer, b"2")
        async with impatient(producer):
            await node.crash()
            with pytest.raises(UndeliveredError) as caught:
                await producer.send_batch(batch)
        assert "the same batch again" in caught.value.advice
        assert not batch.is_locked
        await node.start()
        await producer.send_batch(batch)
    assert node.log.numbers("0") == [1, 2]


async def test_who_waits_is_told_of_an_end_that_comes_in_a_pause_between_two_tries(node: TinyNode) -> None:
    """The link lives on while what came back waits to be sent again; then the node ends it for good."""
    async with idempotent(node) as producer:
        await producer.send_batch([b"before"], partition="0")
        sender = producer._partitions.sender("0")
        node.answer = lambda payload: Modified(delivery_failed=False)
        delivery = await producer.send(b"comes back", partition="0")
        await eventually(lambda: producer.stats.released > 4 and not sender._is_open and sender._link is not None)
        node.close_links(Error(STOLEN, "somebody else has it"))
        async with asyncio.timeout(60):
            with pytest.raises(ProducerStolenError):
                await delivery
            with pytest.raises(ProducerStolenError):
                await producer.send(b"after", partition="0")


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_leader_that_takes_less_refuses_what_has_a_number_and_the_others_go_on(
    pair: tuple[TinyNode, TinyNode], in_doubt: bool
) -> None:
    first, second = pair
    first.lead()
    second.max_message_size = 20_000
    async with asyncio.timeout(60), ProducerClient(first.address, "trades") as producer:
        await producer.send_and_confirm(b"before", partition="0")
        first.after_transfers = lambda connection, partition, count: in_doubt
        first.answer = lambda payload: Modified(delivery_failed=False)
        deliveries = []
        for body in (b"1", bytes(50_000), b"2", b"3"):
            deliveries.append(await producer.send(body, partition="0"))
            producer._accumulator.pump()  # each in a batch of its own
        sender = producer._partitions.sender("0")

        def has_paused() -> bool:
            """All have come back, and none is under way again: it would be in doubt."""
            return producer.stats.released >= 4 and sender.queue.sent.unanswered == 0 and not sender._is_open

        await eventually(lambda: sender.queue.sent.unanswered == 4 if in_doubt else has_paused())
        second.lead()
        first.close_links(first.redirect_to(second))
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        kinds = [type(outcome) for outcome in outcomes]
        if in_doubt:  # what stood behind would not be recognised under other numbers
            assert kinds == [DeliveryResult, UndeliveredError, UndeliveredError, UndeliveredError]
        else:
            assert kinds == [DeliveryResult, EventTooLargeError, DeliveryResult, DeliveryResult]
            assert second.log.bodies("0") == [b"before", b"1", b"2", b"3"]
            assert second.log.numbers("0") == [1, 2, 3, 4]
        assert producer.stats.renewed == in_doubt
        await producer.send_and_confirm(b"after", partition="0")
        assert second.log.bodies("0")[-1] == b"after"
