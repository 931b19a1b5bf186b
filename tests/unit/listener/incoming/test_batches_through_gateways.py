"""Packed batches at a node that does not lead: what the leader stores, and says, is what its own link would have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.calls.append_stream import AppendStream, StreamEnded
from holdfast.amqp import symbol
from holdfast.client import ProducerClient, ProducerOptions
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import table_of
from holdfast.records.packed_batch import PackedNumbers, digests_of, pack, pack_joined
from holdfast.records.packed_bodies import PackedBodies
from holdfast.records.record_batch import Attributes, RecordBatch
from holdfast.records.sealed_section import seal
from node.partition.commands import Append, decode
from tests.unit.listener.support.cluster import Cluster
from tests.unit.listener.support.enveloping import ACCEPTED, RawSender
from tests.unit.listener.support.peer import message
from tests.unit.listener.support.producing import OUT_OF_ORDER, terms

BOUND = {"event-streams-partition": symbol("0"), "holdfast:packed-batches": True}
BODIES = [b"price of IBM: %d" % (number % 7) for number in range(500)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, redirect="never") as three:
        await three.create("trades")
        yield three


@pytest.fixture
def passed_on(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What gateways have asked leaders to append."""
    asked: list[Any] = []
    append = AppendStream.append

    def noted(stream: AppendStream, records: Any, *rest: Any) -> None:
        asked.append(records)
        append(stream, records, *rest)

    monkeypatch.setattr(AppendStream, "append", noted)
    return asked


def packed(bodies: list[bytes], codec: Codec = Codec.NONE, numbers: tuple[int, int, int] | None = None) -> bytes:
    said = None if numbers is None else PackedNumbers(*numbers, digests_of(bodies))
    return pack_joined(table_of(bodies), (b"".join(bodies),), codec, bodies=True, numbers=said)


def batches(cluster: Cluster) -> list[RecordBatch]:
    """The record batches that the leader has stored, in order."""
    group = cluster.broker(cluster.leader("trades")).handle("trades", "0").group
    found: list[RecordBatch] = []
    for index in range(group.first_index, group.last_index + 1):
        _, entry = group.entry(index)
        if entry[0] == 0 and isinstance(command := decode(entry), Append):
            found += command.batches
    return found


def but_for_its_time(batch: RecordBatch) -> tuple[Any, ...]:
    """All that is stored of a batch."""
    head = batch.head
    return (head.attributes & ~Attributes.TRANSACTIONAL, head.base_sequence, bytes(batch.content))


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
async def test_a_chunk_is_stored_unopened_as_if_it_had_come_to_the_leader(
    cluster: Cluster, passed_on: list[Any], kind: str, compression: Any
) -> None:
    leader = cluster.leader("trades")
    options = ProducerOptions(idempotent=kind == "idempotent", compression=compression)
    for at in (leader, cluster.other_than(leader)):
        async with ProducerClient(f"127.0.0.1:{cluster.ports[at]}", "trades", options) as producer:
            if kind == "transactional":
                async with producer.transaction() as tx:
                    told = await tx.send_many(BODIES, partition="0")
                    assert (told.count, told.partition) == (500, "0")
            else:
                told = await (await producer.send_many(BODIES, partition="0"))
                assert int(told.offset or "", 16) == (0 if at == leader else 500), "answers name the place"
                assert (told.count, told.partition) == (500, "0")
    assert [type(records) for records in passed_on] == [PackedBodies]
    direct, through = [batch for batch in batches(cluster) if len(batch) > 1]
    assert but_for_its_time(direct) == but_for_its_time(through)
    for batch in (direct, through):
        assert batch.are_bodies
        assert (batch.transaction is not None) == (kind == "transactional")
        assert batch.records() == BODIES


