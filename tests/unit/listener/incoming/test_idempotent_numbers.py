"""Which numbers a producer may send (IS-8): in order, or again, never with other bytes or behind a wrong message."""

from __future__ import annotations

import asyncio
import random

import pytest

from holdfast.amqp import (
    ACCEPTED,
    Released,
    SenderLink,
    decode_message,
    symbol,
)
from node.listener.incoming import routing_annotations
from node.listener.incoming.idempotent_producers.idempotent_link import CREDIT_LIMIT
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.producing import (
    ARGUMENT_ERROR,
    EPOCH,
    ID,
    OK,
    OUT_OF_ORDER,
    OUT_OF_RANGE,
    SEQUENCE,
    attached,
    conditions,
    event,
    events,
    granted,
    stored,
)
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.single import SingleNode


async def test_batches_that_come_in_another_order_are_refused(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "ab"))
        await peer.states(link, 2)
        await peer.send(link, [*events(7, 0, 5, "ef"), *events(7, 0, 3, "cd")])
        assert conditions((await peer.states(link, 6))[2:3]) == [OUT_OF_ORDER]
        assert (await peer.refused(link)).condition == OUT_OF_ORDER
    assert stored(node) == "ab"


async def test_events_are_stored_in_order_without_their_numbers(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        for first, letters in ((1, "abc"), (4, "d"), (5, "efghij")):
            await peer.send(link, events(7, 0, first, letters))
        assert set(await peer.states(link, 10)) == {ACCEPTED}
    assert stored(node) == "abcdefghij"
    assert all(
        record == message(record[5:])
        for batch in node.logs["trades"]["0"].read(0, 1 << 20)
        for record in batch.messages()
    )


async def test_other_annotations_and_the_header_reach_the_consumer_as_they_were_sent(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        more = {symbol("x-trace"): symbol("t1"), symbol("x-n"): 5}
        await peer.send(link, [event(7, 0, n, b"e", durable=True, message_annotations=more) for n in (1, 2)])
        await peer.states(link, 2)
        reader = await peer.receiver(start_at("trades", "@earliest"), credit=10)
        await peer.until(lambda: len(peer.received.get(reader, [])) == 2)
        for payload in peer.received[reader]:
            found = decode_message(payload)
            assert (found.durable, found.body) == (True, b"e")
            assert dict(found.message_annotations) == {"x-trace": "t1", "x-n": 5}


async def test_thousands_in_flight_are_stored_once_in_order(node: SingleNode) -> None:
    count = 9000
    async with Peer(node.port) as peer:
        link = await attached(peer, 7, None, 100)
        assert link.credit <= CREDIT_LIMIT
        sent = 0
        while sent < count:
            await peer.until(lambda: link.credit > 0)
            batch = min(link.credit, count - sent)
            await peer.send(link, [event(7, 0, 101 + n, b"%d" % n) for n in range(sent, sent + batch)])
            sent += batch
        assert set(await peer.states(link, count)) == {ACCEPTED}
    records = [record for batch in node.logs["trades"]["0"].read(0, 1 << 30) for record in batch.messages()]
    assert records == [message(b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("first", [0, 1, 555, 2**31 - 2])
async def test_the_first_number_is_free_and_the_last_is_followed_by_0(node: SingleNode, first: int) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, first, "abc"))
        await peer.send(link, events(7, 0, (first + 3) % 2**31, "def"))
        assert set(await peer.states(link, 6)) == {ACCEPTED}
    assert stored(node) == "abcdef"


async def test_what_comes_again_is_accepted_and_stored_once_however_it_is_cut(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abcdefgh"))
        await peer.states(link, 8)
        for first, letters in ((1, "abcdefgh"), (3, "cd"), (8, "h"), (6, "fghij"), (1, "abcdefghijkl")):
            again = await attached(peer, 7, 0, first - 1)
            await peer.send(again, events(7, 0, first, letters))
            assert set(await peer.states(again, len(letters))) == {ACCEPTED}
    assert stored(node) == "abcdefghijkl"


async def test_a_connection_that_broke_before_the_answers_costs_no_event_and_doubles_none(node: SingleNode) -> None:
    letters = "".join(chr(97 + n % 26) for n in range(1500))
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        peer.reading.clear()  # the answers are never seen
        for place in range(0, 1500, 37):
            await peer.send(link, events(7, 0, 1 + place, letters[place : place + 37]))
            await asyncio.sleep(0)
        await eventually(lambda: node.logs["trades"]["0"].next_offset > 500)
    async with Peer(node.port) as peer:
        link = await attached(peer, 7, 0, 0)
        for place in range(0, 1500, 61):
            await peer.send(link, events(7, 0, 1 + place, letters[place : place + 61]))
        assert set(await peer.states(link, 1500)) == {ACCEPTED}
    assert stored(node) == letters


@pytest.mark.parametrize(("first", "letters"), [(6, "z"), (5, "z"), (0, "z"), (2**31 - 1, "z"), (2, "Xcd"), (4, "D")])
async def test_is_8_gaps_old_numbers_and_reused_ones_are_out_of_order_and_end_the_link(
    node: SingleNode, first: int, letters: str
) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abcd"))
        await peer.states(link, 4)
        await peer.send(link, events(7, 0, first + (first == 5), letters))
        states = (await peer.states(link, 4 + len(letters)))[4:]
        assert conditions(states) == [OUT_OF_ORDER] * len(letters)
        assert (await peer.refused(link)).condition == OUT_OF_ORDER
        assert stored(node) == "abcd"
        assert granted(await attached(peer, 7)) == (7, 0, 4)


async def test_of_a_resend_with_a_change_in_it_the_front_is_known_and_the_rest_refused(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abcd"))
        await peer.states(link, 4)
        await peer.send(link, events(7, 0, 1, "abXdef"))
        assert conditions((await peer.states(link, 10))[4:]) == [OK, OK, *[OUT_OF_ORDER] * 4]
    assert stored(node) == "abcd"


async def test_nothing_of_a_new_batch_is_stored_when_its_first_numbers_were_given_away(node: SingleNode) -> None:
    """IP-15: the client gave up, and reuses the numbers; what it sends now is longer than what was stored."""
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abc"))
        await peer.states(link, 3)
        again = await attached(peer, 7, 0, 0)
        new = events(7, 0, 1, "NEWBATCHES" * 50)
        for place in range(0, 500, 20):  # in many pieces, for the node to receive on their own
            await peer.send(again, new[place : place + 20])
            await asyncio.sleep(0.001)
        assert (await peer.refused(again)).condition == OUT_OF_ORDER
        assert OK not in conditions([state for _, state in peer.outcomes[again]])
    assert stored(node) == "abc"


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (message(b"none"), ARGUMENT_ERROR),
        (event(7, 0, 3, message_annotations={SEQUENCE: None}), ARGUMENT_ERROR),
        (event(7, 1, 3), ARGUMENT_ERROR),
        (event(8, 0, 3), ARGUMENT_ERROR),
        (event(7, 0, 3, message_annotations={SEQUENCE: -3}), OUT_OF_RANGE),
        (event(7, 0, 3, message_annotations={SEQUENCE: 2**31}), OUT_OF_RANGE),
        (event(7, 0, 3, message_annotations={SEQUENCE: "3"}), ARGUMENT_ERROR),
        (b"nonsense", "amqp:decode-error"),
        (event(7, 0, 3, delivery_annotations={"event-streams-target-partition": "9"}), "amqp:precondition-failed"),
    ],
    ids=[
        "none", "some", "other epoch", "other id", "negative", "too large", "text", "garbage", "elsewhere"
    ],
)  # fmt: skip
async def test_a_message_with_wrong_terms_is_rejected_and_ends_the_link(
    node: SingleNode, bad: bytes, condition: str
) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, [*events(7, 0, 1, "ab"), bad, *events(7, 0, 4, "d")])
        states = await peer.states(link, 4)
        assert conditions(states[:3]) == [OK, OK, condition]
        assert isinstance(states[3], Released), "certainly not stored"
        assert (await peer.refused(link)).condition == condition
    assert stored(node) == "ab"


@pytest.mark.parametrize("partition", [None, "0"])
async def test_numbers_on_a_link_that_was_not_attached_for_them_are_refused(
    node: SingleNode, partition: str | None
) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("wide", partition)
        wide = event(7, 0, 2, b"2", message_annotations={"x-long": "l" * 300})
        headed = event(7, 0, 3, b"3", durable=True)
        only_one = event(7, 0, 4, b"4", message_annotations={ID: None, EPOCH: None})
        mentioned = message(b"in a body, com.microsoft:producer-id is a text like any other")
        annotated = event(7, 0, 5, b"5").replace(b"com.microsoft:producer-", b"com.microsoft:producers")
        sent = [event(7, 0, 1, b"1"), wide, headed, only_one, mentioned, annotated, message(b"plain")]
        await peer.send(sender, sent)
        states = await peer.states(sender, len(sent))
        assert conditions(states) == ["amqp:not-allowed"] * 4 + [OK] * 3
        assert "not attached for idempotent publishing" in (states[0].error.description or "")
        assert sender.is_open
    assert not any(b"com.microsoft:producer-" in section for section in routing_annotations._known)


async def test_whatever_bytes_a_producer_sends_the_node_answers_and_lives(node: SingleNode) -> None:
    chance = random.Random(5)
    number = 0
    async with Peer(node.port) as peer:
        for _ in range(60):
            link = await attached(peer, 7)
            last = granted(link)[2]
            payloads = events(7, 0, last + 1, "abcdefgh") if chance.random() < 0.5 else events(7, 0, number, "xy")
            for victim in range(len(payloads)):
                if chance.random() < 0.3:
                    spoiled = bytearray(payloads[victim])
                    for _ in range(chance.randint(1, 4)):
                        spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
                    payloads[victim] = bytes(spoiled[: chance.choice([len(spoiled), chance.randrange(len(spoiled))])])
            await peer.send(link, payloads)
            states = await peer.states(link, len(payloads))
            told = [state is ACCEPTED for state in states]
            assert told == sorted(told, reverse=True), "something was accepted behind something that was not"
            number = last
        assert await peer.states(await _plain(peer), 1) == [ACCEPTED]


async def _plain(peer: Peer) -> SenderLink:
    sender = await peer.sender("trades", "0")
    await peer.send(sender, [message(b"p")])
    return sender
