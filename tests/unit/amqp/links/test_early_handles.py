"""A handle that is given to a new link while the detach of the old, refused one is still on its way."""

from __future__ import annotations

import pytest

from holdfast.amqp import ConnectionClosed, Described, Error, LinkDetached, LinkRequested, uint, ulong
from holdfast.amqp.errors import HANDLE_IN_USE
from tests.unit.amqp.wire import AMQP_HEADER, RawPeer, each, frame, frames, only

BEGUN = AMQP_HEADER + frame(0, 0x10, ["peer"]) + frame(0, 0x11, [None, uint(0), uint(100), uint(100)])


def attach(name: str, handle: int = 0) -> bytes:
    ends = [Described(ulong(0x28), []), Described(ulong(0x29), [name])]
    return frame(0, 0x12, [name, uint(handle), False, None, None, *ends, None, None, uint(0)])


def detach(handle: int = 0) -> bytes:
    return frame(0, 0x16, [uint(handle), True])


def refused_once() -> RawPeer:
    """A peer whose link on handle 0 was refused, and that has heard of it."""
    peer = RawPeer()
    only(peer.say(BEGUN, attach("first")), LinkRequested).link.refuse(Error("amqp:not-found", "no"))
    assert [code for code, _, _ in frames(peer.engine.data_to_send())][-2:] == [0x12, 0x16]
    return peer


@pytest.mark.parametrize("chunk", [1, 7, 30, 10_000])
def test_the_late_detach_is_that_of_the_old_link(chunk: int) -> None:
    peer = refused_once()
    said = attach("second") + detach() + attach("third", 1) + detach(1)
    events = [event for at in range(0, len(said), chunk) for event in peer.say(said[at : at + chunk])]
    second, third = each(events, LinkRequested)
    assert (second.link.name, third.link.name) == ("second", "third")
    assert [event.link.name for event in each(events, LinkDetached)] == ["third"]
    second.link.accept()
    assert second.link.is_open
    peer.engine.data_to_send()
    assert only(peer.say(detach()), LinkDetached).link is second.link


def test_a_second_refusal_before_the_first_detach_is_told_apart() -> None:
    peer = refused_once()
    second = only(peer.say(attach("second")), LinkRequested).link
    second.refuse(Error("amqp:not-found", "no"))
    third = only(peer.say(attach("third")), LinkRequested).link
    third.accept()
    assert not each(peer.say(detach(), detach()), LinkDetached)
    assert only(peer.say(detach()), LinkDetached).link is third
    assert not peer.engine._early.watches


def test_the_handle_of_a_link_that_lives_is_in_use() -> None:
    peer = RawPeer()
    only(peer.say(BEGUN, attach("first")), LinkRequested).link.accept()
    error = only(peer.say(attach("second")), ConnectionClosed).error
    assert error is not None
    assert error.condition == HANDLE_IN_USE


def test_a_detach_in_time_leaves_nothing_behind() -> None:
    peer = refused_once()
    peer.say(detach())
    assert not peer.engine._early.watches
    only(peer.say(attach("second")), LinkRequested).link.accept()
    assert only(peer.say(detach()), LinkDetached).link.name == "second"


def test_the_end_of_the_session_forgets_what_is_owed() -> None:
    peer = refused_once()
    only(peer.say(attach("second")), LinkRequested).link.accept()
    peer.say(frame(0, 0x17, []))
    assert not peer.engine._early.watches