async def test_what_is_no_pure_batch_of_bodies_goes_message_by_message(cluster: Cluster, passed_on: list[Any]) -> None:
    gateway = cluster.other_than(cluster.leader("trades"))
    given = [message(b"one"), message(b"two")]
    async with RawSender(cluster.ports[gateway], "trades", BOUND) as sender:
        assert await sender.outcome(sender.send(pack(given), batch=False)) == ACCEPTED
    assert not any(isinstance(records, PackedBodies) for records in passed_on)
    (stored,) = batches(cluster)
    assert stored.messages() == given


async def test_an_answer_that_was_lost_is_asked_for_again_and_nothing_is_stored_twice(
    cluster: Cluster, passed_on: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = cluster.other_than(cluster.leader("trades"))
    lost: list[pb.AppendReply] = []
    answer = AppendStream._answer

    def lose_the_first(stream: AppendStream, reply: pb.AppendReply) -> None:
        if not lost:
            lost.append(reply)
            raise StreamEnded("its answer was lost")
        answer(stream, reply)

    monkeypatch.setattr(AppendStream, "_answer", lose_the_first)
    first, second = packed([b"a", b"b"], numbers=(7, 0, 1)), packed([b"c"], Codec.NONE, (7, 0, 3))
    async with RawSender(cluster.ports[gateway], "trades", BOUND | terms(7)) as sender:
        for one in (first, second, first):
            assert await sender.outcome(sender.send(one, batch=False)) == ACCEPTED
        assert lost[0].base_offset == 0
        assert not lost[0].HasField("failure"), "it was stored"
        assert [records.packed() for records in passed_on] == [first, first, second, first], "as it came, each time"
        told = await sender.outcome(sender.send(packed([b"c", b"other"], numbers=(7, 0, 2)), batch=False))
        assert told.startswith(OUT_OF_ORDER)
    stored = [(batch.head.base_sequence, batch.records()) for batch in batches(cluster)]
    assert [one for one in stored if one[1] == [b"c"]] == [(3, [b"c"])]
    info = await cluster.broker(gateway).handle("trades", "0").info()
    assert info.events == 3


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda whole: whole[:-1] + b"?", "the checksum"),  # the gateway says it
        (None, "does not decompress"),  # the leader says it
    ],
)
async def test_what_cannot_be_opened_is_refused_and_the_link_goes_on(cluster: Cluster, spoil: Any, why: str) -> None:
    gateway = cluster.other_than(cluster.leader("trades"))
    good = packed(BODIES, Codec.ZSTD)
    bad = spoil(good) if spoil is not None else that_does_not_decompress(good)
    async with RawSender(cluster.ports[gateway], "trades", BOUND) as sender:
        told = await sender.outcome(sender.send(bad, batch=False))
        assert told.startswith("amqp:decode-error")
        assert "the batch cannot be read" in told
        assert why in told
        assert await sender.outcome(sender.send(good, batch=False)) == ACCEPTED
    (stored,) = batches(cluster)
    assert len(stored) == 500


def that_does_not_decompress(good: bytes) -> bytes:
    at = good.index(b"\xb0" if b"\x00Su\xb0" in good else b"\xa0")
    start = at + (5 if good[at] == 0xB0 else 2) + 5  # the section's size, version and checksum
    return seal(2, (good[start:-20], bytes(20)))


async def test_a_batch_outlives_a_change_of_leader_at_its_gateway(cluster: Cluster) -> None:
    """What was not appended at the old leader is submitted to the new one, which may be the gateway itself."""
    old = cluster.leader("trades")
    gateway = cluster.other_than(old)
    async with RawSender(cluster.ports[gateway], "trades", BOUND) as sender:
        sent = [sender.send(packed([b"%d" % number] * 3, Codec.NONE), batch=False) for number in range(20)]
        await cluster.move("trades", "0", gateway)
        sent += [sender.send(packed([b"%d" % number] * 3, Codec.NONE), batch=False) for number in range(20, 40)]
        assert [await sender.outcome(one) for one in sent] == [ACCEPTED] * 40
    stored = [body for batch in batches(cluster) for body in batch.records()]
    assert stored == [b"%d" % number for number in range(40) for _ in range(3)]
