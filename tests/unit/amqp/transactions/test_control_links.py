"""Control links: attaching to a coordinator, declare and discharge, and the order of what is told."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import (
    Coordinator,
    Declared,
    Described,
    Error,
    LinkDetached,
    LinkOpened,
    LinkRequested,
    ReceiverLink,
    Rejected,
    SenderLink,
    Settlements,
    Source,
    Transfers,
    errors,
    symbol,
    uint,
    ulong,
)
from holdfast.amqp.transactions import (
    DISTRIBUTED_TRANSACTIONS,
    LOCAL_TRANSACTIONS,
    MULTI_TXNS_PER_SSN,
    Declare,
    Discharge,
    decode_control,
    encode_declare,
    encode_discharge,
)
from tests.unit.amqp.transactions.support import (
    ACCEPTED_VALUE,
    OTHER,
    SYMBOL,
    TXN,
    control,
    disposition,
    outcomes,
    state,
    told,
    transfer,
)
from tests.unit.amqp.wire import LoopbackWire, RawPeer, each, frame, message, only, payloads_of


def test_a_whole_transaction_between_two_engines() -> None:
    wire = LoopbackWire()
    rejected = ("amqp:accepted:list", "amqp:rejected:list")
    near_control = wire.client.open_sender(
        Coordinator((LOCAL_TRANSACTIONS, DISTRIBUTED_TRANSACTIONS)),
        source=Source(outcomes=rejected),
        properties={"x-opt-transactional-id": "trades-1", "x-opt-transaction-timeout": uint(5000)},
    )
    heard, _ = wire.talk()
    far_control = only(heard, LinkRequested).link
    assert isinstance(far_control, ReceiverLink)
    assert far_control.wants_coordinator
    assert far_control.remote_target == Coordinator((LOCAL_TRANSACTIONS, DISTRIBUTED_TRANSACTIONS))
    assert far_control.remote_source == Source(outcomes=rejected)
    assert far_control.remote_properties["x-opt-transactional-id"] == "trades-1"
    far_control.accept(target=Coordinator((LOCAL_TRANSACTIONS,)), properties={"x-opt-transaction-timeout": uint(1000)})
    far_control.grant(2)
    _, answered = wire.talk()
    assert only(answered, LinkOpened).link is near_control
    assert near_control.remote_target == Coordinator((LOCAL_TRANSACTIONS,))
    assert near_control.remote_properties == {"x-opt-transaction-timeout": 1000}
    assert near_control.remote_max_message_size == far_control.max_message_size
    assert far_control.remote_max_message_size == near_control.max_message_size

    near_control.send_many([encode_declare()])
    heard, _ = wire.talk()
    event = only(heard, Transfers)
    assert decode_control(event.payloads[0]) == Declare()
    far_control.settle(event.deliveries, Declared(TXN))
    _, answered = wire.talk()
    assert outcomes(answered) == [(0, Declared(TXN))]

    near_control.send_many([encode_discharge(TXN, fail=False)])
    heard, _ = wire.talk()
    event = only(heard, Transfers)
    assert decode_control(event.payloads[0]) == Discharge(TXN, fail=False)
    refusal = Rejected(Error(errors.TRANSACTION_ROLLBACK, "a message was refused"))
    far_control.settle(event.deliveries, refusal)
    _, answered = wire.talk()
    assert outcomes(answered) == [(1, refusal)]
    assert near_control.unsettled == 0


@pytest.mark.parametrize("target", [ulong(0x30), symbol("amqp:coordinator:list")])
@pytest.mark.parametrize(
    ("capabilities", "read"),
    [
        ([], ()),
        ([symbol(LOCAL_TRANSACTIONS)], (LOCAL_TRANSACTIONS,)),
    ],
)
def test_a_coordinator_may_be_asked_for_in_any_way(target: Any, capabilities: list[Any], read: tuple[str, ...]) -> None:
    peer = RawPeer()
    peer.open()
    asked = peer.attach("c", target=Described(target, capabilities), source=Described(ulong(0x28), []))
    link = only(peer.say(asked), LinkRequested).link
    assert isinstance(link, ReceiverLink)
    assert link.remote_target == Coordinator(read)
    link.accept(target=Coordinator((LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN)))
    link.grant(2)
    (attach, answer, _), *_ = peer.hear()
    assert attach == 0x12
    assert answer[6].descriptor == 0x30
    assert list(answer[6].value[0].elements) == [LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN]
    assert told(peer.say(transfer(0, encode_declare()))) == [(encode_declare(), None)]


@pytest.mark.parametrize(
    ("source", "takes"),
    [
        ([], True),
        (["a", *[None] * 8, [symbol("amqp:accepted:list")]], True),  # a list where an array belongs: read as one
        (["a", *[None] * 8, symbol("amqp:accepted:list")], False),
        (["a", *[None] * 8, symbol("amqp:rejected:list")], True),
    ],
)
def test_whether_a_source_takes_rejected(source: list[Any], takes: bool) -> None:
    peer = RawPeer()
    peer.open()
    asked = peer.attach("c", target=Described(ulong(0x30), []), source=Described(ulong(0x28), source))
    link = only(peer.say(asked), LinkRequested).link
    assert link.takes_rejected is (takes and not (source and isinstance(source[-1], list)))


def test_what_was_sent_before_a_discharge_is_told_before_it() -> None:
    peer = RawPeer()
    peer.accepted(credit=10)
    control(peer)
    other = encode_discharge(OTHER, fail=False)
    discharge = encode_discharge(TXN, fail=False)
    heard = peer.say(
        transfer(0, b"a", of=state([TXN])),
        transfer(1, other, handle=9),
        transfer(2, b"b", of=state([TXN])),
        transfer(3, discharge, handle=9),
        transfer(4, encode_declare(), handle=9),
    )
    said = [payload for payload, _ in told(heard)]
    assert sorted(said) == sorted([b"a", b"b", other, discharge, encode_declare()])
    assert said.index(b"b") < said.index(discharge) < said.index(encode_declare())
    assert said.index(b"a") < said.index(other) < said.index(discharge)


def test_dispositions_before_a_discharge_are_told_before_it() -> None:
    peer = RawPeer()
    peer.open()
    far = only(peer.say(peer.attach("r", 1, receiver=True)), LinkRequested).link
    assert isinstance(far, SenderLink)
    far.accept()
    control(peer)
    peer.say(frame(0, 0x13, [uint(0), uint(100), uint(0), uint(100), uint(1), uint(0), uint(5)]))
    far.send_many([message()] * 2)
    peer.hear()
    heard = peer.say(
        transfer(0, encode_discharge(OTHER, fail=False), handle=9),
        disposition(0, state([TXN, ACCEPTED_VALUE]), settled=True),
        transfer(1, encode_discharge(TXN, fail=False), handle=9),
    )
    kinds = [type(event) for event in heard]
    assert kinds.index(Settlements) < len(kinds) - 1 - kinds[::-1].index(Transfers)
    assert len(each(heard, Transfers)) == 2


def test_a_control_link_that_overruns_its_credit_is_closed_behind_what_was_granted() -> None:
    peer = RawPeer()
    peer.open()
    control(peer, credit=2)
    heard = peer.say(*(transfer(number, encode_declare(), handle=9) for number in range(4)))
    assert len(payloads_of(heard)) == 2
    error = only(heard, LinkDetached).error
    assert error is not None
    assert error.condition == errors.TRANSFER_LIMIT_EXCEEDED


def test_a_flow_that_acquires_in_a_transaction_is_refused() -> None:
    def flow(**properties: Any) -> bytes:
        named = {symbol(key.replace("_", "-")): value for key, value in properties.items()}
        fields = [uint(0), uint(100), uint(0), uint(100), uint(1), uint(0), uint(5), uint(0), False, False, named]
        return frame(0, 0x13, fields)

    peer = RawPeer()
    peer.open()
    link = only(peer.say(peer.attach("r", 1, receiver=True)), LinkRequested).link
    assert isinstance(link, SenderLink)
    link.accept()
    control(peer)
    peer.say(flow(other=TXN))
    assert link.credit == 5
    whole = flow(txn_id=TXN)
    assert peer.say(whole[:30]) == []
    gone = only(peer.say(whole[30:]), LinkDetached)
    assert gone.link is link
    assert gone.error is not None
    assert gone.error.condition == errors.NOT_IMPLEMENTED


@pytest.mark.parametrize("size", [5, 5000], ids=["small", "large"])
def test_messages_of_a_control_link_that_come_at_once_each_keep_the_transaction_they_name(size: int) -> None:
    """They are taken one by one, and what was noted of those behind is not lost with the first."""
    peer = RawPeer()
    peer.open()
    control(peer)
    names = [TXN, OTHER, TXN]
    events = peer.say(
        *(transfer(number, b"m" * size, handle=9, of=state([name], SYMBOL)) for number, name in enumerate(names))
    )
    assert told(events) == [(b"m" * size, name) for name in names]
