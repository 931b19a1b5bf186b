"""Record batches on links that have agreed to them: stored as they came, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Accepted, LinkDetached, Message, decode_message, encode_message, symbol, uint
from holdfast.records import record_batch
from holdfast.records.codec import Codec
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES
from holdfast.records.record_batch import RecordBatch
from node.listener.incoming.batch_link import MOST_UNANSWERED
from node.partition.idempotence.producer_state import REMEMBERED_EVENTS
from node.partition.raft_entry import batches_in
from tests.batches import batch_of, carried, numbered, of_bodies, promising, with_content, with_head
from tests.unit.listener.support.enveloping import ACCEPTED, RawSender
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.producing import OUT_OF_ORDER, attached, events, granted, terms
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.sending import KEY, stored
from tests.unit.listener.support.single import SingleNode

BATCHES = "holdfast:record-batches"
BOUND = {"event-streams-partition": symbol("0"), BATCHES: uint(1)}
UNREADABLE = "amqp:decode-error: the batch cannot be read: "
NOT_ONE = UNREADABLE + "it is not one data section"


def records(node: SingleNode) -> list[bytes]:
    return stored(node, "trades")["0"]


def bodies(node: SingleNode) -> list[Any]:
    return [decode_message(record).body for record in records(node)]


def last_batches(node: SingleNode) -> tuple[RecordBatch, ...]:
    """Those of the last entry."""
    group = node.logs["trades"]["0"].group
    return batches_in(group.entry(group.last_index)[1])


async def told(sender: RawSender, batch: RecordBatch) -> Any:
    """What became of it."""
    return await sender.outcome(sender.send(carried(batch), batch=False))


@pytest.mark.parametrize("codec", list(Codec))
async def test_bodies_are_the_events_that_have_them(node: SingleNode, codec: Codec) -> None:
    given = [b"event %d" % number for number in range(100)] + [b"", b"x" * 255, b"y" * 256, b"z" * 70_000]
    async with RawSender(node.port, "trades", BOUND) as sender:
        assert sender.properties[BATCHES] == 1
        assert await told(sender, of_bodies(given, codec)) == ACCEPTED
        assert await told(sender, batch_of([message(b"one")], compression=codec)) == ACCEPTED
    assert records(node) == [*map(message, given), message(b"one")]
    async with Peer(node.port) as peer:
        reader = await peer.receiver(start_at("trades", "@earliest"), credit=500)
        await peer.until(lambda: len(peer.received.get(reader, [])) == 105)
        seen = [decode_message(payload) for payload in peer.received[reader]]
    assert [one.body for one in seen] == [*given, b"one"]
    assert [one.delivery_annotations["event-streams-offset"] for one in seen] == [f"{n:016x}" for n in range(105)]


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_batch_is_stored_as_the_bytes_that_came_and_has_one_outcome(node: SingleNode, codec: Codec) -> None:
    keyed = encode_message(Message(body=b"keyed", message_annotations={KEY: "IBM"}))
    parts = [*(message(b"event %d" % number) for number in range(100)), keyed]
    sent, before = batch_of(parts, compression=codec), node.logs["trades"]["0"].group.last_index
    async with RawSender(node.port, "trades", BOUND) as sender:
        assert await told(sender, sent) == ACCEPTED
    assert node.logs["trades"]["0"].group.last_index == before + 1
    (found,) = last_batches(node)
    assert found.content == sent.content
    assert found.head == sent.head._replace(time_ms=found.head.time_ms)
    assert found.head.time_ms > 0
    assert records(node) == parts


async def test_numbered_bodies_are_stored_once_however_they_come_again(node: SingleNode) -> None:
    first, second = of_bodies([b"a", b"b", b"c"], numbers=(7, 0, 1)), of_bodies([b"d", b"e"], numbers=(7, 0, 4))
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        for batch in (first, second, first, of_bodies([b"c", b"d", b"e", b"f"], numbers=(7, 0, 3))):
            assert await told(sender, batch) == ACCEPTED
    assert bodies(node) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        assert granted(link) == (7, 0, 6)
        await peer.send(link, events(7, 0, 2, "bcdefg"))
        assert len(await peer.states(link, 6)) == 6
    assert bodies(node) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"], "as single messages they are the same events"
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        refused = await told(sender, of_bodies([b"f", b"other"], numbers=(7, 0, 6)))
        assert refused.startswith(OUT_OF_ORDER)
        assert "number 7 was used before, for another event" in refused
        assert await sender.end() == OUT_OF_ORDER


async def test_without_digests_a_batch_is_known_by_its_number_its_cut_and_its_seal(node: SingleNode) -> None:
    def cut(*given: bytes, first: int, codec: Codec = Codec.NONE) -> RecordBatch:
        return of_bodies(given, codec, (7, 0, first), digests=False)

    long = bytes(1000)
    known = (cut(b"a", b"b", first=1), cut(long, long, first=3, codec=Codec.ZSTD), cut(b"e", first=5))
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        for batch in (*known, *known, cut(long, long, first=3, codec=Codec.GZIP)):
            assert await told(sender, batch) == ACCEPTED, "the seal is that of the records, however they are compressed"
    assert bodies(node) == [b"a", b"b", long, long, b"e"]
    for other in (cut(b"a", first=1), cut(b"b", first=2), cut(b"a", b"X", first=1), cut(b"b", long, first=2)):
        async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
            assert (await told(sender, other)).startswith(OUT_OF_ORDER), "never stored twice"
    assert len(records(node)) == 5


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((8, 0, 1), "com.microsoft:argument-error: com.microsoft:producer-id is 8, but the link was granted 7"),
        ((7, 1, 1), "com.microsoft:argument-error: com.microsoft:producer-epoch is 1, but the link was granted 0"),
        ((7, 0, -5), "com.microsoft:argument-out-of-range"),
        (None, "com.microsoft:argument-error"),
    ],
)
async def test_numbers_of_a_batch_are_those_that_were_granted(
    node: SingleNode, numbers: tuple[int, int, int] | None, why: str
) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        assert (await told(sender, of_bodies([b"a"], numbers=numbers))).startswith(why)
        assert await sender.end() == why.split(": ")[0]
    assert records(node) == []


async def test_nobody_writes_in_the_name_of_a_producer_without_being_granted_it(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as owner:
        assert await told(owner, of_bodies([b"a"], numbers=(7, 0, 1))) == ACCEPTED
        async with RawSender(node.port, "trades", BOUND) as sender:
            refused = await told(sender, of_bodies([b"b"], numbers=(7, 0, 2)))
            assert refused.startswith("amqp:not-allowed")
            assert await told(sender, of_bodies([b"c"])) == ACCEPTED
        async with RawSender(node.port, "trades", BOUND | terms(8)) as other:
            refused = await told(other, of_bodies([b"b"], numbers=(7, 0, 2)))
            assert refused.startswith("com.microsoft:argument-error")
        assert await told(owner, of_bodies([b"d"], numbers=(7, 0, 2))) == ACCEPTED
    assert bodies(node) == [b"a", b"c", b"d"]


@pytest.mark.parametrize(
    "properties",
    [
        None, {BATCHES: uint(1)}, {"event-streams-partition": symbol("0")}, BOUND | {BATCHES: True},
        BOUND | {BATCHES: uint(0)},
    ],
    ids=["nothing", "agnostic", "bound", "no number", "too old"],
)  # fmt: skip
async def test_who_has_not_agreed_sends_single_messages(node: SingleNode, properties: dict[str, Any] | None) -> None:
    async with RawSender(node.port, "trades", properties) as sender:
        assert BATCHES not in sender.properties
        whole = carried(of_bodies([b"a", b"b"]))
        assert await sender.outcome(sender.send(whole, batch=False)) == ACCEPTED
    assert records(node) == [whole]


async def test_who_knows_more_versions_is_told_which_one_is_used(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND | {BATCHES: uint(9)}) as sender:
        assert sender.properties[BATCHES] == 1
        assert await told(sender, of_bodies([b"a"])) == ACCEPTED
    assert bodies(node) == [b"a"]


GOOD = of_bodies([b"a", b"b"])
WRONG_CONTENT = {
    "content checksum": (with_head(GOOD, content_checksum=1), "the checksum of a batch"),
    "seal": (with_head(GOOD, seal=1), "the seal"),
    "table too large": (with_content(GOOD, b"\0\0\0\1\0\0\0\2ab"), "have 3 bytes, but 2 are there"),
    "table too small": (with_content(GOOD, b"\0\0\0\1\0\0\0\0ab"), "have 1 bytes, but 2 are there"),
    "count": (with_head(GOOD, record_count=3, events=3), "claims 3 records"),
    "no records": (with_head(GOOD, record_count=0, events=0), "claims 0 records"),
    "codec": (with_head(GOOD, attributes=GOOD.head.attributes | 3), "compression lz4"),
    "unknown bit": (with_head(GOOD, attributes=GOOD.head.attributes | 1 << 6), "not known here"),
    "not the leader's time": (with_head(GOOD, attributes=1 << 15), "not known here"),
    "control": (batch_of([message(b"x")], control=True), "control"),
    "offset": (with_head(GOOD, base_offset=0), "place"),
    "a reader's part": (with_head(GOOD, first=1, events=1), "place"),
    "number of nobody": (with_head(GOOD, base_sequence=4), "no producer"),
    "table of a bomb": (promising(Codec.ZSTD, MAX_UNCOMPRESSED_BYTES + 1, 1000), "at most 16842752 are taken"),
    "bomb": (promising(Codec.ZSTD, 1000, 16 << 20), "does not decompress"),
    "gzip bomb": (promising(Codec.GZIP, 1000, 16 << 20), "does not decompress"),
    "fewer than promised": (promising(Codec.GZIP, 16 << 20, 1000), "does not decompress"),
    "no message": (batch_of([message(b"a"), b"no message"]), "message 1"),
    "empty message": (batch_of([b""]), "message 0"),
    "delivery annotations": (
        batch_of([encode_message(Message(body=b"x", delivery_annotations={symbol("x"): 1}))]), "delivery annotations",
    ),
}  # fmt: skip
"""What a leader refuses whoever brings it."""
FOR_THE_NODE = {
    "transactional": (with_head(GOOD, attributes=GOOD.head.attributes | 1 << 4), "transaction"),
    "transaction of somebody": (numbered([message(b"x")], 7, 0, 0, transactional=True), "transaction"),
    "time": (GOOD.stamped(5), "time"),
}
"""What only the node that serves the link can refuse: to the leader, it is what that node has written."""


@pytest.mark.parametrize(("batch", "why"), (WRONG_CONTENT | FOR_THE_NODE).values(), ids=WRONG_CONTENT | FOR_THE_NODE)
async def test_what_cannot_be_taken_is_refused_as_a_whole(node: SingleNode, batch: RecordBatch, why: str) -> None:
    before = node.logs["trades"]["0"].group.last_index
    async with RawSender(node.port, "trades", BOUND) as sender:
        refused = await told(sender, batch)
        assert refused.startswith("amqp:decode-error: ")
        assert "the batch cannot be read: " in refused
        assert why in refused
        assert node.logs["trades"]["0"].group.last_index == before, "nothing of it reaches the log"
        assert await told(sender, of_bodies([b"next"])) == ACCEPTED
    assert bodies(node) == [b"next"]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (message(b"a plain event"), UNREADABLE + "13 bytes are too few for a record batch"),
        (message(b"a plain event that is long enough" * 3), UNREADABLE + "a record batch that claims"),
        (
            encode_message(Message(body=b"x", message_annotations={KEY: "IBM"})),
            UNREADABLE + "it is not one data section",
        ),
        (b"\x00", NOT_ONE),
        (carried(GOOD)[:-1] + b"c", UNREADABLE + "the checksum of a batch"),
        (encode_message(Message(body=bytes(GOOD)[:30] + b"\1" + bytes(GOOD)[31:])), UNREADABLE + "the checksum of a"),
        (encode_message(Message(body=bytes(GOOD) * 2)), UNREADABLE + "74 bytes behind the one record batch"),
        (carried(of_bodies([b"a"], numbers=(7, 0, 1))), "amqp:not-allowed"),
    ],
    ids=["plain", "longer", "annotated", "a byte", "damaged", "damaged head", "two", "numbers"],
)
async def test_what_is_no_batch_is_refused(node: SingleNode, payload: bytes, why: str) -> None:
    async with RawSender(node.port, "trades", BOUND) as sender:
        assert (await sender.outcome(sender.send(payload, batch=False))).startswith(why)
        assert await told(sender, of_bodies([b"next"])) == ACCEPTED
    assert bodies(node) == [b"next"]


@pytest.mark.parametrize("why", ["table of a bomb", "bomb"])
async def test_a_bomb_is_never_given_more_room_than_it_said(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    asked: list[int] = []
    decompress = record_batch.decompress

    def noted(number: int, data: memoryview, size: int) -> bytes:
        asked.append(size)
        return decompress(number, data, size)

    monkeypatch.setattr(record_batch, "decompress", noted)
    async with RawSender(node.port, "trades", BOUND) as sender:
        refused = await told(sender, WRONG_CONTENT[why][0])
    assert refused.startswith("amqp:decode-error: ")
    assert refused.startswith(UNREADABLE) == (why != "bomb"), "by the link, if the table says it"
    assert asked == ([1000] if why == "bomb" else []), "once, at the leader"


async def test_all_that_a_link_has_credit_for_may_be_large_when_it_is_decompressed(node: SingleNode) -> None:
    """A peer that sends all that it has credit for at once, each of it megabytes, hears of each in the end."""
    async with Peer(node.port) as peer:
        link = peer.engine.open_sender("trades", properties=BOUND)
        await peer._opened(link)
        await peer.until(lambda: link.credit > 0)
        large = carried(of_bodies([bytes(1 << 20)] * 3, Codec.ZSTD))
        assert len(large) < 4096
        count = link.credit
        assert count <= MOST_UNANSWERED
        link.send_many([large] * count)
        await peer.flush()
        await peer.until(lambda: len(peer.outcomes.get(link, [])) == count)
        assert all(isinstance(state, Accepted) for _, state in peer.outcomes[link])
    assert node.logs["trades"]["0"].next_offset == 3 * count
    assert max(batch.size for batch in last_batches(node)) < 4096, "and is stored as it came"


async def test_what_comes_behind_a_refused_batch_of_an_idempotent_producer_is_given_back(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = peer.engine.open_sender("trades", properties=BOUND | terms(7))
        await peer._opened(link)
        await peer.until(lambda: link.credit > 12)
        good = [carried(of_bodies([bytes(3 << 20)], Codec.ZSTD, (7, 0, 1 + n))) for n in range(3)]
        behind = [carried(of_bodies([bytes(3 << 20)], Codec.ZSTD, (7, 0, 5 + n))) for n in range(9)]
        link.send_many([*good, message(b"no batch"), *behind])
        await peer.flush()
        detached = await peer.wait(LinkDetached)
    assert detached.error is not None
    assert detached.error.condition == "amqp:decode-error"
    states = [type(state).__name__ for _, state in sorted(peer.outcomes[link], key=lambda one: one[0])]
    accepted = states.count("Accepted")
    assert states == [*["Accepted"] * accepted, *["Released"] * (3 - accepted), "Rejected", *["Released"] * 9]
    assert len(records(node)) == accepted


async def test_all_that_a_producer_may_have_unanswered_is_recognised_when_it_comes_again(node: SingleNode) -> None:
    most = protocol.MOST_EVENTS_UNANSWERED
    assert most == REMEMBERED_EVENTS // 2
    whole = [of_bodies([b"x"] * 1024, numbers=(7, 0, 1 + first)) for first in range(0, most, 1024)]
    assert len(whole) <= MOST_UNANSWERED
    for _ in range(2):
        async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
            sent = [sender.send(carried(batch), batch=False) for batch in whole]
            assert {await sender.outcome(number) for number in sent} == {ACCEPTED}
        assert node.logs["trades"]["0"].next_offset == most


async def test_a_damaged_batch_of_an_idempotent_producer_ends_its_link(node: SingleNode) -> None:
    async with RawSender(node.port, "trades", BOUND | terms(7)) as sender:
        damaged = carried(of_bodies([b"a", b"b"], numbers=(7, 0, 1)))[:-1] + b"c"
        assert (await sender.outcome(sender.send(damaged, batch=False))).startswith("amqp:decode-error")
        assert await sender.end() == "amqp:decode-error"
    assert records(node) == []
