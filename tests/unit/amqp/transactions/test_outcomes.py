"""Outcomes inside transactions: settled, left open, changed after an abort, garbled."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import (
    ACCEPTED,
    RELEASED,
    SETTLED_WITHOUT_STATE,
    Declared,
    DeliveryState,
    Described,
    Error,
    LinkDetached,
    Modified,
    OtherState,
    Rejected,
    SenderLink,
    Settlements,
    Transactional,
    Transfers,
    UsageError,
    errors,
    symbol,
    uint,
    ulong,
)
from tests.unit.amqp.transactions.support import (
    ACCEPTED_VALUE,
    GARBAGE,
    OTHER,
    SYMBOL,
    TXN,
    disposition,
    outcomes,
    state,
)
from tests.unit.amqp.wire import LoopbackWire, RawPeer, each, frame, message, only

INNER = [
    None,
    ACCEPTED,
    RELEASED,
    Rejected(),
    Rejected(Error(errors.NOT_FOUND, "no partition 9", {"partition": "9"})),
    Modified(delivery_failed=True),
    Modified(True, True, {symbol("why"): "moved"}),
    OtherState(0x1234, (ulong(7), uint(2), "x")),
]


@pytest.mark.parametrize("outcome", INNER)
def test_outcomes_inside_a_transaction_reach_our_sender(outcome: Any) -> None:
    wire = LoopbackWire()
    near, far = wire.producer()
    near.send_many([message()] * 3, txn_id=TXN)
    heard, _ = wire.talk()
    far.settle(only(heard, Transfers).deliveries, Transactional(TXN, outcome))
    _, answered = wire.talk()
    assert only(answered, Settlements).outcomes == [(number, Transactional(TXN, outcome)) for number in range(3)]
    assert near.unsettled == 0
    assert far.unsettled == 0


def test_our_consumer_settles_in_a_transaction_and_the_node_is_told() -> None:
    wire = LoopbackWire()
    near, far = wire.consumer()
    far.send_many([message()] * 5)
    _, answered = wire.talk()
    deliveries = only(answered, Transfers).deliveries
    near.settle(deliveries[:2], Transactional(TXN, ACCEPTED))
    near.settle(deliveries[2:3], Transactional(OTHER, RELEASED))
    near.settle(deliveries[3:4], Transactional(TXN, Modified(True, annotations={"a": 1})))
    near.settle(deliveries[4:], Transactional(TXN, Rejected(Error(errors.INTERNAL_ERROR, "no", {"a": [1] * 100}))))
    heard, _ = wire.talk()
    assert outcomes(heard) == [
        (0, Transactional(TXN, ACCEPTED)),
        (1, Transactional(TXN, ACCEPTED)),
        (2, Transactional(OTHER, RELEASED)),
        (3, Transactional(TXN, Modified(True))),  # a server does not take over what a client attaches
        (4, Transactional(TXN, Rejected(Error(errors.INTERNAL_ERROR, "no")))),
    ]
    assert far.unsettled == 0


def consumer(count: int = 4) -> tuple[LoopbackWire, SenderLink]:
    """A server's sender with `count` unsettled deliveries, whose receiver is played by hand."""
    wire = LoopbackWire()
    _, far = wire.consumer()
    far.send_many([message()] * count)
    wire.talk()
    return wire, far


@pytest.mark.parametrize("inner", [ulong(0x24), symbol("amqp:accepted:list")])
def test_what_is_not_settled_stays_open_until_the_owner_settles_it(inner: Any) -> None:
    wire, far = consumer()
    said = state([TXN, Described(inner, [])])
    wire.server.receive(disposition(0, said, settled=False, last=2))
    assert outcomes(wire.server.events()) == [(number, Transactional(TXN, ACCEPTED, False)) for number in range(3)]
    assert far.unsettled == 4
    far.settle([0, 1], Transactional(TXN, ACCEPTED))
    far.settle([2])
    assert far.unsettled == 1
    answers = [fields for code, fields, _ in RawPeer(wire.server).hear() if code == 0x15]
    assert [(fields[0], fields[1], fields[3]) for fields in answers] == [(False, n, True) for n in range(3)]
    assert answers[0][4].value == [TXN, ACCEPTED_VALUE]
    far.settle([0, 1, 2, 3, 77])  # settled, never open, never sent: nothing
    assert far.unsettled == 1
    assert RawPeer(wire.server).hear() == []
    wire.server.receive(disposition(0, Described(ulong(0x26), []), settled=True, last=2))
    assert outcomes(wire.server.events()) == []


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (Described(ulong(0x26), []), RELEASED),
        (Described(ulong(0x27), [True]), Modified(True)),
        (ACCEPTED_VALUE, ACCEPTED),
    ],
)
def test_what_follows_an_abort_is_told(settled: bool, value: Any, meaning: DeliveryState) -> None:
    wire, far = consumer()
    wire.server.receive(disposition(1, state([TXN, ACCEPTED_VALUE]), settled=False))
    wire.server.events()
    wire.server.receive(disposition(1, value, settled=settled))
    assert outcomes(wire.server.events()) == [(1, meaning)]
    assert far.unsettled == 3
    far.settle([1])  # late
    assert far.unsettled == 3


