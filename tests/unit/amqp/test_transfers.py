"""Messages through links: sizes, cuts, credit, drain, outcomes, and peers that break the rules."""

from __future__ import annotations

import functools
import operator
import random

import pytest

from holdfast.amqp import (
    ACCEPTED,
    RELEASED,
    SETTLED_WITHOUT_STATE,
    ConnectionClosed,
    Credit,
    DeliveryState,
    Described,
    Drained,
    Error,
    LinkDetached,
    LinkRequested,
    Modified,
    OtherState,
    Rejected,
    Settlements,
    Transfers,
    UsageError,
    errors,
    symbol,
    uint,
    ulong,
)
from tests.unit.amqp.wire import RawPeer, Wire, each, frame, message, only


def payloads_of(events: list) -> list[bytes]:
    return [payload for event in each(events, Transfers) for payload in event.payloads]


@pytest.mark.parametrize("chunk", [None, 1, 7, 1000])
def test_messages_of_all_sizes_arrive_whole_and_in_order(chunk: int | None) -> None:
    wire = Wire(server={"max_frame_size": 4096}, chunks=chunk)
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
    wire = Wire(server={"max_frame_size": 1000}, client={"max_frame_size": 2000}, chunks=rng)
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
    wire = Wire()
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


@pytest.mark.parametrize(
    "state",
    [
        RELEASED,
        Rejected(),
        Rejected(Error(errors.NOT_FOUND, "no partition 9", {"partition": "9"})),
        Modified(delivery_failed=True),
        Modified(True, True, {symbol("why"): "moved"}),
        SETTLED_WITHOUT_STATE,
        OtherState(0x34, (b"txn-1", None)),
    ],
)
def test_every_outcome_reaches_the_sender(state: DeliveryState) -> None:
    wire = Wire()
    near, far = wire.producer()
    near.send_many([message()] * 4)
    heard, _ = wire.talk()
    deliveries = only(heard, Transfers).deliveries
    far.settle(deliveries[:2], state)
    far.settle(deliveries[2:])
    _, answered = wire.talk()
    outcomes = dict(only(answered, Settlements).outcomes)
    assert outcomes == {0: state, 1: state, 2: ACCEPTED, 3: ACCEPTED}


def test_a_server_does_not_unpack_what_a_consumer_attaches_to_an_outcome() -> None:
    wire = Wire()
    near, far = wire.consumer()
    far.send_many([message()] * 2)
    _, answered = wire.talk()
    deliveries = only(answered, Transfers).deliveries
    near.settle(deliveries[:1], Rejected(Error(errors.INTERNAL_ERROR, "no", {"a": [1] * 100})))
    near.settle(deliveries[1:], Modified(True, annotations={"a": 1}))
    heard, _ = wire.talk()
    outcomes = only(heard, Settlements).outcomes
    assert outcomes == [(0, Rejected(Error(errors.INTERNAL_ERROR, "no"))), (1, Modified(True))]


def test_thousands_are_settled_in_one_frame() -> None:
    wire = Wire()
    near, far = wire.producer(credit=5000)
    near.send_many([message()] * 5000)
    wire.exchange()
    for event in each(wire.server.events(), Transfers):
        far.settle(event.deliveries)
    answer = wire.server.data_to_send()
    assert len(answer) < 100
    wire.client.receive(answer)
    assert len(only(wire.client.events(), Settlements).outcomes) == 5000


def test_deliveries_can_be_settled_in_any_order_and_after_a_detach() -> None:
    seed = random.randrange(2**32)
    wire = Wire()
    near, far = wire.producer()
    near.send_many([message()] * 50)
    heard, _ = wire.talk()
    deliveries = only(heard, Transfers).deliveries
    random.Random(seed).shuffle(deliveries)
    for delivery in deliveries[:25]:
        far.settle([delivery])
    _, answered = wire.talk()
    assert sum(len(event.outcomes) for event in each(answered, Settlements)) == 25, f"seed {seed}"
    near.close()
    heard, _ = wire.talk()
    assert only(heard, LinkDetached).link is far
    assert far.unsettled == 25
    far.settle(deliveries[25:])
    assert far.unsettled == 0
    again, _ = wire.producer("again")
    assert again.is_open


