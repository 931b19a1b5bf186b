"""Senders without a target: each message is judged as an attach to its `to` would be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.amqp import ACCEPTED, LinkDetached, Message, Source, Target, decode_message, encode_message
from holdfast.amqp.key_partitioner import partition_index
from node.listener.incoming.anonymous_link import MAX_ADDRESS_BYTES, AnonymousLink
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.sending import stored
from tests.unit.listener.support.single import SingleNode

REJECTS = Source(outcomes=("amqp:accepted:list", "amqp:rejected:list"))


def to(address: str, body: bytes = b"b") -> bytes:
    return encode_message(Message(body=body, to=address))


def bodies(node: SingleNode, log: str) -> dict[str, list[Any]]:
    found = {name: [decode_message(one).body for one in records] for name, records in stored(node, log).items()}
    return {name: records for name, records in found.items() if records}


async def test_the_relay_is_offered_and_routes_by_to_in_order(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        assert "ANONYMOUS-RELAY" in peer.engine.remote_offered_capabilities
        sender = await peer.sender(Target())
        sent = [to("trades", b"%d" % number) for number in range(5)]
        sent[2:2] = [to("wide?partition=3", b"three"), to("wide?key=ann", b"keyed")]
        await peer.send(sender, sent)
        assert set(await peer.states(sender, 7)) == {ACCEPTED}
    assert bodies(node, "trades") == {"0": [b"%d" % number for number in range(5)]}
    found = bodies(node, "wide")
    assert b"three" in found["3"]
    assert b"keyed" in found[str(partition_index("ann", 4))]


@pytest.mark.parametrize(
    ("sent", "condition"),
    [
        (to("nowhere"), "amqp:not-found"),
        (to("wide?partition=9"), "amqp:not-found"),
        (to("wide?start=earliest"), "amqp:invalid-field"),
        (to("wide/$info"), "amqp:not-allowed"),
        (to("$management"), "amqp:not-allowed"),
        (to("$reply/somebody"), "amqp:not-implemented"),
        (message(), "amqp:invalid-field"),
        (to("x" * 100_000), "amqp:invalid-field"),
        (to("\x01" * MAX_ADDRESS_BYTES), "amqp:not-found"),
        (b"\x00Ss\xc0\x02\x0b\x40\x00Su\xa0\x01x", "amqp:decode-error"),
        (b"\x00Ss\xd0\x00\x00\x00", "amqp:decode-error"),
    ],
)
async def test_what_cannot_be_routed_is_rejected_with_the_error_of_an_attach(
    node: SingleNode, sent: bytes, condition: str
) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target(), source=REJECTS)
        await peer.send(sender, [sent, to("trades")])
        state, after = await peer.states(sender, 2)
        assert state.error.condition == condition
        assert after is ACCEPTED


async def test_a_peer_that_takes_no_rejections_is_detached_with_the_tag(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target(), source=Source(outcomes=("amqp:accepted:list",)))
        await peer.send(sender, [to("nowhere")])
        error = await peer.refused(sender)
    assert error.condition == "amqp:not-found"
    assert isinstance(error.info["delivery-tag"], bytes)


async def test_a_message_that_was_settled_ends_the_link(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target())
        await peer.send(sender, [to("nowhere")], settled=True)
        assert (await peer.refused(sender)).condition == "amqp:not-found"


async def test_messages_to_a_log_that_is_made_elsewhere_wait_for_the_news_in_order(node: SingleNode) -> None:
    async def heard() -> bool:
        await node.create("fresh")
        return True

    node.current = heard  # type: ignore[method-assign]
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target())
        await peer.send(sender, [to("fresh", b"0"), to("fresh", b"1"), to("trades"), to("fresh", b"2")])
        assert set(await peer.states(sender, 4)) == {ACCEPTED}
    assert bodies(node, "fresh") == {"0": [b"0", b"1", b"2"]}


async def test_a_deleted_log_ends_its_route_alone(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target())
        await peer.send(sender, [to("wide"), to("trades")])
        await peer.states(sender, 2)
        node.delete("wide")
        await peer.send(sender, [to("wide"), to("trades")])
        gone, stays = (await peer.states(sender, 4))[2:]
        assert gone.error.condition in ("amqp:not-found", "amqp:resource-deleted")
        assert stays is ACCEPTED
        assert not [event for event in peer.history if isinstance(event, LinkDetached)]


async def test_many_addresses_are_forgotten_and_found_again(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target())
        for turn in range(2):
            await peer.send(sender, [to(f"wide?key={number}") for number in range(400)])
            assert set(await peer.states(sender, 400 * (turn + 1))) == {ACCEPTED}
    assert sum(map(len, bodies(node, "wide").values())) == 800


async def test_all_is_given_back_when_the_peer_leaves(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target())
        await peer.send(sender, [to("wide"), to("nowhere"), to("trades")])
    await eventually(lambda: not node.listener.counters.connections_open)
    await eventually(lambda: node.listener.unanswered_bytes == 0)


async def test_a_peer_that_names_many_logs_asks_one_question_at_a_time(node: SingleNode) -> None:
    under_way = asyncio.Semaphore(1)

    async def asked() -> bool:
        assert not under_way.locked()
        async with under_way:
            await asyncio.sleep(0)
        return True

    node.current = asked  # type: ignore[method-assign]
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target(), source=REJECTS)
        await peer.send(sender, [to(f"nowhere{number}") for number in range(300)])
        states = await peer.states(sender, 300)
    assert {state.error.condition for state in states} == {"amqp:not-found"}


async def test_a_route_that_lost_its_right_is_let_go(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender(Target(), source=REJECTS)
        await peer.send(sender, [to("wide"), to("trades")])
        await peer.states(sender, 2)
        (connection,) = node.listener._connections
        (relay,) = connection.served
        assert isinstance(relay, AnonymousLink)
        connection.visitor.may = lambda need: need.name != "wide"  # type: ignore[method-assign]
        relay.on_change()
        assert list(relay._routes) == ["trades"]
        assert not relay._retired
        await peer.send(sender, [to("wide"), to("trades")])
        refused, taken = (await peer.states(sender, 4))[2:]
        assert refused.error.condition == "amqp:unauthorized-access"
        assert taken is ACCEPTED
