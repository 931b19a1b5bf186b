"""Record batches at a node that does not lead: what the leader stores, and says, is what its own link would have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.grpc_calls.append_client import AppendStream, StreamEnded
from holdfast.amqp import Message, encode_message, symbol, uint
from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES, content_at
from holdfast.client import ProducerClient, ProducerOptions
from holdfast.records.codec import Codec
from holdfast.records.record_batch import Attributes, Damaged, RecordBatch, read_batch
from node.listener.incoming import batch_link
from node.partition.partition_commands import Append, decode
from node.partition.raft_entry import batches_in
from tests.batches import batch_of, carried, of_bodies
from tests.unit.listener.incoming.test_record_batches import FOR_THE_NODE, WRONG_CONTENT
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.enveloping import ACCEPTED, RawSender
from tests.unit.listener.support.peer import message
from tests.unit.listener.support.producing import OUT_OF_ORDER, terms

BOUND = {"event-streams-partition": symbol("0"), "holdfast:record-batches": uint(1)}


def is_batch(batch: RecordBatch) -> bool:
    """It has the form of one, which whoever reads it asks first."""
    try:
        read_batch(bytes(batch))
    except Damaged:
        return False
    return True


BODIES = [b"price of IBM: %d" % (number % 7) for number in range(500)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path, redirect="never") as three:
        await three.create("trades")
        yield three


@pytest.fixture
def passed_on(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What gateways have asked leaders to append."""
    asked: list[Any] = []
    append = AppendStream.append

    def noted(stream: AppendStream, batch: Any, *rest: Any) -> None:
        asked.append(batch)
        append(stream, batch, *rest)

    monkeypatch.setattr(AppendStream, "append", noted)
    return asked


@pytest.fixture
def credulous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links pass on what has the form of a batch, and ask no more of it."""

    def read(payload: bytes) -> RecordBatch:
        start = content_at(payload[:MAX_HEAD_BYTES], len(payload))
        assert start is not None
        return read_batch(payload, start)[0]

    monkeypatch.setattr(batch_link, "_read", read)


def batches(cluster: ListenerCluster) -> list[RecordBatch]:
    """The record batches that the leader has stored, in order."""
    group = cluster.broker(cluster.leader("trades")).handle("trades", "0").group
    found: list[RecordBatch] = []
    for index in range(group.first_index, group.last_index + 1):
        _, entry = group.entry(index)
        if entry[0] == 0 and isinstance(decode(entry), Append):
            found += batches_in(entry)
    return found


def but_for_its_time(batch: RecordBatch) -> tuple[Any, ...]:
    """All that is stored of a batch."""
    head = batch.head
    return (head.attributes & ~Attributes.TRANSACTIONAL, head.base_sequence, bytes(batch.content))


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
async def test_a_chunk_is_stored_as_if_it_had_come_to_the_leader(
    cluster: ListenerCluster, passed_on: list[Any], kind: str, compression: Any
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
    (passed,) = passed_on
    direct, through = [batch for batch in batches(cluster) if len(batch) > 1]
    assert but_for_its_time(direct) == but_for_its_time(through)
    assert passed.content == through.content, "as it came"
    for batch in (direct, through):
        assert batch.are_bodies
        assert (batch.head.transaction is not None) == (kind == "transactional")
        assert batch.records() == BODIES


async def test_messages_go_as_they_came_too(cluster: ListenerCluster, passed_on: list[Any]) -> None:
    gateway = cluster.other_than(cluster.leader("trades"))
    sent = batch_of([message(b"one"), encode_message(Message(body=b"two", application_properties={"n": 2}))])
    async with RawSender(cluster.ports[gateway], "trades", BOUND) as sender:
        assert await sender.outcome(sender.send(carried(sent), batch=False)) == ACCEPTED
    (passed,), (stored,) = passed_on, batches(cluster)
    assert bytes(passed) == bytes(sent)
    assert stored.content == sent.content


async def test_an_answer_that_was_lost_is_asked_for_again_and_nothing_is_stored_twice(
    cluster: ListenerCluster, passed_on: list[Any], monkeypatch: pytest.MonkeyPatch
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
    first, second = of_bodies([b"a", b"b"], numbers=(7, 0, 1)), of_bodies([b"c"], numbers=(7, 0, 3))
    async with RawSender(cluster.ports[gateway], "trades", BOUND | terms(7)) as sender:
        for one in (first, second, first):
            assert await sender.outcome(sender.send(carried(one), batch=False)) == ACCEPTED
        assert lost[0].base_offset == 0
        assert not lost[0].HasField("failure"), "it was stored"
        came = list(map(bytes, (first, first, second, first)))
        assert list(map(bytes, passed_on)) == came, "as it came, each time"
        other = of_bodies([b"c", b"other"], numbers=(7, 0, 2))
        told = await sender.outcome(sender.send(carried(other), batch=False))
        assert told.startswith(OUT_OF_ORDER)
    stored = [(batch.head.base_sequence, batch.records()) for batch in batches(cluster)]
    assert [one for one in stored if one[1] == [b"c"]] == [(3, [b"c"])]
    info = await cluster.broker(gateway).handle("trades", "0").info()
    assert info.events == 3


async def test_what_cannot_be_taken_is_refused_and_the_link_goes_on(cluster: ListenerCluster) -> None:
    await refused_through_a_gateway(cluster, WRONG_CONTENT | FOR_THE_NODE)


@pytest.mark.usefixtures("credulous")
async def test_the_leader_does_not_believe_a_gateway(cluster: ListenerCluster) -> None:
    formed = {name: one for name, one in WRONG_CONTENT.items() if is_batch(one[0])}
    assert len(formed) >= 10
    await refused_through_a_gateway(cluster, formed)


async def refused_through_a_gateway(cluster: ListenerCluster, cases: dict[str, tuple[RecordBatch, str]]) -> None:
    """And nothing of them reaches the log."""
    leader = cluster.leader("trades")
    gateway = cluster.other_than(leader)
    before = cluster.broker(leader).handle("trades", "0").group.last_index
    async with RawSender(cluster.ports[gateway], "trades", BOUND) as sender:
        for name, (batch, why) in cases.items():
            told = await sender.outcome(sender.send(carried(batch), batch=False))
            assert told.startswith("amqp:decode-error"), name
            assert "the batch cannot be read" in told, name
            assert why in told, name
            assert cluster.broker(leader).handle("trades", "0").group.last_index == before, name
        good = of_bodies(BODIES, Codec.ZSTD)
        assert await sender.outcome(sender.send(carried(good), batch=False)) == ACCEPTED
    (stored,) = batches(cluster)
    assert stored.content == good.content


async def test_a_batch_outlives_a_change_of_leader_at_its_gateway(cluster: ListenerCluster) -> None:
    """What was not appended at the old leader is submitted to the new one, which may be the gateway itself."""
    old = cluster.leader("trades")
    gateway = cluster.other_than(old)
    async with RawSender(cluster.ports[gateway], "trades", BOUND) as sender:
        sent = [sender.send(carried(of_bodies([b"%d" % number] * 3)), batch=False) for number in range(12)]
        await cluster.move("trades", "0", gateway)
        sent += [sender.send(carried(of_bodies([b"%d" % number] * 3)), batch=False) for number in range(12, 24)]
        assert [await sender.outcome(one) for one in sent] == [ACCEPTED] * 24
    stored = [body for batch in batches(cluster) for body in batch.records()]
    assert stored == [b"%d" % number for number in range(24) for _ in range(3)]
