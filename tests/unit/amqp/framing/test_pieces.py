"""Input by pieces: the same events as at once, each piece a bounded piece of work."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.amqp import (
    ConnectionClosed,
    Described,
    Engine,
    LinkRequested,
    SenderLink,
    Settlements,
    Transfers,
    symbol,
    uint,
    ulong,
)
from holdfast.amqp.encoding.codec import encode_value
from holdfast.amqp.encoding.counting import count_values
from holdfast.amqp.engine.frame_input import FIRST_BYTES, PIECE_RARE_FRAMES
from holdfast.amqp.framing.disposition_range import MANY, deliveries_named
from holdfast.amqp.framing.performatives import MAX_CONTROL_VALUES
from holdfast.amqp.links.receiver_link import ReceiverLink
from tests.attacks import wire
from tests.unit.amqp.wire import RawPeer, each, frame, only


def server() -> Engine:
    engine = Engine("server", container_id="s", max_links=100_000)
    engine.receive(wire.opening())
    engine.events()
    engine.data_to_send()
    return engine


def digest(engine: Engine, told: list[str], payloads: list[bytes], pieces: list[int]) -> None:
    requested = 0
    for event in engine.events():
        if isinstance(event, Transfers):
            payloads += event.payloads
            continue
        told.append(type(event).__name__)
        if isinstance(event, LinkRequested):
            requested += 1
            event.link.accept()
            if isinstance(event.link, ReceiverLink):
                event.link.grant(2000)
    pieces.append(requested)
    while engine.data_to_send():
        pass


def stream(rng: random.Random) -> bytes:
    """Attaches, transfers of all sizes, flows and detaches of a peer that keeps the rules."""
    said, number = b"", 0
    for link in range(rng.randrange(1, 60)):
        said += wire.attach(f"l{link}", link, "trades", properties={symbol("n"): "x" * rng.randrange(400)})
        for _ in range(rng.choice((0, 3, 40))):
            said += wire.transfer(link, number, bytes(rng.choice((5, 200, 9000, 40_000))))
            number += 1
        said += wire.detach(link) * rng.randrange(2)
    return said


@pytest.mark.parametrize("seed", range(6))
def test_pieces_bring_what_the_whole_brings(seed: int) -> None:
    rng = random.Random(seed)
    said = stream(rng)
    whole, by_pieces = server(), server()
    expected: tuple[list[str], list[bytes], list[int]] = ([], [], [])
    found: tuple[list[str], list[bytes], list[int]] = ([], [], [])
    at = 0
    while at < len(said):  # the same reads of the socket
        size = rng.choice((1, 700, 5000, 262_144))
        data, at = said[at : at + size], at + size
        whole.receive(data)
        digest(whole, *expected)
        while data:
            data = data[by_pieces.receive_some(data) :]
            digest(by_pieces, *found)
    assert sorted(found[0]) == sorted(expected[0])
    assert sum(map(len, found[1])) == sum(map(len, expected[1]))
    assert len(found[1]) == len(expected[1])
    assert not by_pieces.closed


@pytest.mark.parametrize("long_form", [False, True], ids=["short-descriptors", "long-descriptors"])
def test_a_write_of_four_thousand_attaches_is_many_pieces(long_form: bool) -> None:
    said = b"".join(wire.attach(f"l{n}", 0, "trades") + wire.detach(0) for n in range(4000))
    if long_form:
        said = b"".join(wire.with_long_descriptor(frame) for frame in wire.frames(said))
    engine, pieces = server(), []
    while said:
        said = said[engine.receive_some(said) :]
        digest(engine, [], [], pieces)
    assert not engine.closed
    assert sum(pieces) == 4000
    assert max(pieces) <= PIECE_RARE_FRAMES


def test_a_peer_that_says_all_in_its_first_write_gets_no_more_of_a_turn() -> None:
    engine, pieces = Engine("server", container_id="s", max_links=10_000), []
    said = wire.opening() + b"".join(wire.attach(f"l{n}", n, "trades") for n in range(2000))
    while said:
        said = said[engine.receive_some(said) :]
        digest(engine, [], [], pieces)
    assert sum(pieces) == 2000
    assert max(pieces) <= FIRST_BYTES // 30  # of the first kilobyte, which is not looked into


def test_an_attach_of_too_many_values_is_refused_before_any_of_them_is_made() -> None:
    engine = server()
    engine.receive(wire.attach("l", 0, "trades", properties={symbol("x"): [[] for _ in range(15_000)]}))
    (closed,) = engine.events()
    assert isinstance(closed, ConnectionClosed)
    assert closed.error is not None
    assert f"{MAX_CONTROL_VALUES} values" in (closed.error.description or "")
    assert engine.kept_bytes == 0


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (None, 1),
        (7, 1),
        ("text" * 100, 1),
        ([], 1),
        ([1, 2.5, b"x", True, None], 6),
        ({"a": [1, [2, {}]], "b": symbol("s")}, 9),
        (wire.Described(wire.ulong(5), [1, 2]), 4),
        ([[] for _ in range(700)], 701),
    ],
)
def test_values_are_counted_without_being_made(value: object, count: int) -> None:
    assert count_values(encode_value(value), 10_000) == count
    assert count_values(encode_value(value), 3) == min(count, 4)


@pytest.mark.parametrize("seed", range(3))
def test_counting_ends_whatever_the_bytes_are(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        assert 0 <= count_values(rng.randbytes(rng.randrange(200)), 50) <= 51


def test_an_engine_with_many_links_is_freed_a_few_at_a_time() -> None:
    engine = server()
    engine.receive(b"".join(wire.attach(f"l{link}", link, "trades") for link in range(250)))
    assert [engine.free_some(100) for _ in range(4)] == [False, False, True, True]
    assert engine.closed
    assert not engine._scanner._data
    assert not engine._input._data


def test_a_piece_says_whether_attaches_have_ended_it() -> None:
    engine = server()
    attaches = b"".join(wire.attach(f"l{link}", link, "trades") for link in range(2 * PIECE_RARE_FRAMES))
    taken = engine.receive_some(attaches)
    assert engine.crowded
    engine.receive_some(attaches[taken:])
    assert not engine.crowded


def consumer(outstanding: int) -> RawPeer:
    """A peer that was sent so much and has settled nothing."""
    peer = RawPeer()
    peer.open()
    link = only(peer.say(peer.attach("raw-link", receiver=True)), LinkRequested).link
    assert isinstance(link, SenderLink)
    link.accept()
    peer.say(frame(0, 0x13, [uint(0), uint(10**6), uint(0), uint(100), uint(0), uint(0), uint(outstanding)]))
    link.send_many([b"m"] * outstanding)
    peer.hear()
    return peer


def disposition(first: int, last: int | None, state: Any = None, *, filler: int = 0) -> bytes:
    fields = [True, uint(first), None if last is None else uint(last), False, state, None, bytes(filler) or None]
    return frame(0, 0x15, fields[: 7 if filler else 5])


@pytest.mark.parametrize(("before", "count"), [(0, 40), (0, 300), (100, 100)])
@pytest.mark.parametrize("state", [None, Described(ulong(0x23), [uint(0), ulong(0)]), Described(ulong(0x34), [b"t"])])
@pytest.mark.parametrize("form", ["short", "long descriptor", "wide list"])
def test_dispositions_of_many_deliveries_come_in_many_pieces(before: int, count: int, state: Any, form: str) -> None:
    """Each of them is an event of proton's, for each delivery."""
    peer = consumer(50)
    said = disposition(0, 1999, state, filler=300 if form == "wide list" else 0)
    said = (wire.with_long_descriptor(said) if form == "long descriptor" else said) * count
    said = disposition(0, None) * before + said
    taken = []
    while said:
        taken.append(peer.engine.receive_some(said))
        said = said[taken[-1] :]
        peer.engine.events()
    assert len(taken) >= count // (PIECE_RARE_FRAMES + 1)
    assert not peer.engine.closed


