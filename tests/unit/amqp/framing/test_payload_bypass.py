"""Large transfers: their payloads go past proton, and nobody can tell."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from holdfast.amqp import (
    ConnectionClosed,
    Described,
    Event,
    LinkDetached,
    LinkRequested,
    ReceiverLink,
    Transfers,
    uint,
    ulong,
)
from holdfast.amqp.engine.frame_input import LARGE_BYTES, NUMBERS, PartedFrames, ProtonInput, payload_at
from holdfast.amqp.engine.transfer_pump import PART_BYTES
from holdfast.amqp.framing import performatives
from holdfast.amqp.framing.frame_scanner import FrameScanner
from holdfast.amqp.framing.performatives import BATCH_FORMAT
from tests.unit.amqp.wire import RawPeer, each, frame, only, payloads_of

KIB = 1024
MAX_FRAME = 64 * KIB
EMPTY = struct.pack(">IBBH", 8, 2, 0, 0)
ATTACH = b"\x00S\x12"


def body(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


class Whole(ProtonInput):
    """Gives proton everything, as it was before."""

    __slots__ = ()

    def push_parted(self, data: bytes) -> int:
        return 0


class Counting(ProtonInput):
    """Counts what proton is given."""

    __slots__ = ("given",)

    def __init__(self, transport: Any, scanner: FrameScanner) -> None:
        super().__init__(transport, scanner)
        self.given = 0

    def _feed(self, data: bytes, frames_most: int | None, missing: int) -> int:
        taken = super()._feed(data, frames_most, missing)
        self.given += taken
        return taken


def with_input(peer: RawPeer, kind: type[ProtonInput]) -> RawPeer:
    peer.engine._input = kind(peer.engine._transport, peer.engine._scanner)
    return peer


def transfer(handle: int, number: int, payload: bytes, fields: list[Any], channel: int = 0) -> bytes:
    return frame(channel, 0x14, [uint(handle), uint(number), struct.pack(">I", number), *fields], payload)


def stream(chance: random.Random) -> list[bytes]:
    """Frames of a peer that keeps the rules on three links, one of them in a session of its own; now and then a message
    is taken back, a link ends and its handle is used again."""
    peer, said, numbers, names = RawPeer(), [], [0, 0], 0
    places = [(0, 0), (0, 7), (1, 0)]
    for channel, handle in places:
        said.append(peer.attach(f"link-{names}", handle, channel=channel))
        names += 1
    for _ in range(chance.randrange(10, 60)):
        channel, handle = chance.choice(places)
        if chance.random() < 0.06:
            said.append(frame(channel, 0x16, [uint(handle), True]))
            said.append(peer.attach(f"link-{names}", handle, channel=channel))
            names += 1
            continue
        if chance.random() < 0.1:
            said.append(frame(channel, 0x13, [uint(0), uint(2048), uint(0), uint(2048)]))
        if chance.random() < 0.05:
            said.append(EMPTY)
        number = numbers[channel]
        numbers[channel] += 1
        size = chance.choice([0, 5, 300, 4000, 16_000, 60_000])
        whole, stated = body(size, number), chance.choice([0, BATCH_FORMAT])
        cuts = sorted(chance.randrange(size + 1) for _ in range(chance.choice([0, 0, 1, 3])))
        parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
        taken_back = chance.random() < 0.1
        for at, part in enumerate(parts):
            more = at < len(parts) - 1
            last: list[Any] = [None, None, False, True] if taken_back and not more else []
            form = chance.randrange(3) if at else 0
            if form == 1 and not more and not last:
                said.append(frame(channel, 0x14, [uint(handle)], part))
            elif form == 2:
                said.append(frame(channel, 0x14, [uint(handle), None, None, None, None, more, *last], part))
            else:
                said.append(
                    transfer(handle, number, part, [uint(stated), chance.choice([None, False]), more, *last], channel)
                )
    return said


def reads(said: list[bytes], chance: random.Random) -> Iterator[bytes]:
    """Of the socket, cut anywhere. Behind an attach the peer waits for credit."""
    waiting = b""
    for one in said:
        waiting += one
        if one[8:11] == ATTACH or one is said[-1]:
            while waiting:
                size = chance.choice([1, 7, 500, 5000, 40_000, 262_144])
                yield waiting[:size]
                waiting = waiting[size:]


def heard(peer: RawPeer, said: list[bytes], chance: random.Random, *, some: bool) -> list[tuple[str, bytes, bool]]:
    """What the engine tells of its messages, in order by link, and of its links."""
    told: dict[str, list[tuple[str, bytes, bool]]] = {}
    for read in reads(said, chance):
        data = read
        while data:
            taken = len(data)
            if some:
                taken = peer.engine.receive_some(data)
            else:
                peer.engine.receive(data)
            data = data[taken:]
            for event in peer.engine.events():
                note(event, told)
            peer.hear()
    assert not peer.engine.closed
    return [one for name in sorted(told) for one in told[name]]


def note(event: Event, told: dict[str, list[tuple[str, bytes, bool]]]) -> None:
    if isinstance(event, LinkRequested):
        event.link.accept()
        assert isinstance(event.link, ReceiverLink)
        event.link.grant(1000)
        told[event.link.name] = []
    elif isinstance(event, Transfers):
        name = event.link.name
        told[name] += [(name, payload, at in event.batches) for at, payload in enumerate(event.payloads)]
        event.link.settle(event.deliveries)
    elif isinstance(event, LinkDetached):
        told[event.link.name].append((event.link.name, b"detached", False))


@pytest.mark.parametrize("some", [False, True], ids=["at-once", "by-pieces"])
@pytest.mark.parametrize("seed", range(40))
def test_a_peer_cannot_tell_whether_proton_has_its_payloads(seed: int, some: bool) -> None:
    said, found = stream(random.Random(seed)), []
    for kind in (Whole, ProtonInput):
        peer = with_input(RawPeer(), kind)
        peer.open()
        peer.say(peer.begin(1))
        peer.hear()
        found.append(heard(peer, said, random.Random(seed + 1), some=some))
    assert found[0] == found[1]
    assert any(payload != b"detached" for _, payload, _ in found[0])


@pytest.mark.parametrize("size", [16 * KIB, 60 * KIB, 1024 * KIB])
@pytest.mark.parametrize("read", [8 * KIB, 256_000])
def test_proton_is_given_next_to_nothing_of_large_messages(size: int, read: int) -> None:
    peer = with_input(RawPeer(), Counting)
    counting = peer.engine._input
    assert isinstance(counting, Counting)
    peer.accepted(credit=100)
    peer.engine._scanner.watching = False
    sent, said = [body(size, number) for number in range(8)], b""
    for number, whole in enumerate(sent):
        for at in range(0, size, 60 * KIB):
            said += peer.transfer(number, whole[at : at + 60 * KIB], more=at + 60 * KIB < size)
    before, found = counting.given, []
    for at in range(0, len(said), read):
        for event in each(peer.say(said[at : at + read]), Transfers):
            found += event.payloads
    assert found == sent
    assert counting.given - before < 64 * KIB + len(said) // 20, "the first frame may come before it can be judged"


def test_small_messages_all_go_through_proton() -> None:
    peer = with_input(RawPeer(), Counting)
    counting = peer.engine._input
    assert isinstance(counting, Counting)
    peer.accepted(credit=1000)
    said = b"".join(peer.transfer(number, body(1000, number)) for number in range(300))
    before = counting.given
    assert sum(len(event.payloads) for event in each(peer.say(said), Transfers)) == 300
    assert counting.given - before == len(said)


def test_a_message_that_is_too_large_costs_the_peer_its_link_however_it_comes() -> None:
    for sizes in ([50 * KIB], [30 * KIB, 30 * KIB]):
        peer = RawPeer(max_message_size=40 * KIB)
        peer.accepted()
        parts = [
            peer.transfer(0, body(size, 1), more=at < len(sizes) - 1) for at, size in enumerate(sizes)
        ]  # fmt: skip
        detached = each(peer.say(*parts, peer.transfer(1, body(9 * KIB, 2))), LinkDetached)
        assert [event.error.condition for event in detached if event.error] == ["amqp:link:message-size-exceeded"]


def test_what_a_peer_makes_the_engine_keep_of_an_unfinished_message_is_counted_and_bounded() -> None:
    peer = RawPeer()
    link = peer.accepted()
    before = peer.engine.kept_bytes
    peer.say(peer.transfer(0, body(50 * KIB, 1), more=True))
    assert 0 <= peer.engine.kept_bytes - before - 50 * KIB <= PART_BYTES
    peer.engine.keep_limit = before + 90 * KIB
    detached = each(peer.say(peer.transfer(0, body(50 * KIB, 2), more=True)), LinkDetached)
    assert [event.error.condition for event in detached if event.error] == ["amqp:resource-limit-exceeded"]
    assert peer.engine.kept_bytes <= before + 90 * KIB or link.alive is False


def test_small_parts_of_an_unfinished_message_are_counted_for_what_they_take() -> None:
    peer = RawPeer()
    peer.accepted()
    before = peer.engine.kept_bytes
    for _ in range(1000):
        peer.say(peer.transfer(0, b"xx", more=True))
    assert peer.engine.kept_bytes - before >= 1000 * sys.getsizeof(b"xx")
    assert len(payloads_of(peer.say(peer.transfer(0, b"end")))[0]) == 2003
    assert peer.engine.kept_bytes == before


def test_messages_beyond_the_credit_cost_the_peer_its_link() -> None:
    peer = RawPeer()
    peer.accepted(credit=2)
    events = peer.say(*(peer.transfer(number, body(20 * KIB, number)) for number in range(4)))
    assert sum(len(event.payloads) for event in each(events, Transfers)) == 2
    detached = each(events, LinkDetached)
    assert [event.error.condition for event in detached if event.error] == ["amqp:link:transfer-limit-exceeded"]


def test_a_peer_that_says_a_large_frame_slowly_is_not_silent() -> None:
    peer = RawPeer(idle_timeout_s=1.0)
    peer.accepted()
    now_s = 100.0
    peer.engine.tick(now_s)
    said = peer.transfer(0, body(20 * KIB, 1)) + peer.transfer(1, body(60 * KIB, 2))
    peer.say(said[: 30 * KIB])
    for at in range(30 * KIB, len(said), 1000):
        now_s += 0.4
        peer.engine.tick(now_s)
        events = peer.say(said[at : at + 1000])
        assert not each(events, ConnectionClosed)
    assert [event.payloads for event in each(events, Transfers)] == [[body(60 * KIB, 2)]]


@pytest.mark.parametrize(
    "broken",
    [
        struct.pack(">IBBH", 9 * KIB, 1, 0, 0) + bytes(9 * KIB - 8),  # a data offset within the head
        struct.pack(">IBBH", 9 * KIB, 2, 0, 0) + bytes(9 * KIB - 8),  # no performative
        struct.pack(">IBBH", 70 * KIB, 2, 0, 0) + bytes(70 * KIB - 8),  # larger than a frame may be
        struct.pack(">IBBH", 9 * KIB, 2, 0, 0) + b"\x00S\x14\xd0\xff\xff\xff\xff" + bytes(9 * KIB - 16),
    ],
    ids=["offset", "nothing", "too-large", "list-beyond-the-frame"],
)
@pytest.mark.parametrize("cut", [0, 3, 10, 5000])
def test_a_broken_frame_ends_the_connection_as_it_did(broken: bytes, cut: int) -> None:
    found = []
    for kind in (Whole, ProtonInput):
        peer = with_input(RawPeer(), kind)
        peer.accepted()
        good = peer.transfer(0, body(9 * KIB, 1))
        said = good + broken + peer.transfer(1, body(9 * KIB, 2))
        events = peer.say(said[: len(good) + cut]) if cut else []
        events += peer.say(said[len(good) + cut if cut else 0 :])
        ended = each(events, ConnectionClosed)
        found.append((len(each(events, Transfers)), [event.error.condition for event in ended if event.error]))
    assert found[0] == found[1]


def test_a_run_ends_before_a_link_does() -> None:
    peer = RawPeer()
    large, end = peer.transfer(0, body(9 * KIB, 1)), frame(0, 0x16, [uint(0), True])
    run = PartedFrames()
    assert run.take(large + end + large, 0, MAX_FRAME, 0) == len(large)
    assert not run.unfinished


def test_a_run_ends_where_frames_get_small() -> None:
    peer = RawPeer()
    large, small = peer.transfer(0, body(LARGE_BYTES, 1)), peer.transfer(0, b"small")
    taken = PartedFrames().take(large + small * 100, 0, MAX_FRAME, 0)
    assert len(large) < taken < len(large) + 10 * len(small)


def test_a_transfer_that_is_larger_than_a_frame_may_be_is_left_to_proton() -> None:
    peer = RawPeer()
    large, too_large = peer.transfer(0, body(9 * KIB, 1)), peer.transfer(1, body(MAX_FRAME, 2))
    assert PartedFrames().take(large + too_large, 0, MAX_FRAME, 0) == len(large)
    peer.accepted()
    assert each(peer.say(large + too_large), ConnectionClosed)


@pytest.mark.parametrize("cut", [3, 40, 60, 5000])
def test_a_batch_is_recognised_in_a_frame_that_was_kept_back_and_then_left_to_proton(cut: int) -> None:
    peer = RawPeer()
    peer.accepted()
    payload = body(20 * KIB, 3)
    usual = peer.transfer(0, body(9 * KIB, 1))
    batch = peer.transfer(1, payload, stated=BATCH_FORMAT)
    unusual = batch[:8] + batch[8:11].replace(b"\x53\x14", b"\x80" + bytes(7) + b"\x14") + batch[11:]
    unusual = struct.pack(">I", len(unusual)) + unusual[4:]
    assert payload_at(unusual, 8, len(unusual)) == 0, "no client writes the descriptor like this"
    said, events, at = usual + unusual, [], len(usual)
    for read in (said[: at + cut], said[at + cut : at + cut + 100], said[at + cut + 100 :]):
        events += each(peer.say(read), Transfers)
    assert [(event.payloads, tuple(event.batches)) for event in events] == [([body(9 * KIB, 1)], ()), ([payload], (0,))]


def test_a_list_that_goes_on_behind_its_frame_is_left_to_proton() -> None:
    performative = b"\x00S\x14\xc0\x05\x01\x43"
    assert payload_at(performative + b"pay", 0, len(performative) + 3) == len(performative) + 3
    assert payload_at(performative + b"pay", 0, len(performative) + 2) == 0


def settled_then_not(peer: RawPeer) -> list[bytes]:
    more = frame(0, 0x14, [uint(0), uint(0), b"t", uint(0), True, True], b"a" * 5000)
    return [more, frame(0, 0x14, [uint(0), uint(0), b"t", uint(0), False, False], b"b" * 5000)]


def another_id(peer: RawPeer) -> list[bytes]:
    return [peer.transfer(0, b"a" * 5000, more=True), peer.transfer(1, b"b" * 5000)]


def ignored(peer: RawPeer) -> list[bytes]:
    """proton drops what comes under the id of a message that is complete."""
    parts = [peer.transfer(0, b"a" * 5000, more=True), peer.transfer(0, b"b" * 5000)]
    return [
        *parts,
        frame(0, 0x14, [uint(0)], b"c" * 5000),
        peer.transfer(1, b"d" * 5000),
        peer.transfer(2, b"e" * 5000),
    ]


def taken_back_in_words_that_proton_misreads(peer: RawPeer) -> list[bytes]:
    fields = b"\x43\x52\x01\xa0\x01t\x43BB@" + b"\x00S\x34\x00S\x24\x00S\x24\x45" + b"BA"
    performative = b"\x00S\x14\xc0" + bytes([len(fields) + 1, 10]) + fields
    odd = struct.pack(">IBBH", 8 + len(performative) + 8000, 2, 0, 0) + performative + b"nest" * 2000
    return [peer.transfer(0, b"a" * 5000), odd, peer.transfer(2, b"b" * 5000)]


def without_an_id(peer: RawPeer) -> list[bytes]:
    middle = frame(0, 0x14, [uint(0), None, None, None, None, True], b"b" * 5000)
    return [peer.transfer(0, b"a" * 5000), middle, peer.transfer(2, b"c" * 5000)]


def nothing_in_it(peer: RawPeer) -> list[bytes]:
    return [
        peer.transfer(0, b"a" * 9000),
        peer.transfer(1, b""),
        peer.transfer(2, b"", more=True),
        peer.transfer(2, b"b"),
    ]


def no_tag(peer: RawPeer) -> list[bytes]:
    return [frame(0, 0x14, [uint(0), uint(0), None, uint(BATCH_FORMAT)], b"a" * 5000)]


@pytest.mark.parametrize(
    "odd",
    [
        settled_then_not,
        another_id,
        ignored,
        taken_back_in_words_that_proton_misreads,
        without_an_id,
        nothing_in_it,
        no_tag,
    ],
)
def test_what_proton_makes_of_an_odd_peer_is_what_comes_of_it(odd: Callable[[RawPeer], list[bytes]]) -> None:
    found = []
    for kind in (Whole, ProtonInput):
        peer = with_input(RawPeer(), kind)
        peer.accepted(credit=100)
        events = peer.say(*odd(peer))
        messages = [(event.payloads, event.batches) for event in each(events, Transfers)]
        found.append((messages, [event.error for event in each(events, ConnectionClosed)]))
    assert found[0] == found[1]


def test_an_unfinished_message_on_a_control_link_is_waited_for() -> None:
    peer = RawPeer()
    link = peer.accepted(target=Described(ulong(0x30), [None]))
    assert link.in_order
    other = only(peer.say(peer.attach("other", 1)), LinkRequested).link
    other.accept()
    assert isinstance(other, ReceiverLink)
    other.grant(10)
    peer.hear()
    events = peer.say(
        peer.transfer(0, b"a" * 5000, more=True),
        peer.transfer(1, b"x" * 5000, handle=1),
        peer.transfer(0, b"b" * 5000, more=True),
    )
    events += peer.say(peer.transfer(0, b"c" * 5000))
    assert [event.payloads for event in each(events, Transfers)] == [
        [b"x" * 5000],
        [b"a" * 5000 + b"b" * 5000 + b"c" * 5000],
    ]


def test_numbers_of_payloads_begin_anew() -> None:
    peer = RawPeer()
    peer.accepted()
    peer.engine._input._number = NUMBERS - 2
    sent = [body(9 * KIB, number) for number in range(5)]
    events = peer.say(*(peer.transfer(number, payload) for number, payload in enumerate(sent)))
    assert [payload for event in each(events, Transfers) for payload in event.payloads] == sent
    assert peer.engine._input.parts == {}, "nothing is left of what was taken"


@pytest.mark.parametrize("descriptor", [b"\x53\x14", b"\x80" + bytes(7) + b"\x14"], ids=["short", "long"])
@pytest.mark.parametrize("payload", [b"", b"x"], ids=["empty", "payload"])
def test_a_frame_full_of_values_is_not_unpacked(descriptor: bytes, payload: bytes) -> None:
    """Six million of them in 60 KB: nobody needs them, and making them takes seconds."""
    array = b"\xf0" + struct.pack(">II", 5, 1024) + b"\x41"
    fields = b"\x43\x43\xa0\x01t\x70" + BATCH_FORMAT.to_bytes(4, "big") + b"BB@"
    state = b"\xd0" + struct.pack(">II", 6000 * len(array) + 4, 6000) + array * 6000
    inner = fields + state
    performative = b"\x00" + descriptor + b"\xd0" + struct.pack(">II", len(inner) + 4, 8) + inner
    said = struct.pack(">IBBH", 8 + len(performative) + len(payload), 2, 0, 0) + performative + payload
    peer = RawPeer()
    peer.accepted()
    with mock.patch.object(performatives, "decode_value", side_effect=AssertionError("it was unpacked")):
        peer.say(said)


def test_a_handle_is_a_uint() -> None:
    """proton takes any other number for 0, and two links would be one to it."""
    peer = RawPeer()
    peer.open()
    fields = ["raw", ulong(5), False, None, None, Described(ulong(0x28), ["log"]), Described(ulong(0x29), ["log"])]
    closed = only(peer.say(frame(0, 0x12, [*fields, None, None, uint(0)])), ConnectionClosed)
    assert closed.error is not None
    assert "attach" in (closed.error.description or "")
