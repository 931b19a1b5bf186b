"""Where a node counts events that do not say their number, only those say it that do not follow the one before."""

from __future__ import annotations

from typing import Any

from holdfast.amqp import decode_message
from holdfast.batches.codec import Codec
from holdfast.client.events import encode_content
from holdfast.client.produce.delivery import Delivery
from holdfast.client.produce.idempotent.partition_publisher import PartitionPublisher
from holdfast.client.produce.idempotent.producer_identity import PartitionPublishingOptions
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.transport.network import Network
from tests.unit.client.support.tiny_producers import EPOCH, ID, SEQUENCE


def publisher(*, counted: bool) -> PartitionPublisher:
    one = PartitionPublisher(
        Network("127.0.0.1:1"), "trades", "0", PartitionPublishingOptions(),
        window=10, codec=Codec.NONE, delivery_timeout_s=1.0, stats=ProducerStats(),
    )  # fmt: skip
    one.identity.adopt({ID: 7, EPOCH: 0, SEQUENCE: 0}, "a test")
    one._counted = counted
    return one


def said(one: PartitionPublisher, *numbers: int) -> list[Any]:
    """What each event of a piece says its number is."""
    deliveries = [Delivery(encode_content(b"%d" % number)) for number in numbers]
    for delivery, number in zip(deliveries, numbers, strict=True):
        delivery.sequence_number = number
    payloads = one._payloads(deliveries)
    assert [decode_message(payload).body for payload in payloads] == [b"%d" % number for number in numbers]
    return [decode_message(payload).message_annotations.get(SEQUENCE) for payload in payloads]


async def test_only_the_first_of_a_link_says_its_number() -> None:
    one = publisher(counted=True)
    assert said(one, 1, 2, 3) == [1, None, None]
    assert said(one, 4) == [None]
    assert said(one, 5, 6) == [None, None]
    assert said(one, 2, 3) == [2, None], "sent again"
    assert said(one, 4, 5) == [None, None]


async def test_where_some_are_missing_between_them_all_say_it() -> None:
    one = publisher(counted=True)
    assert said(one, 1) == [1]
    assert said(one, 2, 4, 5) == [2, 4, 5]
    assert said(one, 6) == [None]


async def test_after_the_largest_comes_zero() -> None:
    one = publisher(counted=True)
    largest = 2**31 - 1
    assert said(one, largest - 1, largest, 0, 1) == [largest - 1, None, None, None]
    assert said(one, 2) == [None]


async def test_without_agreement_each_says_it() -> None:
    assert said(publisher(counted=False), 1, 2, 3) == [1, 2, 3]