def test_dispositions_of_few_deliveries_come_together() -> None:
    peer = consumer(1000)
    said = b"".join(disposition(n, n + 1 if n % 2 else None, Described(ulong(0x24), [])) for n in range(999))
    pieces = outcomes = 0
    while said:
        said = said[peer.engine.receive_some(said) :]
        outcomes += sum(len(event.outcomes) for event in each(peer.engine.events(), Settlements))
        pieces += 1
    assert (pieces, outcomes) == (1, 999)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ([True, uint(5)], 1), ([True, uint(5), None], 1), ([True, uint(5), uint(5)], 1), ([True, uint(0), uint(9)], 10),
        ([False, uint(300), uint(700), True], 401), ([True, uint(2**32 - 1), uint(1)], 3),
        ([True, uint(9), uint(8)], MANY),
        ([True, uint(0), uint(2**32 - 1)], MANY), ([None, uint(1)], MANY), ([True, "1", uint(2)], MANY),
        ([True, uint(1), ulong(2)], MANY), ([], MANY),
    ],
)  # fmt: skip
def test_how_many_deliveries_a_disposition_names(said: list[Any], named: int) -> None:
    body = encode_value(said)
    assert deliveries_named(b"12" + body, 2) == named
    for end in range(2, len(body)):
        assert deliveries_named(b"12" + body[:end], 2) in (1, named)


def test_a_run_of_large_transfers_does_not_carry_dispositions_of_many_deliveries() -> None:
    peer = consumer(1000)
    link = only(peer.say(peer.attach("other", 1)), LinkRequested).link
    assert isinstance(link, ReceiverLink)
    link.accept()
    link.grant(100)
    peer.hear()
    said = b"".join(peer.transfer(n, bytes(9000), handle=1) + disposition(0, 999) for n in range(50))
    pieces = 0
    while said:
        said = said[peer.engine.receive_some(said) :]
        peer.engine.events()
        pieces += 1
    assert pieces >= 10
    assert not peer.engine.closed
