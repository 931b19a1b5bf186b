"""Packed batches on links that have agreed to them: stored as so many events, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import Accepted, LinkDetached, Message, decode_message, encode_message, symbol
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import table_of
from holdfast.records.packed_batch import PackedNumbers, digests_of, pack, pack_joined
from node.listener.config import ListenerConfig
from node.listener.connection import Connection
from node.listener.incoming import incoming_link
from node.listener.incoming.unopened_batches import UnopenedBatches
from node.partition.idempotence.producer_state import REMEMBERED_EVENTS
from tests.unit.listener.support.enveloping import ACCEPTED, RawSender
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.producing import OUT_OF_ORDER, attached, event, events, granted, terms
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.sending import KEY, TARGET, stored
from tests.unit.listener.support.single import SingleNode

CREDIT_WINDOW_BYTES = ListenerConfig().credit_window_bytes
PACKED = "holdfast:packed-batches"
BOUND = {"event-streams-partition": symbol("0"), PACKED: True}


def records(node: SingleNode) -> list[bytes]:
    return stored(node, "trades")["0"]


def bodies(node: SingleNode) -> list[Any]:
    return [decode_message(record).body for record in records(node)]


def of_bodies(*bodies: bytes, codec: Codec = Codec.NONE, numbers: tuple[int, int, int] | None = None) -> bytes:
    """`numbers`: producer id, epoch, number of the first."""
    said = None if numbers is None else PackedNumbers(*numbers, digests_of(bodies))
    return pack_joined(table_of(bodies), bodies, codec, bodies=True, numbers=said)


@pytest.mark.parametrize("codec", list(Codec))
async def test_bodies_are_the_events_that_have_them(node: SingleNode, codec: Codec) -> None:
    given = [b"event %d" % number for number in range(100)] + [b"", b"x" * 255, b"y" * 256, b"z" * 70_000]
    async with RawSender(node.port, "trades", BOUND) as sender:
        assert await sender.outcome(sender.send(of_bodies(*given, codec=codec), batch=False)) == ACCEPTED
        assert await sender.outcome(sender.send(pack([message(b"one")], codec), batch=False)) == ACCEPTED
    assert records(node) == [*map(message, given), message(b"one")]
    async with Peer(node.port) as peer:
        reader = await peer.receiver(start_at("trades", "@earliest"), credit=500)
        await peer.until(lambda: len(peer.received.get(reader, [])) == 105)
        seen = [decode_message(payload) for payload in peer.received[reader]]
    assert [one.body for one in seen] == [*given, b"one"]
    assert [one.delivery_annotations["event-streams-offset"] for one in seen] == [f"{n:016x}" for n in range(105)]


async def test_numbered_bodies_are_stored_once_however_they_come_again(node: SingleNode) -> None:
    first, second = of_bodies(b"a", b"b", b"c", numbers=(7, 0, 1)), of_bodies(b"d", b"e", numbers=(7, 0, 4))
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        for batch in (first, second, first, of_bodies(b"c", b"d", b"e", b"f", numbers=(7, 0, 3))):
            assert await sender.outcome(sender.send(batch, batch=False)) == ACCEPTED
    assert bodies(node) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        assert granted(link) == (7, 0, 6)
        await peer.send(link, events(7, 0, 2, "bcdefg"))
        assert len(await peer.states(link, 6)) == 6
    assert bodies(node) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"], "as single messages they are the same events"
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        told = await sender.outcome(sender.send(of_bodies(b"f", b"other", numbers=(7, 0, 6)), batch=False))
        assert told.startswith(OUT_OF_ORDER)
        assert "number 7 was used before, for another event" in told
        assert await sender.end() == OUT_OF_ORDER


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((8, 0, 1), "com.microsoft:argument-error: com.microsoft:producer-id is 8, but the link was granted 7"),
        ((7, 1, 1), "com.microsoft:argument-error: com.microsoft:producer-epoch is 1, but the link was granted 0"),
        ((7, 0, -5), "com.microsoft:argument-out-of-range"),
    ],
)
async def test_numbers_of_bodies_are_those_that_were_granted(
    node: SingleNode, numbers: tuple[int, int, int], why: str
) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        told = await sender.outcome(sender.send(of_bodies(b"a", numbers=numbers), batch=False))
        assert told.startswith(why)
        assert await sender.end() == why.split(": ")[0]
    assert records(node) == []


async def test_messages_behind_numbered_bodies_are_counted_on(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7) | {"holdfast:implied-numbers": True}) as sender:
        for batch in (of_bodies(b"a", b"b", numbers=(7, 0, 1)), pack([message(b"c")]), of_bodies(b"d")):
            assert await sender.outcome(sender.send(batch, batch=False)) == ACCEPTED
    assert bodies(node) == [b"a", b"b", b"c", b"d"]
    async with Peer(node.port) as peer:
        assert granted(await attached(peer, 7)) == (7, 0, 4)


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_batch_is_so_many_events_side_by_side_and_one_outcome(node: SingleNode, codec: Codec) -> None:
    keyed = encode_message(Message(body=b"keyed", message_annotations={KEY: "IBM"}))
    parts = [*(message(b"event %d" % number) for number in range(100)), keyed]
    before = node.logs["trades"]["0"].group.last_index
    async with RawSender(node.port, "trades", BOUND) as sender:
        assert sender.properties[PACKED] >= 1000
        assert await sender.outcome(sender.send(pack(parts, codec), batch=False)) == ACCEPTED
        assert node.logs["trades"]["0"].group.last_index == before + 1, "all or nothing"
        assert await sender.outcome(sender.send(pack([message(b"one")], codec), batch=False)) == ACCEPTED
    assert records(node) == [*parts, message(b"one")]
    async with Peer(node.port) as peer:
        reader = await peer.receiver(start_at("trades", "@earliest"), credit=500)
        await peer.until(lambda: len(peer.received.get(reader, [])) == 102)
        seen = [decode_message(payload) for payload in peer.received[reader]]
    assert [one.delivery_annotations["event-streams-offset"] for one in seen] == [f"{n:016x}" for n in range(102)]


@pytest.mark.parametrize(
    "properties",
    [None, {PACKED: True}, {"event-streams-partition": symbol("0")}, BOUND | {PACKED: 1}],
    ids=["nothing", "agnostic", "bound", "not a boolean"],
)
async def test_who_has_not_agreed_sends_single_messages(node: SingleNode, properties: dict[str, Any] | None) -> None:
    async with RawSender(node.port, "trades", properties) as sender:
        assert PACKED not in sender.properties
        whole = pack([message(b"a"), message(b"b")])
        assert await sender.outcome(sender.send(whole, batch=False)) == ACCEPTED
    assert records(node) == [whole]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (message(b"a plain event that is long enough"), "amqp:decode-error: the batch cannot be read: version 97"),
        (pack([message(b"a"), message(b"b")])[:-1] + b"c", "amqp:decode-error: the batch cannot be read: the checksum"),
        (pack([message(b"a"), b"no message"]), "amqp:decode-error"),
        (pack([message(b"a"), b""]), "amqp:decode-error"),
        (pack([message(bytes(1 << 20))] * 5, Codec.ZSTD), "amqp:decode-error: the batch cannot be read: the messages"),
        (pack(events(7, 0, 1, "ab")), "amqp:not-allowed"),
        (of_bodies(b"a", b"b", numbers=(7, 0, 1)), "amqp:not-allowed"),
        (
            pack([encode_message(Message(body=b"x", delivery_annotations={TARGET: symbol("9")}))]),
            "amqp:precondition-failed",
        ),
    ],
    ids=["plain", "damaged", "no message", "empty", "bomb", "numbers", "numbers of all", "elsewhere"],
)
async def test_what_cannot_be_taken_is_refused_as_a_whole(node: SingleNode, payload: bytes, why: str) -> None:
    async with RawSender(node.port, "trades", BOUND) as sender:
        assert (await sender.outcome(sender.send(payload, batch=False))).startswith(why)
        assert await sender.outcome(sender.send(pack([message(b"next")]), batch=False)) == ACCEPTED
    assert records(node) == [message(b"next")]


async def test_what_batches_make_the_node_hold_is_bounded_not_what_they_have_on_the_wire(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that sends all that it has credit for at once, each of it megabytes, hears of each in the end."""
    held: list[int] = []
    received = Connection.received

    def watched(self: Connection, count: int, size: int, events: int) -> None:
        received(self, count, size, events)
        held.append(self.intake._unanswered_bytes)

    monkeypatch.setattr(Connection, "received", watched)
    async with Peer(node.port) as peer:
        link = peer.engine.open_sender("trades", properties=BOUND)
        await peer._opened(link)
        await peer.until(lambda: link.credit > 0)
        large = pack([message(bytes(1 << 20))] * 3, Codec.ZSTD)
        assert len(large) < 4096
        count = link.credit
        assert count * 3 * 1024 * 1024 > 20 * CREDIT_WINDOW_BYTES
        link.send_many([large] * count)
        await peer.flush()
        await peer.until(lambda: len(peer.outcomes.get(link, [])) == count)
        assert all(isinstance(state, Accepted) for _, state in peer.outcomes[link])
    assert max(held) < CREDIT_WINDOW_BYTES + 5 * 1024 * 1024
    assert len(records(node)) == 3 * count