def test_presettled_messages_need_no_answer() -> None:
    wire = Wire()
    for settled_by, options in ((True, {}), (None, {"snd_settle_mode": 1})):
        near, far = wire.producer(**options)
        assert near.send_many([message()] * 10, settled_by if settled_by else True) is not None
        heard, _ = wire.talk()
        event = only(heard, Transfers)
        assert len(event.payloads) == 10
        far.settle(event.deliveries)
        assert far.unsettled == 0
        _, answered = wire.talk()
        assert each(answered, Settlements) == []


def test_a_consumer_that_asks_for_settled_sends_gets_them() -> None:
    wire = Wire()
    near, far = wire.consumer(snd_settle_mode=1)
    assert far.presettled
    far.send_many([message()] * 3)
    assert far.unsettled == 0
    _, answered = wire.talk()
    event = only(answered, Transfers)
    assert event.deliveries == []
    assert len(event.payloads) == 3
    assert near.credit == 97


def test_credit_bounds_sending() -> None:
    wire = Wire()
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
    wire = Wire()
    near, far = wire.producer(credit=10)
    near.send_many([message()] * 5)
    heard, answered = wire.talk()
    assert each(answered, Credit) == []
    far.settle(only(heard, Transfers).deliveries)
    _, answered = wire.talk()
    assert each(answered, Credit) == []


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
def test_a_message_above_the_limit_closes_the_link(cut: bool) -> None:
    peer = RawPeer(max_message_size=10_000)
    link = peer.accepted()
    if cut:
        events = peer.say(*(peer.transfer(0, bytes(1000), more=True) for _ in range(20)))
    else:
        events = peer.say(peer.transfer(0, bytes(10_001)))
    gone = only(events, LinkDetached)
    assert gone.link is link
    assert gone.local
    assert gone.error is not None
    assert gone.error.condition == errors.MESSAGE_SIZE_EXCEEDED
    assert payloads_of(events) == []
    assert link._parts == []
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


def test_a_sender_answers_a_drain() -> None:
    wire = Wire()
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
    wire = Wire()
    near, _ = wire.consumer(credit=0)
    near.drain()
    _, answered = wire.talk()
    assert only(answered, Drained).link is near


def test_drain_ends_when_all_credit_is_used() -> None:
    wire = Wire()
    near, far = wire.consumer(credit=2)
    near.drain()
    wire.talk()
    far.send_many([message()] * 2)
    _, answered = wire.talk()
    assert only(answered, Drained).link is near


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
    wire = Wire()
    _, far = wire.consumer(credit=1000)
    far.send_many([bytes(10_000)] * 300)
    held = wire.server.pending_output
    piece = wire.server.data_to_send(100_000)
    assert 100_000 <= len(piece) <= 200_000
    assert wire.server.pending_output == held - len(piece)


def test_settlement_of_an_unknown_delivery_is_ignored() -> None:
    wire = Wire()
    wire.consumer()
    accepted = Described(ulong(0x24), [])
    wire.server.receive(frame(0, 0x15, [True, uint(5), uint(500), True, accepted]))
    assert wire.server.events() == []
    wire.server.receive(frame(0, 0x15, [True, uint(5), uint(4), True, accepted]))  # an empty range
    assert only(wire.server.events(), ConnectionClosed).error is not None


def test_a_state_that_is_not_final_is_not_an_outcome() -> None:
    wire = Wire()
    _, far = wire.consumer()
    far.send_many([message()])
    wire.talk()
    received = Described(ulong(0x23), [uint(0), ulong(0)])
    wire.server.receive(frame(0, 0x15, [True, uint(0), None, False, received]))
    assert wire.server.events() == []
    assert far.unsettled == 1
    wire.server.receive(frame(0, 0x15, [True, uint(0), None, False, Described(ulong(0x24), [])]))
    assert only(wire.server.events(), Settlements).outcomes == [(0, ACCEPTED)]


def test_settling_twice_is_noticed() -> None:
    wire = Wire()
    near, far = wire.producer()
    near.send_many([message()])
    heard, _ = wire.talk()
    deliveries = only(heard, Transfers).deliveries
    far.settle(deliveries)
    with pytest.raises(UsageError):
        far.settle(deliveries)


def test_a_detach_right_behind_transfers_loses_nothing() -> None:
    wire = Wire()
    near, far = wire.producer()
    near.send_many([message(b"%d" % number) for number in range(20)])
    near.close()
    heard, _ = wire.talk()
    assert [type(event) for event in heard] == [Transfers, LinkDetached]
    assert len(payloads_of(heard)) == 20
    far.settle(only(heard, Transfers).deliveries)


def test_sends_queued_when_the_peer_detaches_do_not_pile_up() -> None:
    wire = Wire()
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
