"""Attaching: what both sides see of it, how it is answered, held or refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp import (
    ConnectionClosed,
    Coordinator,
    Described,
    Error,
    LinkDetached,
    LinkOpened,
    LinkRequested,
    Source,
    Target,
    Transfers,
    UsageError,
    errors,
    short,
    symbol,
    ubyte,
    uint,
    ulong,
)
from tests.unit.amqp.messages.test_codec import values
from tests.unit.amqp.wire import LoopbackWire, RawPeer, each, frame, message, only

FILTER = {
    symbol("start"): Described(ulong(0x200), {symbol("event-streams-offset"): symbol("00a1")}),
    symbol("sql"): Described(symbol("apache.org:selector-filter:string"), "d.event-streams-offset > '00a1'"),
}


def test_the_node_sees_the_whole_source_and_echoes_it() -> None:
    wire = LoopbackWire()
    asked = Source(
        address="trades",
        durable=2,
        expiry_policy="never",
        timeout_s=60,
        distribution_mode="copy",
        filter=FILTER,
        outcomes=("amqp:accepted:list", "amqp:rejected:list"),
        capabilities=("queue",),
    )
    near = wire.client.open_receiver(
        asked,
        name="reader",
        properties={"event-streams-partition": symbol("3")},
        target=Target(address="here", durable=1),
        rcv_settle_mode=1,
        snd_settle_mode=1,
        max_message_size=1000,
    )
    heard, _ = wire.talk()
    far = only(heard, LinkRequested).link
    assert far.role == "sender"
    assert far.name == "reader"
    assert far.remote_address == "trades"
    assert far.remote_source == asked
    assert far.remote_target == Target(address="here", durable=1)
    assert far.remote_properties == {"event-streams-partition": "3"}
    assert far.remote_snd_settle_mode == 1
    assert far.remote_rcv_settle_mode == 1
    assert far.remote_max_message_size == 1000
    assert isinstance(far.remote_source, Source)
    start = far.remote_source.filter["start"]
    assert start.descriptor == 0x200
    assert start.value == {"event-streams-offset": "00a1"}
    assert isinstance(start.value["event-streams-offset"], symbol)
    assert not near.is_open
    far.accept(properties={"event-streams-partition": symbol("3")})
    _, answered = wire.talk()
    assert only(answered, LinkOpened).link is near
    assert near.is_open
    assert near.remote_source == asked
    assert near.remote_properties == {"event-streams-partition": "3"}


def test_an_answer_states_the_filters_in_force() -> None:
    wire = LoopbackWire()
    near = wire.client.open_receiver(Source(address="trades", filter=FILTER))
    heard, _ = wire.talk()
    only(heard, LinkRequested).link.accept(
        source=Source(address="trades", filter={symbol("start"): FILTER[symbol("start")]}), max_message_size=77
    )
    wire.talk()
    assert isinstance(near.remote_source, Source)
    assert list(near.remote_source.filter) == ["start"]
    assert near.remote_max_message_size == 77


@pytest.mark.parametrize("direction", ["open_sender", "open_receiver"])
def test_a_refused_attach_is_answered_with_a_null_terminus_and_a_closing_detach(direction: str) -> None:
    wire = LoopbackWire()
    near = getattr(wire.client, direction)("nowhere")
    heard, _ = wire.talk()
    far = only(heard, LinkRequested).link
    far.refuse(Error(errors.NOT_FOUND, "there is no log named nowhere"))
    heard, answered = wire.talk()
    assert each(answered, LinkOpened) == []
    gone = only(answered, LinkDetached)
    assert gone.link is near
    assert gone.closed
    assert gone.error == Error(errors.NOT_FOUND, "there is no log named nowhere")
    assert each(heard, LinkDetached) == []
    assert not far.alive


def test_refusal_on_the_wire() -> None:
    peer = RawPeer()
    peer.open()
    for handle, (receiver, null_field) in enumerate(((True, 5), (False, 6))):
        link = only(peer.say(peer.attach(f"l{handle}", handle, receiver=receiver)), LinkRequested).link
        link.refuse(Error(errors.UNAUTHORIZED_ACCESS))
        (attach, attached, _), (detach, detached, _) = peer.hear()
        assert (attach, detach) == (0x12, 0x16)
        assert attached[null_field] is None
        assert attached[11 - null_field] is not None
        assert detached[1] is True
        assert detached[2].value[0] == errors.UNAUTHORIZED_ACCESS


def test_a_redirect_carries_where_to_go() -> None:
    wire = LoopbackWire()
    wire.client.open_sender("trades")
    heard, _ = wire.talk()
    where = {"hostname": "node-2", "network-host": "10.0.0.2", "port": uint(5673), "address": "trades"}
    only(heard, LinkRequested).link.refuse(Error(errors.LINK_REDIRECT, "node 2 leads this partition", where))
    _, answered = wire.talk()
    error = only(answered, LinkDetached).error
    assert error is not None
    assert error.condition == errors.LINK_REDIRECT
    assert error.info == where
    assert isinstance(error.info["port"], uint)


def test_an_attach_may_be_held_and_answered_later() -> None:
    wire = LoopbackWire()
    near = wire.client.open_sender("trades")
    heard, _ = wire.talk()
    far = only(heard, LinkRequested).link
    other, _ = wire.producer("other")
    assert other.is_open
    assert not near.is_open
    far.accept()
    _, answered = wire.talk()
    assert only(answered, LinkOpened).link is near


def test_a_held_attach_that_the_peer_gives_up_is_reported_and_answered() -> None:
    wire = LoopbackWire()
    near = wire.client.open_sender("trades")
    heard, _ = wire.talk()
    far = only(heard, LinkRequested).link
    near.close()
    heard, answered = wire.talk()
    assert only(heard, LinkDetached).link is far
    assert only(answered, LinkDetached).link is near
    far.accept()  # too late: does nothing
    far.refuse(Error(errors.NOT_FOUND))
    assert wire.talk() == ([], [])


def test_answering_twice_is_a_bug_of_the_caller() -> None:
    wire = LoopbackWire()
    _, far = wire.producer()
    with pytest.raises(UsageError):
        far.accept()
    with pytest.raises(UsageError):
        far.refuse(Error(errors.NOT_FOUND))


def test_a_coordinator_target_is_visible_and_can_be_refused() -> None:
    wire = LoopbackWire()
    near = wire.client.open_sender(Coordinator(("amqp:local-transactions",)))
    heard, _ = wire.talk()
    far = only(heard, LinkRequested).link
    assert far.wants_coordinator
    assert far.remote_target == Coordinator(("amqp:local-transactions",))
    assert far.remote_address is None
    far.refuse(Error(errors.NOT_IMPLEMENTED, "no transactions here"))
    _, answered = wire.talk()
    error = only(answered, LinkDetached).error
    assert error is not None
    assert error.condition == errors.NOT_IMPLEMENTED
    assert not near.alive


def test_a_coordinator_can_be_accepted_with_the_capabilities_granted() -> None:
    wire = LoopbackWire()
    near = wire.client.open_sender(Coordinator(("amqp:local-transactions", "amqp:distributed-transactions")))
    heard, _ = wire.talk()
    only(heard, LinkRequested).link.accept(target=Coordinator(("amqp:local-transactions",)))
    wire.talk()
    assert near.remote_target == Coordinator(("amqp:local-transactions",))


def test_link_capabilities_which_proton_hides_are_read() -> None:
    peer = RawPeer()
    peer.open()
    source, target = Described(ulong(0x28), ["log"]), Described(ulong(0x29), ["log"])
    mode = [ubyte(2), ubyte(0)]
    capability = symbol("com.example:extra")
    fields = ["l", uint(0), False, *mode, source, target, None, None, uint(0), None, None, capability]
    link = only(peer.say(frame(0, 0x12, fields)), LinkRequested).link
    assert link.remote_desired_capabilities == ("com.example:extra",)


def test_an_attach_can_desire_capabilities_which_proton_cannot_say() -> None:
    wire = LoopbackWire()
    bound = {"event-streams-partition": symbol("1"), "com.example:level": short(7), "com.example:number": None}
    before = wire.client.open_sender("log", name="before")
    near = wire.client.open_sender("log", name="own", properties=bound, desired_capabilities=["com.example:a", "b"])
    after = wire.client.open_sender("log", name="after", source=Source(address="here"))
    links = {event.link.name: event.link for event in each(wire.talk()[0], LinkRequested)}
    assert list(links) == ["before", "own", "after"]
    assert [link.remote_desired_capabilities for link in links.values()] == [(), ("com.example:a", "b"), ()]
    assert links["own"].remote_properties == bound
    assert type(links["own"].remote_properties["com.example:level"]) is short
    assert links["own"].remote_target == Target(address="log")
    for link in links.values():
        link.accept()
        link.grant(2)
    wire.talk()
    for link in (before, near, after):
        link.send_many([message()])
    assert sorted(event.link.name for event in each(wire.talk()[0], Transfers)) == ["after", "before", "own"]


def test_what_was_sent_before_such_an_attach_arrives_before_it() -> None:
    wire = LoopbackWire()
    first = wire.client.open_sender("log", name="first")
    only(wire.talk()[0], LinkRequested).link.accept()
    wire.server.events()
    (link,) = wire.server._links.values()
    link.grant(100)
    wire.talk()
    first.send_many([message(bytes(5000)) for _ in range(100)])
    wire.client.open_sender("log", name="second", desired_capabilities=["a"])
    heard, _ = wire.talk()
    assert isinstance(heard[0], Transfers)
    assert sum(len(event.payloads) for event in each(heard, Transfers)) == 100
    assert only(heard, LinkRequested).link.remote_desired_capabilities == ("a",)


@pytest.mark.parametrize(
    "source",
    [
        Described(ulong(0x28), ["log", None, None, None, None, None, None, "filter"]),
        Described(ulong(0x28), ["log", None, None, None, None, None, None, {5: 6}]),
        Described(ulong(0x28), [5]),
        Described(ulong(0x28), ["log", uint(9)]),
        Described(ulong(0x28), ["log", None, symbol("sometimes")]),
        Described(ulong(0x77), ["log"]),
        Described(ulong(0x28), {}),
        "log",
    ],
)
def test_a_malformed_terminus_is_refused_without_asking_the_owner(source: object) -> None:
    peer = RawPeer()
    peer.open()
    events = peer.say(peer.attach("l", receiver=True, source=source))
    assert each(events, LinkRequested) == []
    said = peer.hear()
    if peer.engine.closed:
        assert said[-1][0] == 0x18
    else:
        assert [code for code, _, _ in said] == [0x12, 0x16]
        assert said[-1][1][2].value[0] == errors.INVALID_FIELD


@settings(max_examples=60)
@given(st.dictionaries(st.text(st.characters(min_codepoint=33, max_codepoint=126)).map(symbol), values, max_size=3))
def test_any_filter_is_echoed_as_it_came_or_the_link_is_refused(filters: dict[symbol, object]) -> None:
    peer = RawPeer()
    peer.open()
    source = Described(ulong(0x28), ["log", None, None, None, None, None, None, filters])
    events = peer.say(peer.attach("l", receiver=True, source=source))
    if peer.engine.closed:  # nested too deeply for us
        return
    link = only(events, LinkRequested).link
    assert isinstance(link.remote_source, Source)
    assert link.remote_source.filter == filters
    link.accept()
    (_, attach, _), *more = peer.hear()
    if more:
        assert attach[5] is None
        assert more[0][1][2].value[0] == errors.NOT_IMPLEMENTED
        assert not link.alive
    else:
        fields = attach[5].value
        assert (fields[7] if len(fields) > 7 else None) == (filters or None)


def test_an_attach_that_would_fill_our_memory_is_not_read() -> None:
    peer = RawPeer()
    peer.open()
    source = Described(ulong(0x28), ["log", None, None, None, None, None, None, {symbol("x"): [None] * 20_000}])
    error = only(peer.say(peer.attach("l", receiver=True, source=source)), ConnectionClosed).error
    assert error is not None
    assert "larger than" in str(error)
