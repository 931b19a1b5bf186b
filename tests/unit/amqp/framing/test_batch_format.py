"""Which messages came in Event Hubs' format of batches: their transfers state it, and proton does not tell."""

from __future__ import annotations

import random

import pytest

from holdfast.amqp import Transfers, uint, ulong
from holdfast.amqp.framing.performatives import BATCH_FORMAT
from tests.unit.amqp.wire import RawPeer, each, frame, message

STATED = b"\x70\x80\x01\x37\x00"


def seen(events: list[Transfers]) -> list[tuple[bytes, bool]]:
    """Each payload, and whether it is told to be a batch."""
    return [(payload, at in event.batches) for event in events for at, payload in enumerate(event.payloads)]


def test_a_transfer_that_states_the_format_is_told_apart() -> None:
    peer = RawPeer()
    peer.accepted()
    sent = [(message(b"%d" % number), number in (1, 3, 4)) for number in range(6)]
    heard = peer.say(
        *(
            peer.transfer(number, payload, stated=BATCH_FORMAT if batch else 0)
            for number, (payload, batch) in enumerate(sent)
        )
    )
    assert seen(each(heard, Transfers)) == sent
    assert not peer.engine._scanner.batches


@pytest.mark.parametrize("seed", range(20))
def test_it_is_recognised_however_the_bytes_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    peer = RawPeer()
    peer.accepted(credit=200)
    sent, stream = [], b""
    for number in range(60):
        batch, payload = chance.random() < 0.3, message(chance.choice([b"x" * 20, STATED * 9, bytes(9000)]))
        sent.append((payload, batch))
        stated = BATCH_FORMAT if batch else 0
        cut = chance.randrange(len(payload)) if chance.random() < 0.4 else 0
        if cut:
            stream += peer.transfer(number, payload[:cut], more=True, stated=stated)
            stream += peer.transfer(number, payload[cut:], stated=chance.choice([None, stated]))
        else:
            stream += peer.transfer(number, payload, stated=stated)
    heard: list[Transfers] = []
    while stream:
        size = chance.choice([1, 2, 3, 4, 5, 7, 30, 300, 3000])
        heard += each(peer.say(stream[:size]), Transfers)
        stream = stream[size:]
    assert seen(heard) == sent
    assert not peer.engine._scanner.batches, "nothing is left of what was taken"


def test_links_are_kept_apart_though_their_tags_are_the_same() -> None:
    peer = RawPeer()
    peer.accepted()
    other = peer.say(peer.attach("other", 1))[0].link  # type: ignore[union-attr]
    other.accept()
    other.grant(10)
    peer.hear()
    heard = peer.say(
        peer.transfer(0, message(b"plain"), handle=0),
        frame_of_second_link(peer, b"batch"),
    )
    assert [(event.link.name, event.batches) for event in each(heard, Transfers)] == [
        ("raw-link", ()),
        ("other", (0,)),
    ]


def frame_of_second_link(peer: RawPeer, body: bytes) -> bytes:
    return peer.transfer(1, message(body), handle=1, stated=BATCH_FORMAT).replace(b"\xa0\x011", b"\xa0\x010")


def test_who_does_not_watch_is_not_told() -> None:
    peer = RawPeer()
    peer.accepted()
    peer.engine.watch_for_batches(False)
    heard = peer.say(peer.transfer(0, message(), stated=BATCH_FORMAT))
    assert seen(each(heard, Transfers)) == [(message(), False)]


def test_a_batch_that_is_taken_back_leaves_nothing_behind() -> None:
    peer = RawPeer()
    link = peer.accepted()
    peer.say(peer.transfer(0, message(b"half")[:5], more=True, stated=BATCH_FORMAT))
    peer.say(peer.transfer(0, b"", aborted=True, stated=None))
    heard = peer.say(peer.transfer(1, message(b"whole")))
    assert seen(each(heard, Transfers)) == [(message(b"whole"), False)]
    assert not peer.engine._scanner.batches
    link.close()
    peer.say(peer.transfer(2, message(b"late"), stated=BATCH_FORMAT))
    assert not peer.engine._scanner.batches, "what comes on a closed link is not remembered"


def test_what_is_noted_of_a_link_goes_with_its_messages_however_its_handle_is_written() -> None:
    """proton takes a handle that is no uint for 0."""
    peer = RawPeer()
    peer.accepted(credit=10)
    for number, handle in enumerate((uint(0), ulong(7), None)):
        fields = [handle, uint(number), b"%d" % number, uint(BATCH_FORMAT), False, False]
        assert seen(each(peer.say(frame(0, 0x14, fields, message())), Transfers)) == [(message(), True)]
    assert peer.engine._scanner.batches == {}
