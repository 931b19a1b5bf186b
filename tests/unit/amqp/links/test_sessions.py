"""Names, handles, channels and sessions: what may be used once, again, or not at all, and how links end."""

from __future__ import annotations

import pytest

from holdfast.amqp import (
    ConnectionClosed,
    Error,
    LinkDetached,
    LinkRequested,
    SessionClosed,
    SessionOpened,
    Transfers,
    UsageError,
    errors,
    uint,
    ushort,
)
from tests.unit.amqp.wire import LoopbackWire, RawPeer, each, frame, message, only


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("ender", ["near", "far"])
def test_close_and_detach_reach_the_other_side_as_such(closed: bool, ender: str) -> None:
    wire = LoopbackWire()
    near, far = wire.consumer()
    link = near if ender == "near" else far
    error = Error(errors.DETACH_FORCED, "rebalancing")
    (link.close if closed else link.detach)(error)
    heard, answered = wire.talk()
    theirs, ours = only(heard, LinkDetached), only(answered, LinkDetached)
    receiver, initiator = (theirs, ours) if ender == "near" else (ours, theirs)
    assert receiver.error is not None
    assert receiver.error.condition == errors.DETACH_FORCED
    assert receiver.closed is closed
    assert initiator.closed is closed
    assert initiator.error is None
    assert not near.alive
    assert not far.alive


def test_a_name_can_be_used_again_after_a_detach() -> None:
    wire = LoopbackWire()
    for _ in range(3):
        near, far = wire.producer(name="same")
        near.send_many([message()])
        heard, _ = wire.talk()
        far.settle(only(heard, Transfers).deliveries)
        near.detach()
        wire.talk()


def test_the_same_name_twice_at_once_closes_the_connection() -> None:
    peer = RawPeer()
    peer.accepted()
    error = only(peer.say(peer.attach("raw-link", 1)), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.INVALID_FIELD


def test_the_same_name_in_both_directions_is_two_links() -> None:
    peer = RawPeer()
    peer.accepted()
    events = peer.say(peer.attach("raw-link", 1, receiver=True))
    assert only(events, LinkRequested).link.role == "sender"


def test_a_handle_in_use_closes_the_connection() -> None:
    peer = RawPeer()
    peer.accepted()
    error = only(peer.say(peer.attach("other", 0)), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.HANDLE_IN_USE
    assert peer.hear()[-1][0] == 0x18


@pytest.mark.parametrize("again", [None, 0])
def test_a_channel_in_use_closes_the_connection(again: int | None) -> None:
    peer = RawPeer()
    peer.open()
    channel = 0 if again is None else 1
    remote = None if again is None else ushort(again)
    error = only(peer.say(peer.begin(channel, remote)), ConnectionClosed).error
    assert error is not None


def test_handles_and_channels_can_be_used_again_once_free() -> None:
    peer = RawPeer()
    peer.open()
    for _ in range(3):
        only(peer.say(peer.attach("a", 0)), LinkRequested).link.accept()
        peer.say(frame(0, 0x16, [uint(0), True]))
        peer.say(frame(0, 0x17, []), peer.begin(0))
    assert not peer.engine.closed


def test_links_per_connection_are_limited() -> None:
    peer = RawPeer(max_links=3)
    peer.open()
    events = peer.say(*(peer.attach(f"l{number}", number) for number in range(5)))
    for request in each(events, LinkRequested):
        request.link.accept()
    assert len(each(events, LinkRequested)) == 3
    detaches = [fields for code, fields, _ in peer.hear() if code == 0x16]
    assert [fields[2].value[0] for fields in detaches] == [errors.RESOURCE_LIMIT_EXCEEDED] * 2


def test_the_end_of_a_session_ends_its_links_and_only_those() -> None:
    wire = LoopbackWire()
    session = wire.client.open_session()
    doomed, _ = wire.producer(session=session)
    kept, kept_far = wire.producer("kept")
    session.close()
    heard, answered = wire.talk()
    assert only(heard, LinkDetached).link.name == doomed.name
    assert only(answered, LinkDetached).link is doomed
    only(heard, SessionClosed)
    assert only(answered, SessionClosed).session is session
    assert not session.alive
    assert doomed.send_many([message()]) == range(0)
    kept.send_many([message()])
    heard, _ = wire.talk()
    assert only(heard, Transfers).link is kept_far
    with pytest.raises(UsageError):
        wire.client.open_sender("x", session=session)


def test_a_server_may_end_a_session_with_an_error() -> None:
    wire = LoopbackWire()
    _, far = wire.producer()
    far.session.close(Error(errors.ERRANT_LINK, "go away"))
    _, answered = wire.talk()
    assert only(answered, SessionClosed).error == Error(errors.ERRANT_LINK, "go away")
    only(answered, LinkDetached)
    near, _ = wire.producer("again")  # on a new session
    assert near.is_open


def test_channels_are_limited() -> None:
    peer = RawPeer(channel_max=3)
    peer.open()
    events = peer.say(*(peer.begin(channel) for channel in (1, 2, 3)))
    assert len(each(events, SessionOpened)) == 3
    error = only(peer.say(peer.begin(4)), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.FRAMING_ERROR


def test_a_peer_without_room_for_our_handles_is_disconnected_instead_of_wedged() -> None:
    peer = RawPeer()
    peer.say(b"AMQP\x00\x01\x00\x00", frame(0, 0x10, ["raw"]))
    peer.say(frame(0, 0x11, [None, uint(0), uint(100), uint(100), uint(0)]))  # handle-max 0: one link
    for handle in (0, 1):
        only(peer.say(peer.attach(f"l{handle}", handle)), LinkRequested).link.accept()
        peer.hear()
    error = only(peer.engine.events(), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.RESOURCE_LIMIT_EXCEEDED


def test_late_calls_on_links_of_a_closed_connection_do_nothing() -> None:
    wire = LoopbackWire()
    near, far = wire.producer()
    receiving, sending = wire.consumer("other")
    near.send_many([message()] * 3)
    heard, _ = wire.talk()
    deliveries = only(heard, Transfers).deliveries
    wire.server.receive_eof()
    only(wire.server.events(), ConnectionClosed)
    far.settle(deliveries)
    far.grant(5)
    far.drain()
    far.close()
    far.detach(Error(errors.DETACH_FORCED))
    sending.drained()
    sending.session.close()
    assert sending.send_many([message()]) == range(0)
    assert far.credit == 0
    assert receiving.is_open
