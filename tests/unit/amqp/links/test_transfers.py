"""Messages through links: sizes, cuts, order, limits, and peers that break the rules."""

from __future__ import annotations

import functools
import operator
import random

import pytest

from holdfast.amqp import (
    ACCEPTED,
    ConnectionClosed,
    Described,
    LinkDetached,
    LinkRequested,
    SenderLink,
    Settlements,
    Transfers,
    errors,
    uint,
    ulong,
)
from tests.unit.amqp.wire import LoopbackWire, RawPeer, each, frame, message, only, payloads_of


@pytest.mark.parametrize("chunk", [None, 1, 7, 1000])
def test_messages_of_all_sizes_arrive_whole_and_in_order(chunk: int | None) -> None:
    wire = LoopbackWire(server={"max_frame_size": 4096}, chunks=chunk)
    near, far = wire.producer(credit=1000)
    sizes = [1, 10, 4000, 4070, 4090, 4096, 5000, 20_000] + ([70_000, 300_000] if chunk != 1 else [])
    sent = [bytes([size % 256]) * size for size in sizes]
    numbers = near.send_many(sent)
    assert list(numbers) == list(range(len(sizes)))
    heard, _ = wire.talk()
    assert payloads_of(heard) == sent
    for event in each(heard, Transfers):
        assert event.link is far
        far.settle(event.deliveries)
    _, answered = wire.talk()
    assert only(answered, Settlements).outcomes == [(number, ACCEPTED) for number in numbers]
    assert far.unsettled == 0
    assert near.unsettled == 0


def test_random_traffic_over_random_cuts() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    wire = LoopbackWire(server={"max_frame_size": 1000}, client={"max_frame_size": 2000}, chunks=rng)
    up_near, up_far = wire.producer(credit=0)
    down_near, down_far = wire.consumer(credit=0)
    sent: dict[object, list[bytes]] = {up_far: [], down_near: []}
    got: dict[object, list[bytes]] = {up_far: [], down_near: []}
    outcomes: dict[object, set[int]] = {up_near: set(), down_far: set()}
    expected = 0
    for _ in range(60):
        for receiver in (up_far, down_near):
            receiver.grant(rng.randrange(20))
        for event in functools.reduce(operator.iadd, wire.talk(), []):
            if isinstance(event, Transfers):
                got[event.link] += event.payloads
                event.link.settle(event.deliveries)
            elif isinstance(event, Settlements):
                outcomes[event.link].update(number for number, state in event.outcomes if state is ACCEPTED)
        for sender, receiver in ((up_near, up_far), (down_far, down_near)):
            batch = [rng.randbytes(rng.choice((0, 5, 900, 1990, 6000))) for _ in range(min(sender.credit, 30))]
            settled = rng.random() < 0.3
            sender.send_many(batch, settled)
            sent[receiver] += batch
            expected += 0 if settled else len(batch)
    for _ in range(3):
        for event in functools.reduce(operator.iadd, wire.talk(), []):
            if isinstance(event, Transfers):
                got[event.link] += event.payloads
                event.link.settle(event.deliveries)
            elif isinstance(event, Settlements):
                outcomes[event.link].update(number for number, state in event.outcomes if state is ACCEPTED)
    assert got == sent, f"seed {seed}"
    assert sum(len(numbers) for numbers in outcomes.values()) == expected, f"seed {seed}"
    assert wire.client.pending_output == 0
    assert wire.server.pending_output == 0


def test_many_links_in_one_batch_are_grouped_by_link() -> None:
    wire = LoopbackWire()
    links = [wire.producer(f"log-{number}") for number in range(5)]
    for round_ in range(3):
        for near, _ in links:
            near.send_many([message(b"%d" % round_)])
    heard, _ = wire.talk()
    events = each(heard, Transfers)
    assert [event.link for event in events] == [far for _, far in links]
    for event in events:
        assert event.payloads == [message(b"0"), message(b"1"), message(b"2")]
        event.link.settle(event.deliveries)
    _, answered = wire.talk()
    assert {event.link: len(event.outcomes) for event in each(answered, Settlements)} == {near: 3 for near, _ in links}