def test_a_delivery_may_go_from_one_transaction_to_another_and_be_settled_last() -> None:
    wire, far = consumer()
    for txn_id, settled in ((TXN, False), (OTHER, False), (OTHER, True)):
        wire.server.receive(disposition(0, state([txn_id, ACCEPTED_VALUE]), settled=settled))
        assert outcomes(wire.server.events()) == [(0, Transactional(txn_id, ACCEPTED, settled))]
    assert far.unsettled == 3
    wire.server.receive(disposition(1, state([TXN, ACCEPTED_VALUE]), settled=False))
    wire.server.events()
    wire.server.receive(disposition(1, None, settled=True))  # says no more than that it has settled
    assert outcomes(wire.server.events()) == [(1, Transactional(TXN, ACCEPTED, True))]


def test_settled_deliveries_of_a_link_can_be_sent_again_under_the_same_memory() -> None:
    wire, far = consumer(2)
    for round_number in range(40):
        first = round_number * 2
        said = disposition(first, state([TXN, ACCEPTED_VALUE]), settled=False, last=first + 1)
        wire.server.receive(said)
        assert sorted(number for number, _ in outcomes(wire.server.events())) == [first, first + 1]
        far.settle([first])
        wire.server.receive(disposition(first + 1, Described(ulong(0x26), []), settled=True))
        assert outcomes(wire.server.events()) == [(first + 1, RELEASED)]
        while wire.server.data_to_send():
            pass
        assert far.unsettled == 0
        far.send_many([message()] * 2)
        while wire.server.data_to_send():
            pass


def test_settling_what_awaits_a_transaction_after_the_link_is_gone_does_nothing() -> None:
    wire, far = consumer()
    wire.server.receive(disposition(0, state([TXN, ACCEPTED_VALUE]), settled=False))
    wire.server.receive(frame(0, 0x16, [uint(0), True]))
    only(wire.server.events(), LinkDetached)
    far.settle([0])
    assert far.unsettled == 0


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        *GARBAGE,
        [TXN, TXN],
        [TXN, Described(symbol("amqp:unheard-of:list"), [])],
        [TXN, Described(ulong(0x25), ["no error"])],
        [TXN, Described(ulong(0x25), [Described(ulong(0x1D), [None])])],
        [TXN, Described(ulong(0x24), "no list")],
        "txn-1",
    ],
)
def test_a_disposition_that_cannot_be_read_costs_the_link(fields: Any, settled: bool) -> None:
    wire, far = consumer()
    wire.server.receive(
        disposition(0, ACCEPTED_VALUE, settled=True)
        + disposition(1, state(fields), settled=settled)
        + disposition(2, ACCEPTED_VALUE, settled=True)
    )
    events = wire.server.events()
    assert outcomes(events) == [(0, ACCEPTED), (2, ACCEPTED)]
    gone = only(events, LinkDetached)
    assert gone.link is far
    assert gone.local
    assert gone.error is not None
    assert gone.error.condition == errors.INVALID_FIELD


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("chunk", [1, 10_000])
def test_a_disposition_that_names_a_transaction_under_a_symbol_is_refused(settled: bool, chunk: int) -> None:
    wire, far = consumer()
    said = disposition(0, state([TXN, ACCEPTED_VALUE], SYMBOL), settled=settled)
    for at in range(0, len(said), chunk):
        wire.server.receive(said[at : at + chunk])
    events = wire.server.events()
    assert outcomes(events) == []
    gone = only(events, LinkDetached)
    assert gone.link is far
    assert gone.error is not None
    assert gone.error.condition == errors.NOT_IMPLEMENTED


def test_other_states_under_symbols_come_without_a_state_as_before() -> None:
    wire, far = consumer()
    wire.server.receive(disposition(0, Described(symbol("amqp:accepted:list"), []), settled=False))
    assert outcomes(wire.server.events()) == []
    wire.server.receive(disposition(0, Described(symbol("amqp:rejected:list"), []), settled=True))
    assert outcomes(wire.server.events()) == [(0, SETTLED_WITHOUT_STATE)]
    assert far.alive


def test_our_own_mistakes_are_told_to_the_caller() -> None:
    wire = LoopbackWire()
    near, far = wire.producer()
    near.send_many([message()])
    heard, _ = wire.talk()
    deliveries = only(heard, Transfers).deliveries
    for wrong in (Transactional(b"x" * 33), Declared(b"x" * 33), Transactional(TXN, ACCEPTED, settled=False)):
        with pytest.raises(UsageError):
            far.settle(deliveries, wrong)
    with pytest.raises(UsageError):
        near.send_many([message()], txn_id=b"x" * 33)
    wire.talk()
    far.settle(deliveries)
    assert far.unsettled == 0
    _, answered = wire.talk()
    assert outcomes(answered) == [(0, ACCEPTED)]


def test_a_link_that_the_owner_has_closed_is_not_closed_again_over_a_state() -> None:
    wire, far = consumer()
    far.close()
    wire.server.receive(disposition(0, state([]), settled=True))
    assert each(wire.server.events(), LinkDetached) == []
    wire.server.receive(frame(0, 0x16, [uint(0), True]))
    assert not only(wire.server.events(), LinkDetached).local