async def test_what_waits_unopened_when_its_link_ends_is_given_back(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = peer.engine.open_sender("trades", properties=BOUND | terms(7))
        await peer._opened(link)
        await peer.until(lambda: link.credit > 0)
        good = [pack([event(7, 0, 1 + n, bytes(3 << 20))], Codec.ZSTD) for n in range(3)]
        behind = [pack([event(7, 0, 5 + n, bytes(3 << 20))], Codec.ZSTD) for n in range(9)]
        link.send_many([*good, pack([b"no message"]), *behind])
        await peer.flush()
        detached = await peer.wait(LinkDetached)
    assert detached.error is not None
    assert detached.error.condition == "amqp:decode-error"
    states = [type(state).__name__ for _, state in sorted(peer.outcomes[link], key=lambda one: one[0])]
    accepted = states.count("Accepted")
    assert states == [*["Accepted"] * accepted, *["Released"] * (3 - accepted), "Rejected", *["Released"] * 9]
    assert len(records(node)) == accepted > 0


async def test_a_numbered_batch_is_stored_once(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        assert sender.properties[PACKED] <= REMEMBERED_EVENTS // 2, "so many are recognised when they come again"
        for _ in range(3):
            assert await sender.outcome(sender.send(pack(events(7, 0, 1, "abc")), batch=False)) == ACCEPTED
        assert await sender.outcome(sender.send(pack([event(7, 0, 4, b"d")]), batch=False)) == ACCEPTED
        told = await sender.outcome(sender.send(pack(events(7, 0, 9, "xy")), batch=False))
        assert told.startswith(OUT_OF_ORDER)
        assert await sender.end() == OUT_OF_ORDER
    assert bodies(node) == [b"a", b"b", b"c", b"d"]
    async with Peer(node.port) as peer:
        assert granted(await attached(peer, 7)) == (7, 0, 4)


async def test_all_that_a_link_may_have_unanswered_is_recognised_when_it_comes_again(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        most = sender.properties[PACKED]
        whole = [pack(events(7, 0, 1 + first, "x" * 1000)) for first in range(0, most, 1000)]
        sent = [sender.send(batch, batch=False) for batch in whole]
        assert {await sender.outcome(number) for number in sent} == {ACCEPTED}
    count = len(records(node))
    assert count >= most >= 16_000
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        sent = [sender.send(batch, batch=False) for batch in whole]
        assert {await sender.outcome(number) for number in sent} == {ACCEPTED}
    assert len(records(node)) == count


async def test_numbers_that_are_left_out_follow_the_batch_before(node: SingleNode) -> None:
    implied = BOUND | terms(7) | {"holdfast:implied-numbers": True}
    async with RawSender(node.port, "trades", implied) as sender:
        first = [event(7, 0, 1, b"a"), message(b"b")]
        assert await sender.outcome(sender.send(pack(first), batch=False)) == ACCEPTED
        assert await sender.outcome(sender.send(pack([message(b"c"), message(b"d")]), batch=False)) == ACCEPTED
    assert bodies(node) == [b"a", b"b", b"c", b"d"]
    async with Peer(node.port) as peer:
        assert granted(await attached(peer, 7)) == (7, 0, 4)


async def test_a_damaged_batch_of_an_idempotent_producer_ends_its_link(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        damaged = pack(events(7, 0, 1, "ab"))[:-1] + b"c"
        assert (await sender.outcome(sender.send(damaged, batch=False))).startswith("amqp:decode-error")
        assert await sender.end() == "amqp:decode-error"
    assert records(node) == []


@pytest.mark.parametrize(
    "damaged",
    [of_bodies(b"a", b"b")[:-1] + b"c", pack([message(b"a")], Codec.ZSTD)[:-1], message(b"no batch at all"), b"\x00"],
    ids=["its checksum", "its end", "its head", "everything"],
)
async def test_a_batch_that_cannot_be_read_is_a_full_share_of_a_turn(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    """What it has cost to find that out nobody knows, and the next one may cost as much."""
    opened: list[bytes] = []
    shares: list[int] = []
    open_one, take_on = incoming_link.open_packed, UnopenedBatches.take_on

    def opens(payload: bytes, most_bytes: int) -> Any:
        opened.append(payload)
        return open_one(payload, most_bytes)

    def takes_on(self: UnopenedBatches) -> None:
        before = len(opened)
        take_on(self)
        shares.append(len(opened) - before)

    monkeypatch.setattr(incoming_link, "open_packed", opens)
    monkeypatch.setattr(UnopenedBatches, "take_on", takes_on)
    async with RawSender(node.port, "trades", BOUND) as sender:
        for told in [sender.send(damaged, batch=False) for _ in range(5)]:
            assert (await sender.outcome(told)).startswith("amqp:decode-error: the batch cannot be read")
    assert opened == [damaged] * 5
    assert max(shares) == 1, "though all five were there"