def test_a_peer_that_ignores_credit_loses_the_link_but_not_what_it_had_credit_for() -> None:
    peer = RawPeer()
    link = peer.accepted(credit=3)
    events = peer.say(*(peer.transfer(number, message(b"%d" % number)) for number in range(5)))
    assert payloads_of(events) == [message(b"0"), message(b"1"), message(b"2")]
    gone = only(events, LinkDetached)
    assert gone.link is link
    assert gone.local
    assert gone.error is not None
    assert gone.error.condition == errors.TRANSFER_LIMIT_EXCEEDED
    link.settle(only(events, Transfers).deliveries)
    said = peer.hear()
    detach = next(fields for code, fields, _ in said if code == 0x16)
    assert detach[2].value[0] == errors.TRANSFER_LIMIT_EXCEEDED
    released = [fields for code, fields, _ in said if code == 0x15 and fields[4].descriptor == 0x26]
    assert [(fields[1], fields[2]) for fields in released] == [(3, 4)]
    events = peer.say(*(peer.transfer(number, message()) for number in range(5, 50)))
    assert events == []
    assert not peer.engine.closed
    assert each(peer.say(frame(0, 0x16, [uint(0), True])), LinkDetached) == []


def test_transfers_before_the_attach_is_answered_are_a_violation_too() -> None:
    peer = RawPeer()
    peer.open()
    peer.say(peer.attach("eager"))
    events = peer.say(peer.transfer(0, message()))
    assert payloads_of(events) == []


@pytest.mark.parametrize("cut", [True, False])
def test_a_message_above_the_limit_is_rejected_and_closes_the_link(cut: bool) -> None:
    """In front of the detach, so that a client learns which message it must not send again; what is behind it may come
    again on another link."""
    peer = RawPeer(max_message_size=10_000)
    link = peer.accepted(credit=10)
    if cut:
        large = [peer.transfer(1, bytes(1000), more=True) for _ in range(20)] + [peer.transfer(1, b"end")]
    else:
        large = [peer.transfer(1, bytes(10_001))]
    events = peer.say(peer.transfer(0, b"fits"), *large, peer.transfer(2, b"behind"))
    gone = only(events, LinkDetached)
    assert gone.link is link
    assert gone.local
    assert gone.error is not None
    assert gone.error.condition == errors.MESSAGE_SIZE_EXCEEDED
    assert payloads_of(events) == [b"fits"]
    assert link._parts == []
    assert not peer.engine.closed
    said = [(code, fields) for code, fields, _ in peer.hear() if code in (0x15, 0x16)]
    assert [code for code, _ in said] == [0x15, 0x15, 0x16], "the outcomes, then the detach"
    outcomes = {fields[1]: fields[4] for code, fields in said if code == 0x15}
    assert outcomes[1].descriptor == 0x25
    assert outcomes[1].value[0].value[0] == errors.MESSAGE_SIZE_EXCEEDED
    assert outcomes[2].descriptor == 0x26


def test_a_message_above_the_limit_that_goes_on_for_turns_is_rejected_once() -> None:
    peer = RawPeer(max_message_size=10_000)
    link = peer.accepted(credit=10)
    outcomes = []
    for _ in range(30):
        peer.say(*(peer.transfer(0, bytes(1000), more=True) for _ in range(4)))
        outcomes += [fields[4].descriptor for code, fields, _ in peer.hear() if code == 0x15]
    peer.say(peer.transfer(0, b"end"), peer.transfer(1, b"behind"))
    outcomes += [fields[4].descriptor for code, fields, _ in peer.hear() if code == 0x15]
    assert outcomes[0] == 0x25
    assert 0x25 not in outcomes[1:]
    assert not link._parts
    assert not peer.engine.closed


def test_a_message_at_the_limit_passes() -> None:
    peer = RawPeer(max_message_size=10_000)
    peer.accepted()
    assert payloads_of(peer.say(peer.transfer(0, bytes(10_000)))) == [bytes(10_000)]


def test_an_unfinished_message_is_bounded_and_finished_later() -> None:
    peer = RawPeer()
    link = peer.accepted()
    for _ in range(50):
        assert peer.say(peer.transfer(0, b"x" * 100, more=True)) == []
    assert link._parts_bytes == 5000
    events = peer.say(peer.transfer(0, b"end"), peer.transfer(1, b"next"))
    assert payloads_of(events) == [b"x" * 5000 + b"end", b"next"]


