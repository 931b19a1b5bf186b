"""Event Hubs' batches: one transfer that holds many messages is stored as that many events, or not at all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.amqp import MalformedMessage, Message, decode_message, encode_message, symbol
from holdfast.amqp.key_partitioner import partition_index
from holdfast.records.record_batch import MAX_RECORDS, RecordBatch
from node.listener.incoming import event_hubs_batch
from node.listener.incoming.event_hubs_batch import ALIKE_MOST_BYTES, MAX_SECTIONS, Envelope, open_envelope
from tests.unit.listener.support.enveloping import ACCEPTED, RawSender, envelope
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.producing import (
    ARGUMENT_ERROR,
    OUT_OF_ORDER,
    attached,
    event,
    events,
    granted,
    terms,
)
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.sending import KEY, TARGET, stored
from tests.unit.listener.support.single import SingleNode

EMPTY = b"\x00Su\xa0\x00"
"""A data section."""

WITH_ID = b"\x00Ss\xd0\x00\x00\x00\x2a\x00\x00\x00\x01\xa1\x24346e4b54-0730-4837-5329-c8a1b2c3d4e5"
"""Properties with a message-id alone, as the Go SDK writes them."""

BOUND = {"event-streams-partition": symbol("0")}


def records(node: SingleNode, log: str = "trades", partition: str = "0") -> list[bytes]:
    return stored(node, log)[partition]


def bodies(node: SingleNode) -> list[Any]:
    return [decode_message(record).body for record in records(node)]


# ---------------------------------------------------------------- plain senders


@pytest.mark.parametrize("properties", [BOUND, None], ids=["bound", "agnostic"])
async def test_a_batch_is_so_many_events_and_one_outcome(node: SingleNode, properties: dict[str, Any] | None) -> None:
    rich = encode_message(
        Message(body=b"rich", message_annotations={"x-opt-partition-key": "k"}, application_properties={"n": 1})
    )
    async with RawSender(node.port, "trades", properties) as sender:
        sender.send(message(b"before"), batch=False)
        batch = sender.send(envelope(message(b"a"), rich, message(b"c"), durable=True), batch=True)
        after = sender.send(message(b"after"), batch=False)
        assert await sender.outcome(after) == ACCEPTED
        assert await sender.outcome(batch) == ACCEPTED
    assert records(node) == [message(b"before"), message(b"a"), rich, message(b"c"), message(b"after")]


async def test_its_events_have_consecutive_offsets_and_reach_consumers_one_by_one(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND) as sender:
        assert await sender.outcome(sender.send(envelope(*(message(b"%d" % n) for n in range(300))), batch=True))
    async with Peer(node.port) as peer:
        reader = await peer.receiver(start_at("trades", "@earliest"), credit=500)
        await peer.until(lambda: len(peer.received.get(reader, [])) == 300)
        seen = [decode_message(payload) for payload in peer.received[reader]]
    assert [one.body for one in seen] == [b"%d" % n for n in range(300)]
    assert [one.delivery_annotations["event-streams-offset"] for one in seen] == [f"{n:016x}" for n in range(300)]


async def test_a_large_batch_comes_in_many_frames_and_is_one_entry(node: SingleNode) -> None:
    replica = node.logs["trades"]["0"]
    before = replica.group.last_index
    async with RawSender(node.port, "trades", BOUND) as sender:
        parts = [message(bytes([n % 256]) * 3000) for n in range(1000)]
        assert await sender.outcome(sender.send(envelope(*parts), batch=True)) == ACCEPTED
    assert records(node) == parts
    assert replica.group.last_index == before + 1, "all or nothing"


async def test_who_announces_event_streams_sends_no_batches(node: SingleNode) -> None:
    """Looking for them costs something on every message; the message is stored as the one that it is."""
    async with RawSender(node.port, "trades", BOUND, "AMQP_EVENT_STREAMS_V1_0") as sender:
        whole = envelope(message(b"a"), message(b"b"))
        assert await sender.outcome(sender.send(whole, batch=True)) == ACCEPTED
    assert records(node) == [whole]


async def test_what_only_looks_like_a_batch_is_one_event(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND) as sender:
        whole = envelope(message(b"a"), message(b"b"))
        assert await sender.outcome(sender.send(whole, batch=False)) == ACCEPTED
    assert records(node) == [whole]


async def test_the_batch_goes_where_its_annotations_say_else_where_those_of_its_first_message_do(
    node: SingleNode,
) -> None:
    keyed = encode_message(Message(body=b"k", message_annotations={KEY: "GOOG"}))
    async with RawSender(node.port, "wide") as sender:
        sent = [
            envelope(message(b"1"), message(b"2"), message_annotations={KEY: "IBM"}),
            envelope(keyed, keyed),
            envelope(message(b"3"), message(b"4"), delivery_annotations={TARGET: symbol("2")}),
        ]
        for one in sent:
            assert await sender.outcome(sender.send(one, batch=True)) == ACCEPTED
        elsewhere = envelope(message(b"5"), encode_message(Message(body=b"6", delivery_annotations={TARGET: "1"})))
        assert (await sender.outcome(sender.send(elsewhere, batch=True))).startswith("amqp:decode-error")
        nowhere = envelope(message(b"7"), delivery_annotations={TARGET: symbol("9")})
        assert (await sender.outcome(sender.send(nowhere, batch=True))).startswith("amqp:not-found")
    logs = stored(node, "wide")
    expected: dict[str, list[bytes]] = {name: [] for name in logs}
    expected[str(partition_index("IBM", 4))] += [message(b"1"), message(b"2")]
    expected[str(partition_index("GOOG", 4))] += [keyed, keyed]
    expected["2"] += [message(b"3"), message(b"4")]
    assert logs == expected


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (encode_message(Message(body=None)), "made of data sections"),
        (message(b"no message"), "message 0 of the batch cannot be read"),
        (envelope(message(b"a"), b""), "message 1 of the batch cannot be read"),
        (envelope(message(b"a"), message(b"b")[:-1]), "message 1 of the batch cannot be read"),
        (envelope(message(b"a"), b"\x00Sp\x45"), "message 1 of the batch has no body"),
        (envelope(message(b"a"), footer={symbol("x"): 1}), "made of data sections"),
        (envelope(message(b"a"))[:-2], "the batch cannot be read"),
        (envelope(*[b"\x00Su\xa0\x00"] * (MAX_RECORDS + 1)), f"at most {MAX_RECORDS}"),
    ],
    ids=["no data", "no message", "empty", "cut off inside", "no body", "footer", "cut off", "too many"],
)
async def test_what_is_no_batch_is_refused_as_a_whole(node: SingleNode, payload: bytes, why: str) -> None:
    async with RawSender(node.port, "trades", BOUND) as sender:
        told = await sender.outcome(sender.send(payload, batch=True))
        assert told.startswith("amqp:decode-error")
        assert why in told
        assert await sender.outcome(sender.send(message(b"next"), batch=False)) == ACCEPTED
    assert records(node) == [message(b"next")]


def test_a_batch_of_too_many_messages_is_not_looked_at_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = Counter[str]()
    for name in ("section_at", "split", "decode_section"):
        monkeypatch.setattr(event_hubs_batch, name, counting(getattr(event_hubs_batch, name), name, looked_at))
    with pytest.raises(MalformedMessage, match=f"at most {MAX_RECORDS} messages"):
        open_envelope(EMPTY * (2 * MAX_RECORDS))
    assert looked_at["split"] == looked_at["decode_section"] == 0
    assert looked_at["section_at"] <= MAX_RECORDS + 8
    assert len(open_envelope(envelope(*[message()] * 1000)).messages) == 1000
    assert looked_at["section_at"] <= MAX_RECORDS + 8, "of a usual batch nothing is looked at twice"


def counting(call: Callable[..., Any], name: str, counts: Counter[str]) -> Callable[..., Any]:
    def counted(*args: Any) -> Any:
        counts[name] += 1
        return call(*args)

    return counted


@pytest.mark.parametrize("spread", [1, 4, MAX_RECORDS // 2], ids=["in one", "in four", "in thousands"])
def test_the_sections_of_its_messages_are_counted_together(spread: int) -> None:
    part = MAX_SECTIONS // spread
    assert len(open_envelope(envelope(*[EMPTY * part] * spread)).messages) == spread
    with pytest.raises(MalformedMessage, match=f"{MAX_SECTIONS} sections"):
        open_envelope(envelope(*[EMPTY * part] * spread, EMPTY))


async def test_numbers_in_a_batch_on_a_link_without_numbers_are_refused(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND) as sender:
        for payload in (
            envelope(*events(7, 0, 1, "ab")),
            envelope(message(b"a"), message_annotations=terms(7, 0, 1)),
        ):
            assert (await sender.outcome(sender.send(payload, batch=True))).startswith("amqp:not-allowed")
    assert records(node) == []


# ---------------------------------------------------------------- idempotent producers


@pytest.mark.parametrize("front", [None, terms(7, 0, 1)], ids=["bare", "numbers of the first on the envelope"])
async def test_a_numbered_batch_is_stored_once_with_its_numbers(node: SingleNode, front: Any) -> None:
    payload = envelope(*events(7, 0, 1, "abc"), **({"message_annotations": front} if front else {}))
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        assert int(sender.properties["com.microsoft:producer-id"]) == 7
        for _ in range(3):
            assert await sender.outcome(sender.send(payload, batch=True)) == ACCEPTED
        assert await sender.outcome(sender.send(event(7, 0, 4, b"d"), batch=False)) == ACCEPTED
        assert await sender.outcome(sender.send(envelope(*events(7, 0, 5, "ef")), batch=True)) == ACCEPTED
        assert await sender.outcome(sender.send(envelope(*events(7, 0, 4, "defg")), batch=True)) == ACCEPTED
    assert bodies(node) == [letter.encode() for letter in "abcdefg"]
    async with Peer(node.port) as peer:
        assert granted(await attached(peer, 7)) == (7, 0, 7)


async def test_the_numbers_of_a_batch_run_over_from_the_largest_to_zero(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        payload = envelope(*events(7, 0, 2**31 - 2, "abcd"))
        for _ in range(2):
            assert await sender.outcome(sender.send(payload, batch=True)) == ACCEPTED
    assert bodies(node) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (envelope(*events(7, 0, 4, "d"), *events(7, 0, 6, "f")), ARGUMENT_ERROR),
        (envelope(*events(7, 0, 5, "e"), *events(7, 0, 4, "d")), ARGUMENT_ERROR),
        (envelope(*events(7, 0, 4, "d"), message(b"none")), ARGUMENT_ERROR),
        (envelope(*events(7, 0, 4, "d"), *events(8, 0, 5, "e")), ARGUMENT_ERROR),
        (envelope(*events(7, 0, 4, "de"), message_annotations=terms(7, 0, 5)), ARGUMENT_ERROR),
        (envelope(*events(7, 0, 4, "de"), message_annotations=terms(7, 0, None)), ARGUMENT_ERROR),
        (envelope(*events(7, 0, 5, "ef")), OUT_OF_ORDER),
        (envelope(*events(7, 0, 1, "abX")), OUT_OF_ORDER),
        (envelope(*events(7, 0, 3, "X")), OUT_OF_ORDER),
        (envelope(*events(7, 0, 4, "de"), b"nonsense"), "amqp:decode-error"),
        (envelope(*events(7, 0, 4, "de"), delivery_annotations={TARGET: "3"}), "amqp:precondition-failed"),
    ],
    ids=[
        "a gap inside", "reordered", "one without", "another producer", "the envelope contradicts", "half of the terms",
        "a gap before it", "other bytes behind known ones", "other bytes", "nonsense", "elsewhere",
    ],
)  # fmt: skip
async def test_a_wrong_numbered_batch_is_refused_as_a_whole_and_ends_the_link(
    node: SingleNode, payload: bytes, condition: str
) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        assert await sender.outcome(sender.send(envelope(*events(7, 0, 1, "abc")), batch=True)) == ACCEPTED
        assert (await sender.outcome(sender.send(payload, batch=True))).startswith(condition)
        assert await sender.end() == condition
    assert bodies(node) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "sizes",
    [(0, 1, 100, 300), (100,) * 4, (300,) * 4, (ALIKE_MOST_BYTES,) * 2],
    ids=["any sizes", "small", "large", "too large"],
)
@pytest.mark.parametrize("front", [b"", WITH_ID], ids=["Python", "Go"])
def test_the_quick_look_at_plain_messages_finds_what_the_thorough_one_does(
    monkeypatch: pytest.MonkeyPatch, front: bytes, sizes: tuple[int, ...]
) -> None:
    """Any bytes: spoilt ones are refused by both, or read by both alike. `front`: what an SDK writes before bodies."""
    rng = random.Random(5)
    plain = front + envelope(*(front + message(rng.randbytes(size)) for size in sizes))
    alike = 0
    at_once = event_hubs_batch._alike(plain, len(front))
    assert (at_once is not None) == (len(set(sizes)) == 1 and sizes[0] < ALIKE_MOST_BYTES)
    for turn in range(2000):
        said = bytearray(plain[: rng.randrange(len(plain))] if turn % 4 == 0 else plain)
        for _ in range(rng.randrange(4)):
            if said:
                said[rng.randrange(len(said))] = rng.choice((0, 0x53, 0x75, 0xA0, 0xB0, rng.randrange(256)))
        quick = event_hubs_batch._plain_envelope(bytes(said))
        if quick is not None:
            with monkeypatch.context() as slow:
                slow.setattr(event_hubs_batch, "_plain_envelope", lambda payload: None)
                thorough = open_envelope(bytes(said))
            assert not isinstance(thorough.contents, RecordBatch)
            assert (thorough.front, thorough.contents) == (quick.front, quick.messages)
            assert as_read(thorough) == as_read(quick)
            alike += 1
    assert alike > 10


def as_read(envelope: Envelope) -> tuple[bytes, list[bytes], object, object]:
    """The batch to store, its events, and the routing."""
    sealed, *routing = event_hubs_batch.read_plain(envelope)
    sealed.afresh().check_content()
    return bytes(sealed), sealed.messages(), *routing
