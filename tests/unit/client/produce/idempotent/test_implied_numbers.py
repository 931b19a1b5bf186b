"""Where a node counts events that do not say their number, only those say it that do not follow the one before."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from holdfast.amqp import decode_message
from holdfast.client.events import encode_content
from holdfast.client.produce.chunks.chunk import Chunk, Run
from holdfast.client.produce.chunks.delivery import ChunkDelivery
from holdfast.client.produce.idempotent.partition_publisher import PartitionPublisher
from holdfast.client.produce.idempotent.producer_identity import PartitionPublishingOptions
from holdfast.client.produce.partition_sender import ProducerStats
from holdfast.client.produce.transfers import transfer_of
from holdfast.client.transport.network import Network
from holdfast.records.codec import Codec
from holdfast.records.packed_batch import unpack
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
    """What each event of a transfer says its number is."""
    runs = [message(b"%d" % number) for number in numbers]
    for run, number in zip(runs, numbers, strict=True):
        run.sequence_number = number
    return stated(one, runs, numbers)


def message(body: bytes) -> Run:
    """Of one event, which does not travel as a body."""
    return Chunk.of_messages([encode_content(body)], ChunkDelivery(1, lambda _: None), leads=True).whole()


def stated(one: PartitionPublisher, runs: list[Run], numbers: Sequence[int]) -> list[Any]:
    transfer = transfer_of(runs)
    one._number(transfer, packs=True)
    messages, numbers_of_all = unpack(transfer.packed(Codec.NONE), 1 << 20)
    if numbers_of_all is not None:
        assert messages.bodies
        assert numbers_of_all.digests == struct.pack(f">{len(messages)}I", *map(crc32c, messages))
        return [numbers_of_all[:3], *[None] * (len(messages) - 1)]
    assert messages == transfer.messages()
    assert [decode_message(payload).body for payload in messages] == [b"%d" % number for number in numbers]
    return [decode_message(payload).message_annotations.get(SEQUENCE) for payload in messages]


def run_of(*numbers: int) -> Run:
    delivery = ChunkDelivery(len(numbers), lambda _: None)
    run = Chunk.of_bodies([b"%d" % number for number in numbers], None, delivery, leads=True, numbered=True).whole()
    run.sequence_number = numbers[0]
    return run


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


async def test_a_run_is_numbered_as_its_events_would_be_each_for_itself() -> None:
    one = publisher(counted=True)
    between = message(b"3")
    between.sequence_number = 3
    numbers = stated(one, [run_of(1, 2), between, run_of(4, 5)], [1, 2, 3, 4, 5])
    assert numbers == [1, None, None, None, None]
    assert stated(one, [run_of(6, 7)], [6, 7]) == [(7, 0, 6), None]
    assert stated(publisher(counted=False), [run_of(1, 2, 3)], [1, 2, 3]) == [(7, 0, 1), None, None]
    assert said(one, 8) == [None], "the batch has said it for all of them"


async def test_the_parts_of_a_run_keep_its_numbers() -> None:
    one = publisher(counted=True)
    run = run_of(1, 2, 3, 4, 5)
    stated(one, [run], [1, 2, 3, 4, 5])
    first, rest = run.cut(2)
    assert stated(one, [rest], [3, 4, 5]) == [(7, 0, 3), None, None]
    assert stated(one, [first], [1, 2]) == [(7, 0, 1), None]


async def test_runs_with_a_gap_between_them_say_each_number() -> None:
    assert stated(publisher(counted=True), [run_of(1, 2), run_of(4)], [1, 2, 4]) == [1, 2, 4]
