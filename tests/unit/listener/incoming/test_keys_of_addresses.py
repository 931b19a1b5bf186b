"""Keys of clients that write no annotations: in the address, and as the group-id of messages."""

from __future__ import annotations

import pytest

from holdfast.amqp import ACCEPTED, Message, decode_message, encode_message, symbol, uint
from holdfast.amqp.key_partitioner import partition_index
from holdfast.amqp.messages.routing_fields import GROUP_ID, TO, text_property, with_group_key
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.sending import KEY, keyed, stored
from tests.unit.listener.support.single import SingleNode


def keys_of(node: SingleNode, log: str) -> dict[str, list[str | None]]:
    """Stored keys, by partition."""
    return {
        name: [decode_message(record).message_annotations.get("event-streams-group-key") for record in records]
        for name, records in stored(node, log).items()
        if records
    }


def of_group(name: str, **more: object) -> bytes:
    return encode_message(Message(body=b"g", message_id="m", group_id=name, **more))  # type: ignore[arg-type]


async def test_the_key_of_an_address_is_that_of_messages_without_one(node: SingleNode) -> None:
    other = next(key for key in map(str, range(99)) if partition_index(key, 4) != partition_index("ann", 4))
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide?key=ann")
        await peer.send(sender, [message(b"bare"), keyed(other), of_group(other), message(b"bare")])
        assert set(await peer.states(sender, 4)) == {ACCEPTED}
    ann, theirs = str(partition_index("ann", 4)), str(partition_index(other, 4))
    assert keys_of(node, "wide") == {ann: ["ann", "ann"], theirs: [other, other]}


async def test_a_group_id_is_the_key_of_a_message_that_has_no_other(node: SingleNode) -> None:
    other = next(key for key in map(str, range(99)) if partition_index(key, 4) != partition_index("ann", 4))
    note = {symbol("x-note"): 1}
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide")
        sent = [
            of_group("ann"),
            of_group("ann", message_annotations=note, durable=True),
            of_group("ann", message_annotations={KEY: other}),
        ]
        await peer.send(sender, sent)
        assert set(await peer.states(sender, 3)) == {ACCEPTED}
    ann, theirs = str(partition_index("ann", 4)), str(partition_index(other, 4))
    assert keys_of(node, "wide") == {ann: ["ann", "ann"], theirs: [other]}
    second = decode_message(stored(node, "wide")[ann][1])
    assert (second.durable, second.group_id, second.message_annotations["x-note"]) == (True, "ann", 1)


async def test_a_partition_and_a_key_of_an_address_go_together(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide?partition=2&key=ann")
        await peer.send(sender, [message()])
        await peer.states(sender, 1)
    assert keys_of(node, "wide") == {"2": ["ann"]}


async def test_a_group_id_too_long_for_a_key_is_refused_with_its_length(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide")
        await peer.send(sender, [of_group("g" * 4097)])
        (state,) = await peer.states(sender, 1)
    assert "4097 characters" in state.error.description


async def test_a_sender_that_writes_keys_itself_may_not_be_given_one(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        properties = {"holdfast:record-batches": uint(1), "event-streams-partition": symbol("0")}
        link = peer.engine.open_sender("wide?key=ann", properties=properties)
        assert "take key= out" in ((await peer.refused(link)).description or "")


async def test_links_of_one_message_each_reach_every_partition(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        for _ in range(64):
            sender = await peer.sender("wide")
            await peer.send(sender, [message()])
            await peer.states(sender, 1)
            sender.close()
    assert all(stored(node, "wide").values())


@pytest.mark.parametrize("header", [{}, {"durable": True}])
@pytest.mark.parametrize("notes", [0, 1, 200])
def test_a_key_is_written_beside_what_is_there(header: dict[str, bool], notes: int) -> None:
    annotations = {symbol(f"x-{number}"): number for number in range(notes)}
    before = Message(body=b"b", message_annotations=annotations, to="orders", **header)  # type: ignore[arg-type]
    after = decode_message(with_group_key(with_group_key(encode_message(before), "old"), "k" * 300))
    assert after.message_annotations == {**annotations, "event-streams-group-key": "k" * 300}
    assert (after.body, after.to, after.durable) == (b"b", "orders", header.get("durable"))


def test_properties_are_read_in_both_sizes_and_only_as_texts() -> None:
    small = encode_message(Message(body=b"b", to="orders", group_id="g"))
    large = encode_message(Message(body=b"b", to="orders", subject="s" * 300, group_id="g"))
    for encoded in (small, large):
        assert (text_property(encoded, TO), text_property(encoded, GROUP_ID)) == ("orders", "g")
    assert text_property(encode_message(Message(body=b"b", message_id="m")), GROUP_ID) is None
    assert text_property(message(), TO) is None
