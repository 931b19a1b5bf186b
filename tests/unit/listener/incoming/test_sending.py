"""What becomes of messages that are sent: where they go, what they are answered, and when credit comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import ACCEPTED, Accepted, ConnectionClosed, Rejected, symbol
from holdfast.amqp.key_partitioner import partition_index
from node.listener.incoming import routing_annotations
from node.partition.api import Failed
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.sending import keyed, stored, to_partition
from tests.unit.listener.support.single import SingleNode


async def test_keys_stick_to_the_partition_that_every_client_computes_too(node: SingleNode) -> None:
    keys = ["AAPL", "GOOG", "order-42", "é", "a" * 200, ""] * 3
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide")
        await peer.send(sender, [keyed(key) for key in keys])
        assert set(await peer.states(sender, len(keys))) == {ACCEPTED}
    for name, records in stored(node, "wide").items():
        expected = [keyed(key) for key in keys if partition_index(key, 4) == int(name)]
        assert records == expected


async def test_a_target_partition_is_obeyed_and_stripped(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide")
        await peer.send(sender, [to_partition(symbol("2")), to_partition("3"), to_partition(symbol("2"))])
        await peer.states(sender, 3)
    assert {name: len(records) for name, records in stored(node, "wide").items()} == {"0": 0, "1": 0, "2": 2, "3": 1}
    assert all(record == message(b"t") for records in stored(node, "wide").values() for record in records)


async def test_hints_that_cannot_be_followed_reject_the_message_alone(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        agnostic = await peer.sender("wide")
        await peer.send(agnostic, [to_partition(symbol("9")), message(), keyed(7)])
        unknown, plain, bad_key = await peer.states(agnostic, 3)
        assert unknown.error.condition == "amqp:not-found"
        assert plain is ACCEPTED
        assert bad_key.error.condition == "amqp:decode-error"
        bound = await peer.sender("wide", "1")
        await peer.send(bound, [to_partition(symbol("2")), to_partition(symbol("1")), keyed("any"), message()])
        other, same, key_ignored, plain = await peer.states(bound, 4)
        assert other.error.condition == "amqp:precondition-failed"
        assert {same, key_ignored, plain} == {ACCEPTED}


async def test_messages_without_hints_are_spread_evenly(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide")
        for number in range(40):
            await peer.send(sender, [message(b"%d" % number)])
            await peer.states(sender, number + 1)
    assert [len(records) for records in stored(node, "wide").values()] == [10, 10, 10, 10]


async def test_a_sender_that_settles_everything_gets_its_events_stored_and_its_credit_back(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide", "0", snd_settle_mode=1)
        for _ in range(5):
            await peer.until(lambda: sender.credit >= 1500)
            await peer.send(sender, [message()] * 1500, settled=True)
        await eventually(lambda: node.logs["wide"]["0"].next_offset == 7500)
        await peer.send(sender, [to_partition(symbol("3")), message()], settled=True)  # the first is dropped
        await eventually(lambda: node.logs["wide"]["0"].next_offset == 7501)


async def test_thousands_in_flight_are_accepted_in_order_and_credit_never_runs_out(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        sent = 0
        while sent < 20_000:
            await peer.until(lambda: sender.credit > 0)
            count = min(sender.credit, 20_000 - sent)
            await peer.send(sender, [message(b"%d" % number) for number in range(sent, sent + count)])
            sent += count
        assert set(await peer.states(sender, 20_000)) == {ACCEPTED}
    assert stored(node, "trades")["0"] == [message(b"%d" % number) for number in range(20_000)]


async def test_credit_shrinks_for_big_messages(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path, credit_window_bytes=1_000_000, credit_window=100).start()
    await node.create("trades")
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        assert sender.credit == 100
        await peer.send(sender, [message(bytes(200_000))] * 100)
        await peer.states(sender, 100)
        await eventually(lambda: 0 < sender.credit <= 5)
        for turn in range(1, 4):  # and goes on
            await peer.until(lambda: sender.credit > 0)
            await peer.send(sender, [message()])
            await peer.states(sender, 100 + turn)
    await node.stop()


@pytest.mark.parametrize(
    ("kind", "condition"),
    [("disk_full", "amqp:resource-limit-exceeded"), ("too_large", "amqp:link:message-size-exceeded")],
)
async def test_what_the_partition_refuses_is_rejected_with_its_reason(
    node: SingleNode, kind: Any, condition: str
) -> None:
    replica = node.logs["trades"]["0"]
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        replica.refuse_appends(Failed(kind, True, "no room on node 1: free some"))
        await peer.send(sender, [message()])
        (state,) = await peer.states(sender, 1)
        assert isinstance(state, Rejected)
        assert state.error is not None
        assert state.error.condition == condition
        assert "no room on node 1" in (state.error.description or "")
        replica.refuse_appends(None)
        await peer.send(sender, [message()])
        assert isinstance((await peer.states(sender, 2))[1], Accepted)


async def test_a_stop_answers_everything_then_says_goodbye(tmp_path: Path) -> None:
    node = await SingleNode(tmp_path).start()
    await node.create("trades")
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        await peer.receiver(start_at("trades", "@earliest"), credit=5)
        await peer.send(sender, [message()] * 500)
        await eventually(lambda: node.listener.counters.events_in)
        stopping = asyncio.create_task(node.stop())
        closed = await peer.wait(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"
        outcomes = peer.outcomes[sender]
        received = node.listener.counters.events_in
        assert len(outcomes) == received
        assert {state for _, state in outcomes} == {ACCEPTED}
        await stopping


def test_hints_are_remembered_by_their_bytes_and_the_memory_is_bounded() -> None:
    routing_annotations._known.clear()
    first = routing_annotations.read(keyed("AAPL"))
    assert (first.group_key, first.stored) == ("AAPL", keyed("AAPL"))
    assert routing_annotations.read(keyed("AAPL")) == first
    assert len(routing_annotations._known) == 1
    for number in range(routing_annotations.ENTRIES + 10):
        assert routing_annotations.read(keyed(f"key {number}")).group_key == f"key {number}"
    assert len(routing_annotations._known) <= routing_annotations.ENTRIES
    long_key = "k" * 300  # a map32: not remembered
    before = len(routing_annotations._known)
    assert routing_annotations.read(keyed(long_key)).group_key == long_key
    assert len(routing_annotations._known) == before
