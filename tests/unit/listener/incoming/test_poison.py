"""What no reader could decode does not get in, by no way; and what an older log holds of it does not stop anybody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.amqp import (
    ACCEPTED,
    DeliveryPrefix,
    Described,
    MalformedMessage,
    Message,
    Rejected,
    Source,
    annotated,
    decode_message,
    encode_message,
    symbol,
    ulong,
)
from holdfast.amqp.encoding.codec import symbol_array
from holdfast.cli import app
from holdfast.client import ConsumerClient, ConsumerOptions, DamagedEventError, ReceivedEvent, Start
from node.partition.api import Appended
from tests.batches import batch_of
from tests.unit.listener.support.consuming import attached, terms
from tests.unit.listener.support.enveloping import RawSender, envelope
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.sending import stored
from tests.unit.listener.support.single import SingleNode

ANNOTATIONS = encode_message(Message(body=b"", message_annotations={"event-streams-group-key": "k"}))[:-5]
POISON = {
    "a data section that holds a string": b"\x00Su\xa1\x03abc",
    "bytes behind the body": message(b"x") + b"tail",
    "three thousand nested values": b"\x00Sw" + b"\x00\x53\x01" * 3000 + b"\x40",
    "a text that is not UTF-8": b"\x00Sw\xa1\x02\xff\xfe",
    "a damaged header": b"\x00Sp\xc0\x7f\x01\x40" + message(b"x"),
    "a body behind a key, cut off": ANNOTATIONS + b"\x00Su\xa0\x09abc",
    "properties of another type": b"\x00Ss\xc0\x04\x03\x40\x40\x44" + message(b"x"),
    "half a header": b"\x00Sp",
}
each = pytest.mark.parametrize("poison", POISON.values(), ids=POISON.keys())


def test_they_are_poison() -> None:
    for poison in POISON.values():
        with pytest.raises(MalformedMessage):
            decode_message(poison)


@each
@pytest.mark.parametrize("partition", ["0", None], ids=["bound", "agnostic"])
async def test_a_plain_link_refuses_it_and_goes_on(node: SingleNode, poison: bytes, partition: str | None) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades", partition)
        good = encode_message(Message(body=b"k", message_annotations={"event-streams-group-key": "k"}))
        await peer.send(sender, [message(b"1"), good, poison, message(b"2")])
        first, second, refused, last = await peer.states(sender, 4)
        assert (first, second, last) == (ACCEPTED, ACCEPTED, ACCEPTED)
        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert refused.error.condition == "amqp:decode-error"
    assert len(stored(node, "trades")["0"]) == 3


@each
async def test_an_idempotent_link_stores_what_lies_before_it_and_ends(node: SingleNode, poison: bytes) -> None:
    names = ("producer-id", "producer-epoch", "producer-sequence-number")
    said = {f"com.microsoft:{name}": None for name in names}
    async with Peer(node.port) as peer:
        sender = peer.engine.open_sender("trades", properties={"event-streams-partition": symbol("0"), **said})
        await peer._opened(sender)
        told = sender.remote_properties
        numbers = {name: told[f"com.microsoft:{name}"] for name in names}

        def said_to_be(number: int, body: bytes) -> bytes:
            named = numbers | {"producer-sequence-number": number}
            annotations = {f"com.microsoft:{name}": value for name, value in named.items()}
            return encode_message(Message(body=body, message_annotations=annotations))

        await peer.until(lambda: sender.credit > 3)
        await peer.send(sender, [said_to_be(5, b"one"), said_to_be(6, b"two"), poison, said_to_be(7, b"three")])
        assert (await peer.refused(sender)).condition in ("amqp:decode-error", "com.microsoft:argument-error")
        states = await peer.states(sender, 4)
        assert states[:2] == [ACCEPTED, ACCEPTED]
        assert isinstance(states[2], Rejected)
        assert states[3] != ACCEPTED
    assert stored(node, "trades")["0"] == [message(b"one"), message(b"two")]


@each
async def test_a_batch_of_event_hubs_with_it_is_refused_as_a_whole(node: SingleNode, poison: bytes) -> None:
    async with RawSender(node.port, "trades") as sender:
        outcome = await sender.outcome(sender.send(envelope(message(b"1"), poison), batch=True))
    assert "amqp:decode-error" in str(outcome)
    assert stored(node, "trades")["0"] == []


# ---------------------------------------------------------------- logs that hold some already


async def fill_old(node: SingleNode, log: str, records: list[bytes], partition: str = "0") -> None:
    """As it was possible before."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    node.logs[log][partition].append(batch_of(records), done.set_result)
    assert isinstance(await done, Appended)