def test_an_aborted_message_is_forgotten_and_its_credit_given_back() -> None:
    peer = RawPeer()
    link = peer.accepted(credit=2)
    events = peer.say(
        peer.transfer(0, b"a"),
        peer.transfer(1, b"half", more=True),
        peer.transfer(1, b"", aborted=True),
        peer.transfer(2, b"b"),
    )
    assert payloads_of(events) == [b"a"]  # the credit was used up: the peer may send again when it hears of more
    assert only(events, LinkDetached).local
    peer = RawPeer()
    link = peer.accepted(credit=3)
    peer.say(peer.transfer(0, b"half", more=True))
    assert peer.say(peer.transfer(0, b"", aborted=True)) == []
    assert link.credit == 3
    assert payloads_of(peer.say(peer.transfer(1, b"b"))) == [b"b"]


def test_a_transfer_without_payload_is_an_empty_message() -> None:
    peer = RawPeer()
    peer.accepted()
    assert payloads_of(peer.say(peer.transfer(0, b""), peer.transfer(1, b"x"))) == [b"", b"x"]


def test_a_detach_right_behind_transfers_loses_nothing() -> None:
    wire = LoopbackWire()
    near, far = wire.producer()
    near.send_many([message(b"%d" % number) for number in range(20)])
    near.close()
    heard, _ = wire.talk()
    assert [type(event) for event in heard] == [Transfers, LinkDetached]
    assert len(payloads_of(heard)) == 20
    far.settle(only(heard, Transfers).deliveries)


@pytest.mark.parametrize("flags", [{}, {"settled": True}, {"more": True}])
@pytest.mark.parametrize("sent", [0, 3])
@pytest.mark.parametrize("closed", [False, True])
def test_a_transfer_on_a_link_on_which_we_send_ends_the_connection(
    flags: dict[str, bool], sent: int, closed: bool
) -> None:
    """proton would keep each of them, in nobody's count."""
    peer = RawPeer()
    peer.open()
    link = only(peer.say(peer.attach("raw-link", receiver=True)), LinkRequested).link
    assert isinstance(link, SenderLink)
    link.accept()
    peer.say(frame(0, 0x13, [uint(0), uint(100), uint(0), uint(100), uint(0), uint(0), uint(sent)]))
    link.send_many([message()] * sent)
    peer.hear()
    if closed:
        link.close()
    heard = peer.say(peer.transfer(0, b"m", **flags), peer.transfer(1, b"m"))
    error = only(heard, ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.NOT_ALLOWED
    assert payloads_of(heard) == []
    assert [code for code, _, _ in peer.hear()][-1:] == [0x18]


def test_a_state_after_the_final_one_is_no_transfer() -> None:
    peer = RawPeer()
    peer.open()
    link = only(peer.say(peer.attach("raw-link", receiver=True)), LinkRequested).link
    assert isinstance(link, SenderLink)
    link.accept()
    peer.say(frame(0, 0x13, [uint(0), uint(100), uint(0), uint(100), uint(0), uint(0), uint(3)]))
    link.send_many([message()] * 3)
    peer.hear()
    accepted = Described(ulong(0x24), [])
    said = [frame(0, 0x15, [True, uint(0), uint(1), settled, accepted]) for settled in (False, False, True, True)]
    assert only(peer.say(*said), Settlements).outcomes == [(0, ACCEPTED), (1, ACCEPTED)]
    assert peer.say(*said) == []
    assert only(peer.say(frame(0, 0x15, [True, uint(2), None, True, accepted])), Settlements)
    assert link.alive


@pytest.mark.parametrize("txn_id", [None, b"t"])
def test_a_message_in_pieces_arrives_as_one_and_is_answered_by_its_number(txn_id: bytes | None) -> None:
    wire = LoopbackWire(server={"max_frame_size": 4096})
    near, far = wire.producer(credit=2)
    whole, pieces = random.randbytes(20_000), [message(), b"", memoryview(random.randbytes(70_000))[3:], b"end"]
    numbers = [*near.send_many([whole], txn_id=txn_id), near.send_pieces(pieces, txn_id=txn_id)]
    assert numbers == [0, 1]
    with pytest.raises(errors.UsageError):
        near.send_pieces([b"without credit"])
    heard, _ = wire.talk()
    assert payloads_of(heard) == [whole, b"".join(pieces)]
    for event in each(heard, Transfers):
        far.settle(event.deliveries)
    _, answered = wire.talk()
    assert only(answered, Settlements).outcomes == [(number, ACCEPTED) for number in numbers]
    near.close()
    with pytest.raises(errors.UsageError):
        near.send_pieces([b"on a link that is gone"])
