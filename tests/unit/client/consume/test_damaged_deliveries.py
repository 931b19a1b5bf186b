"""Record batches that are damaged between a node and a client: asked for again once, then the program is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.client import (
    ConsumerClient,
    ConsumerOptions,
    DamagedBatchError,
    Event,
    ProducerClient,
    RangeClient,
    Start,
)
from holdfast.records.batch_transfer import transfer_of
from holdfast.records.record_batch import RecordBatch, seal
from node.listener.outgoing import batch_deliveries
from tests.unit.client.support.real_cluster import Nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = 300
ALWAYS = 1 << 30


class Spoiler:
    """Damages the batch that holds the last event, so many times; those in front of it stay whole."""

    def __init__(self, times: int, how: str) -> None:
        self.left, self._how = times, how

    def __call__(self, batches: Iterable[RecordBatch]) -> bytes:
        *before, last = batches
        if last.next_offset < COUNT or not self.left:
            return transfer_of([*before, last])
        self.left -= 1
        if self._how == "stream":
            return transfer_of([*before, self._no_stream(last)])
        front = len(transfer_of([*before, last])) - last.size
        data = bytearray(transfer_of([*before, last]))
        data[{"head": front + 20, "content": len(data) - 1, "section": 2}[self._how]] ^= 1
        return bytes(data)

    def _no_stream(self, batch: RecordBatch) -> RecordBatch:
        """Sealed well, and compressed badly."""
        head = batch.head
        spoiled = seal(batch.table, [b"no stream of zstd"], bodies=True)
        return RecordBatch(
            spoiled.head._replace(
                attributes=spoiled.head.attributes | 4, base_offset=head.base_offset, time_ms=head.time_ms,
                first=head.first, events=head.events, seal=head.seal,
            ),
            bytes(spoiled.content), 0, len(spoiled.content),
        )  # fmt: skip


async def filled(nodes: Nodes) -> str:
    """Three batches at least."""
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer:
        for first in range(0, COUNT, 100):
            await producer.send_batch([Event(b"%d" % number) for number in range(first, first + 100)], partition="0")
    return log


def consumer(nodes: Nodes, log: str, how: str) -> ConsumerClient:
    whose: dict[str, Any] = {"group": "g"} if how == "group" else {"partitions": ["0"]}
    return ConsumerClient(nodes.servers, log, start=Start.earliest(), options=ConsumerOptions(), **whose)


async def numbers(nodes: Nodes, log: str, how: str, found: list[int]) -> None:
    async with asyncio.timeout(60):
        if how == "range":
            async with RangeClient(nodes.servers) as client:
                async for block in client.read(log, "0", 0, COUNT):
                    found += [int(body) for body in block.columns().bodies]
            return
        async with consumer(nodes, log, how) as reader:
            while len(found) < COUNT:
                found += [int(event.body) for event in await reader.receive()]


@pytest.mark.parametrize("damage", ["head", "content", "stream", "section"])
@pytest.mark.parametrize("how", ["consumer", "group", "range"])
async def test_what_came_damaged_once_is_read_without_a_hole(
    nodes: Nodes, how: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(nodes)
    spoiler = Spoiler(1, damage)
    monkeypatch.setattr(batch_deliveries, "transfer_of", spoiler)
    found: list[int] = []
    await numbers(nodes, log, how, found)
    assert spoiler.left == 0
    assert found == list(range(COUNT))


@pytest.mark.parametrize("how", ["consumer", "group", "range"])
async def test_what_comes_damaged_again_is_told_behind_what_is_good(
    nodes: Nodes, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(nodes)
    spoiler = Spoiler(ALWAYS, "content")
    monkeypatch.setattr(batch_deliveries, "transfer_of", spoiler)
    found: list[int] = []
    with pytest.raises(DamagedBatchError, match="partition 0 is not what was stored: the checksum") as told:
        await numbers(nodes, log, how, found)
    assert ALWAYS - spoiler.left == 2, "once more, and not for ever"
    assert (told.value.partition, told.value.retriable) == ("0", True)
    assert found == list(range(200))
