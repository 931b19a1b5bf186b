"""What became of messages: outcomes, settlement in any order, and what nobody waits for."""

from __future__ import annotations

import random

import pytest

from holdfast.amqp import (
    ACCEPTED,
    RELEASED,
    SETTLED_WITHOUT_STATE,
    ConnectionClosed,
    DeliveryState,
    Described,
    Error,
    LinkDetached,
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
from tests.unit.amqp.wire import LoopbackWire, each, frame, message, only


@pytest.mark.parametrize(
    "state",
    [
        RELEASED,
        Rejected(),
        Rejected(Error(errors.NOT_FOUND, "no partition 9", {"partition": "9"})),
        Modified(delivery_failed=True),
        Modified(True, True, {symbol("why"): "moved"}),
        SETTLED_WITHOUT_STATE,
        OtherState(0x1234, (b"more", None)),
    ],
)
def test_every_outcome_reaches_the_sender(state: DeliveryState) -> None:
    wire = LoopbackWire()
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
    wire = LoopbackWire()
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
    wire = LoopbackWire()
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
    wire = LoopbackWire()
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
    wire = LoopbackWire()
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
    wire = LoopbackWire()
    near, far = wire.consumer(snd_settle_mode=1)
    assert far.presettled
    far.send_many([message()] * 3)
    assert far.unsettled == 0
    _, answered = wire.talk()
    event = only(answered, Transfers)
    assert event.deliveries == []
    assert len(event.payloads) == 3
    assert near.credit == 97


def test_settlement_of_an_unknown_delivery_is_ignored() -> None:
    wire = LoopbackWire()
    wire.consumer()
    accepted = Described(ulong(0x24), [])
    wire.server.receive(frame(0, 0x15, [True, uint(5), uint(500), True, accepted]))
    assert wire.server.events() == []
    wire.server.receive(frame(0, 0x15, [True, uint(5), uint(4), True, accepted]))  # an empty range
    assert only(wire.server.events(), ConnectionClosed).error is not None


def test_a_state_that_is_not_final_is_not_an_outcome() -> None:
    wire = LoopbackWire()
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
    wire = LoopbackWire()
    near, far = wire.producer()
    near.send_many([message()])
    heard, _ = wire.talk()
    deliveries = only(heard, Transfers).deliveries
    far.settle(deliveries)
    with pytest.raises(UsageError):
        far.settle(deliveries)
