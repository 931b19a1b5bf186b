"""Who an idempotent producer is (IP-1, 2, 5 to 9, 20): chosen at first, granted by the node, kept, found again."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import Error, decode_message
from holdfast.client import (
    ConfigurationError,
    Event,
    InvalidOperationError,
    NotFoundError,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
    ProducerClient,
    ProducerStateError,
    UnsupportedError,
)
from tests.unit.client.support.idempotent import (
    CAPABILITY,
    batch_of,
    idempotent,
    last,
    link_gone,
)
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.client.support.tiny_producers import (
    EPOCH,
    ID,
    NAMES,
    SEQUENCE,
)


async def test_ip_1_idempotence_is_chosen_at_construction_and_then_everything_is_numbered(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades", idempotent=False) as plain:
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
    async with ProducerClient(node.address, "trades", idempotent=False) as plain, idempotent(node) as producer:
        numbered = await batch_of(producer, b"x")
        with pytest.raises(InvalidOperationError):
            await plain.send_batch(numbered)
        with pytest.raises(InvalidOperationError):
            await producer.send_batch(await batch_of(plain, b"x"))


async def test_ip_2_a_key_or_no_partition_is_refused_before_the_network(node: TinyNode) -> None:
    """Of a producer that the program gave a name."""
    async with idempotent(node, owner_level=1) as producer:
        attaches = len(node.attaches)
        batch = await producer.create_batch(partition="0")
        for attempt in (
            lambda: producer.send(b"x", key="IBM", partition="0"),
            lambda: producer.send(b"x", key="IBM"),
            lambda: producer.send(b"x"),
            lambda: producer.send(Event(b"x", key="IBM"), partition="0"),
            lambda: producer.send_many([b"x"], key="IBM"),
            lambda: producer.send_many([b"x"]),
            lambda: producer.send_many([Event(b"x", key="IBM")], partition="0"),
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
        ProducerClient(node.address, "trades", idempotent=False, partition_options=options)
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
