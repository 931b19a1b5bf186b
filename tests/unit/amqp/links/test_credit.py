"""What bounds sending: credit, drain, the session's window, and what a link takes with it when it ends."""

from __future__ import annotations

import pytest

from holdfast.amqp import (
    Credit,
    Drained,
    LinkDetached,
    LinkRequested,
    Transfers,
    UsageError,
    uint,
)
from tests.unit.amqp.wire import LoopbackWire, RawPeer, each, frame, message, only


def test_credit_bounds_sending() -> None:
    wire = LoopbackWire()
    near, far = wire.producer(credit=3)
    assert near.credit == 3
    near.send_many([message()] * 2)
    assert near.credit == 1
    with pytest.raises(UsageError):
        near.send_many([message()] * 2)
    wire.talk()
    assert far.credit == 1
    far.grant(5)
    _, answered = wire.talk()
    assert only(answered, Credit).link is near
    assert near.credit == 6


def test_credit_already_known_is_not_reported_again() -> None:
    wire = LoopbackWire()
    near, far = wire.producer(credit=10)
    near.send_many([message()] * 5)
    heard, answered = wire.talk()
    assert each(answered, Credit) == []
    far.settle(only(heard, Transfers).deliveries)
    _, answered = wire.talk()
    assert each(answered, Credit) == []


def test_a_sender_answers_a_drain() -> None:
    wire = LoopbackWire()
    near, far = wire.consumer(credit=10)
    near.drain()
    heard, _ = wire.talk()
    assert only(heard, Credit).link is far
    assert far.drain
    far.send_many([message()] * 3)
    far.drained()
    _, answered = wire.talk()
    assert len(only(answered, Transfers).payloads) == 3
    assert only(answered, Drained).link is near
    assert near.credit == 0
    near.grant(5)
    heard, _ = wire.talk()
    assert far.credit == 5
    assert not far.drain


def test_draining_a_link_without_credit_ends_at_once() -> None:
    wire = LoopbackWire()
    near, _ = wire.consumer(credit=0)
    near.drain()
    _, answered = wire.talk()
    assert only(answered, Drained).link is near


def test_drain_ends_when_all_credit_is_used() -> None:
    wire = LoopbackWire()
    near, far = wire.consumer(credit=2)
    near.drain()
    wire.talk()
    far.send_many([message()] * 2)
    _, answered = wire.talk()
    assert only(answered, Drained).link is near


@pytest.mark.parametrize("piece", [1000, 100_000, 250_000])
def test_a_drain_ends_when_the_last_message_has_come_to_its_end(piece: int) -> None:
    wire = LoopbackWire()
    near, far = wire.consumer(credit=2)
    near.drain()
    wire.talk()
    far.send_many([bytes(200_000)] * 2)
    found: list[str] = []
    while data := wire.server.data_to_send():
        for start in range(0, len(data), piece):
            wire.client.receive(data[start : start + piece])
            found += [type(event).__name__ for event in wire.client.events()]
        wire.server.receive(wire.client.data_to_send())
    assert found.count("Drained") == 1
    assert set(found[:-1]) == {"Transfers"}, found
    assert near.credit == 0


def test_absurd_credit_is_taken_as_it_is() -> None:
    peer = RawPeer()
    peer.open()
    link = peer.say(peer.attach("r", receiver=True))[0].link  # type: ignore[union-attr]
    link.accept()
    peer.hear()
    for credit in (2**32 - 1, 2**31, 0, 7):
        peer.say(frame(0, 0x13, [uint(0), uint(100), uint(0), uint(100), uint(0), uint(0), uint(credit)]))
        assert link.credit >= 0
    assert link.credit == 7


def test_output_that_the_peer_has_no_window_for_is_counted() -> None:
    peer = RawPeer()
    peer.say(b"AMQP\x00\x01\x00\x00", frame(0, 0x10, ["raw"]))
    peer.say(frame(0, 0x11, [None, uint(0), uint(2), uint(100)]))  # incoming-window 2
    link = peer.say(peer.attach("r", receiver=True))[0].link  # type: ignore[union-attr]
    link.accept()
    peer.hear()
    peer.say(frame(0, 0x13, [uint(0), uint(2), uint(0), uint(100), uint(0), uint(0), uint(50)]))
    link.send_many([bytes(1000)] * 10)
    assert peer.engine.pending_output >= 10_000
    assert len([code for code, _, _ in peer.hear() if code == 0x14]) == 2
    assert peer.engine.pending_output == 8000
    peer.say(frame(0, 0x13, [uint(2), uint(100), uint(0), uint(100)]))
    assert len([code for code, _, _ in peer.hear() if code == 0x14]) == 8
    assert peer.engine.pending_output == 0


def test_output_comes_in_bounded_pieces() -> None:
    wire = LoopbackWire()
    _, far = wire.consumer(credit=1000)
    far.send_many([bytes(10_000)] * 300)
    held = wire.server.pending_output
    piece = wire.server.data_to_send(100_000)
    assert 100_000 <= len(piece) <= 200_000
    assert wire.server.pending_output == held - len(piece)


def test_sends_queued_when_the_peer_detaches_do_not_pile_up() -> None:
    wire = LoopbackWire()
    for _ in range(5):
        near, far = wire.consumer()
        far.send_many([bytes(1000)] * 20)
        far.send_many([bytes(1000)] * 20, settled=True)
        near.close()
        wire.server.receive(wire.client.data_to_send())
        assert only(wire.server.events(), LinkDetached).link is far
        wire.talk()
    assert wire.server.pending_output == 0


def test_sends_that_die_with_their_link_do_not_count_as_pending_for_ever() -> None:
    peer = RawPeer()
    peer.say(b"AMQP\x00\x01\x00\x00", frame(0, 0x10, ["raw"]))
    peer.say(frame(0, 0x11, [None, uint(0), uint(0), uint(100)]))  # incoming-window 0: nothing can go out
    peer.say(peer.attach("kept", 1, receiver=True))[0].link.accept()  # type: ignore[union-attr]
    for number in range(5):
        link = only(peer.say(peer.attach(f"r{number}", receiver=True)), LinkRequested).link
        link.accept()
        peer.hear()
        peer.say(frame(0, 0x13, [uint(0), uint(0), uint(0), uint(100), uint(0), uint(0), uint(50)]))
        link.send_many([bytes(2000)] * 20)
        link.send_many([bytes(2000)] * 20, settled=True)
        peer.hear()
        assert peer.engine.pending_output == 80_000
        peer.say(frame(0, 0x16, [uint(0), True]))
        peer.hear()
        assert peer.engine.pending_output == 0
