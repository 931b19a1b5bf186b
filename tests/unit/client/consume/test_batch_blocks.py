"""Blocks of record batches say the same, whether they hold whole messages or the bodies of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast.amqp import Message, encode_message
from holdfast.client.blocks.batch_block import BatchBlock
from holdfast.client.events import ReceivedEvent
from holdfast.records.batch_transfer import transfer_of
from holdfast.records.record_batch import Numbering, OpenBatch


def block_of(bodies: list[bytes], *, as_bodies: bool) -> BatchBlock:
    given = bodies if as_bodies else [encode_message(Message(body=body)) for body in bodies]
    first, second = OpenBatch(), OpenBatch()
    first.extend(given[:2], bodies=as_bodies)
    second.extend(given[2:], bodies=as_bodies)
    batches = [
        first.seal().numbered(Numbering(5, 0, 9)).placed(7, 1000, 0, 2), second.seal().placed(20, 2000, 0, 3)
    ]  # fmt: skip
    return BatchBlock.read("3", transfer_of(batches), publishers=True)


def said_of(events: list[ReceivedEvent]) -> list[tuple[object, ...]]:
    """All that a program may ask of each."""
    for event in events:
        event.check()
    return [
        (event.partition, event.offset, event.timestamp_ms, event.body, event.key, event.properties, event.payload,
         event.message, repr(event))
        for event in events
    ]  # fmt: skip


CASES = [[b"abc"] * 5, [b"a", b"", b"x" * 300, b"bc", b"y" * 255], [b""] * 5]


@pytest.mark.parametrize("bodies", CASES, ids=["one size", "any sizes", "empty"])
def test_events_and_columns_are_the_same(bodies: list[bytes]) -> None:
    one, other = block_of(bodies, as_bodies=True), block_of(bodies, as_bodies=False)
    assert one.are_bodies
    assert not other.are_bodies
    assert (one.last_offset, len(one), one.payloads) == (22, 5, other.payloads)
    assert one.columns() == other.columns()
    assert one.columns().bodies == bodies
    assert said_of(one.events()) == said_of(other.events())
    assert [event.body for event in one.events()] == bodies


@pytest.mark.parametrize("bodies", CASES, ids=["one size", "any sizes", "empty"])
def test_arrays_are_the_same(bodies: list[bytes]) -> None:
    pytest.importorskip("numpy", reason="arrays are numpy's")
    from holdfast.client.blocks.event_arrays import arrays_of

    block = block_of(bodies, as_bodies=True)
    arrays, columns = arrays_of(block), block.columns()
    assert arrays is not None
    data = b"".join(bodies)
    assert bytes(arrays.bodies.tobytes()) == data
    assert [data[start:end] for start, end in pairwise(arrays.body_ends.tolist())] == bodies
    assert (arrays.keys, arrays.offsets.tolist(), arrays.timestamps_ms.tolist()) == (
        None, columns.offsets, columns.timestamps_ms
    )  # fmt: skip
    assert list(zip(arrays.producer_ids.tolist(), arrays.sequences.tolist(), strict=True)) == columns.publishers
