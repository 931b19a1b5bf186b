"""A sender states in its flow frames how many deliveries it has made; proton believes any number."""

from __future__ import annotations

import pytest

from holdfast.amqp import LinkRequested, ReceiverLink
from tests.unit.amqp.wire import RawPeer, frame, only, uint


@pytest.mark.parametrize("count", [5, 2**31 - 3, 2**31 + 3, 2**32 - 1])
def test_no_count_keeps_the_node_from_giving_credit(count: int) -> None:
    """Found by fuzzing: what was missing up to the window did not fit into proton's number."""
    peer = RawPeer()
    peer.open()
    link = only(peer.say(peer.attach("s")), LinkRequested).link
    assert isinstance(link, ReceiverLink)
    peer.say(frame(0, 0x13, [uint(0), uint(100), uint(0), uint(100), uint(0), uint(count), uint(0)]))
    link.accept()
    assert 0 <= link.credit <= 2**31 - 1
    link.grant(2000 - link.credit)