@each
async def test_a_reader_is_told_which_event_it_is_and_may_go_past_it(node: SingleNode, poison: bytes) -> None:
    await fill_old(node, "trades", [message(b"1"), poison, message(b"2")])
    found: list[ReceivedEvent] = []
    async with ConsumerClient(f"127.0.0.1:{node.port}", "trades", start=Start.earliest()) as consumer:
        while len(found) < 3:
            found += await consumer.receive(timeout_s=20)
    with pytest.raises(DamagedEventError, match=f"event {1:016x} of partition 0") as damaged:
        found[1].check()
    assert (damaged.value.partition, damaged.value.offset) == ("0", f"{1:016x}")
    assert [found[0].body, found[2].body] == [b"1", b"2"]
    passed: list[DamagedEventError] = []
    options = ConsumerOptions(until_end=True, on_damaged=passed.append)
    async with ConsumerClient(f"127.0.0.1:{node.port}", "trades", start=Start.earliest(), options=options) as consumer:
        assert [event.body async for event in consumer] == [b"1", b"2"]
    assert [error.offset for error in passed] == [f"{1:016x}"]


@each
async def test_a_member_of_a_group_goes_past_it(node: SingleNode, poison: bytes) -> None:
    await fill_old(node, "trades", [poison, message(b"1"), poison])
    passed: list[DamagedEventError] = []
    found: list[bytes] = []
    options = ConsumerOptions(on_damaged=passed.append)
    async with ConsumerClient(
        f"127.0.0.1:{node.port}", "trades", start=Start.earliest(), group="g", options=options
    ) as consumer:
        while not found or len(passed) < 2:
            found += [event.body for event in await consumer.receive(timeout_s=0.05)]
    assert found == [b"1"]


@each
async def test_a_filter_takes_what_it_says_for_unknown(node: SingleNode, poison: bytes) -> None:
    good = encode_message(Message(body=b"x", application_properties={"a": 1}, subject="s"))
    await fill_old(node, "trades", [good, poison, good])
    conditions = ("a.a = 1", "a.a = 1 OR h.priority < 3 AND p.subject = 's'", "NOT a.a <> 1", "m.k IS NULL AND a = 1")
    for condition in conditions:
        source = Source(address="trades", filter={"f": Described(ulong(0x201), condition)})
        async with Peer(node.port) as peer:
            link = await attached(peer, terms(group=None), source, credit=10)
            await peer.until(lambda link=link, peer=peer: len(peer.received.get(link, [])) >= 2)
            assert [decode_message(payload).body for payload in peer.received[link]] == [b"x", b"x"]


async def test_what_a_link_is_told_of_new_partitions_may_stand_on_such_an_event(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, {}, start_at("wide", "@earliest"), credit=100)
        await node.add_partition(node.logs["wide"], "4")
        node.ring()
        await fill_old(node, "wide", list(POISON.values()), "4")
        await peer.until(lambda: len(peer.received.get(link, [])) >= len(POISON))


@each
def test_an_annotation_more_fits_in_front_of_anything(poison: bytes) -> None:
    (sent,) = DeliveryPrefix("0").splice_batch(7, 1, [poison])
    told = annotated(sent, "told", symbol_array(["0", "1"]))
    with pytest.raises(MalformedMessage):
        decode_message(told)
    assert told.endswith(poison)


async def test_the_command_line_says_which_event_it_is_and_skips_it_when_told_to(node: SingleNode) -> None:
    await fill_old(node, "trades", [message(b"1"), POISON["bytes behind the body"], message(b"2")])
    asked = ["consume", "trades", "--from", "earliest", "--until-end", "--server", f"127.0.0.1:{node.port}"]
    stopped = await asyncio.to_thread(CliRunner().invoke, app.main, asked)
    assert stopped.exit_code != 0
    assert f"event {1:016x} of partition 0 is damaged" in stopped.stderr
    assert "--skip-damaged" in stopped.stderr
    gone_past = await asyncio.to_thread(CliRunner().invoke, app.main, [*asked, "--skip-damaged"])
    assert (gone_past.exit_code, gone_past.stdout) == (0, "1\n2\n")
    assert f"event {1:016x} of partition 0 is damaged" in gone_past.stderr
