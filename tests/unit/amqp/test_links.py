"""Attaching, refusing, redirecting, detaching; sessions; what both ends learn about a link."""

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
    SessionClosed,
    SessionOpened,
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
    ushort,
)
from tests.unit.amqp.test_codec import values
from tests.unit.amqp.wire import RawPeer, Wire, each, frame, message, only

FILTER = {
    symbol("start"): Described(ulong(0x200), {symbol("event-streams-offset"): symbol("00a1")}),
    symbol("sql"): Described(symbol("apache.org:selector-filter:string"), "d.event-streams-offset > '00a1'"),
}


def test_the_node_sees_the_whole_source_and_echoes_it() -> None:
    wire = Wire()
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
    wire = Wire()
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
    wire = Wire()
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
    wire = Wire()
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
    wire = Wire()
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
    wire = Wire()
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
    wire = Wire()
    _, far = wire.producer()
    with pytest.raises(UsageError):
        far.accept()
    with pytest.raises(UsageError):
        far.refuse(Error(errors.NOT_FOUND))


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("ender", ["near", "far"])
def test_close_and_detach_reach_the_other_side_as_such(closed: bool, ender: str) -> None:
    wire = Wire()
    near, far = wire.consumer()
    link = near if ender == "near" else far
    error = Error(errors.DETACH_FORCED, "rebalancing")
    (link.close if closed else link.detach)(error)
    heard, answered = wire.talk()
    theirs, ours = only(heard, LinkDetached), only(answered, LinkDetached)
    receiver, initiator = (theirs, ours) if ender == "near" else (ours, theirs)
    assert receiver.error is not None
    assert receiver.error.condition == errors.DETACH_FORCED
    assert receiver.closed is closed
    assert initiator.closed is closed
    assert initiator.error is None
    assert not near.alive
    assert not far.alive


def test_a_name_can_be_used_again_after_a_detach() -> None:
    wire = Wire()
    for _ in range(3):
        near, far = wire.producer(name="same")
        near.send_many([message()])
        heard, _ = wire.talk()
        far.settle(only(heard, Transfers).deliveries)
        near.detach()
        wire.talk()


def test_the_same_name_twice_at_once_closes_the_connection() -> None:
    peer = RawPeer()
    peer.accepted()
    error = only(peer.say(peer.attach("raw-link", 1)), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.INVALID_FIELD


def test_the_same_name_in_both_directions_is_two_links() -> None:
    peer = RawPeer()
    peer.accepted()
    events = peer.say(peer.attach("raw-link", 1, receiver=True))
    assert only(events, LinkRequested).link.role == "sender"


def test_a_handle_in_use_closes_the_connection() -> None:
    peer = RawPeer()
    peer.accepted()
    error = only(peer.say(peer.attach("other", 0)), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.HANDLE_IN_USE
    assert peer.hear()[-1][0] == 0x18


@pytest.mark.parametrize("again", [None, 0])
def test_a_channel_in_use_closes_the_connection(again: int | None) -> None:
    peer = RawPeer()
    peer.open()
    channel = 0 if again is None else 1
    remote = None if again is None else ushort(again)
    error = only(peer.say(peer.begin(channel, remote)), ConnectionClosed).error
    assert error is not None


def test_handles_and_channels_can_be_used_again_once_free() -> None:
    peer = RawPeer()
    peer.open()
    for _ in range(3):
        only(peer.say(peer.attach("a", 0)), LinkRequested).link.accept()
        peer.say(frame(0, 0x16, [uint(0), True]))
        peer.say(frame(0, 0x17, []), peer.begin(0))
    assert not peer.engine.closed


def test_a_coordinator_target_is_visible_and_can_be_refused() -> None:
    wire = Wire()
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
    wire = Wire()
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
    wire = Wire()
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
    wire = Wire()
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


def test_links_per_connection_are_limited() -> None:
    peer = RawPeer(max_links=3)
    peer.open()
    events = peer.say(*(peer.attach(f"l{number}", number) for number in range(5)))
    for request in each(events, LinkRequested):
        request.link.accept()
    assert len(each(events, LinkRequested)) == 3
    detaches = [fields for code, fields, _ in peer.hear() if code == 0x16]
    assert [fields[2].value[0] for fields in detaches] == [errors.RESOURCE_LIMIT_EXCEEDED] * 2


def test_the_end_of_a_session_ends_its_links_and_only_those() -> None:
    wire = Wire()
    session = wire.client.open_session()
    doomed, _ = wire.producer(session=session)
    kept, kept_far = wire.producer("kept")
    session.close()
    heard, answered = wire.talk()
    assert only(heard, LinkDetached).link.name == doomed.name
    assert only(answered, LinkDetached).link is doomed
    only(heard, SessionClosed)
    assert only(answered, SessionClosed).session is session
    assert not session.alive
    assert doomed.send_many([message()]) == range(0)
    kept.send_many([message()])
    heard, _ = wire.talk()
    assert only(heard, Transfers).link is kept_far
    with pytest.raises(UsageError):
        wire.client.open_sender("x", session=session)


def test_a_server_may_end_a_session_with_an_error() -> None:
    wire = Wire()
    _, far = wire.producer()
    far.session.close(Error(errors.ERRANT_LINK, "go away"))
    _, answered = wire.talk()
    assert only(answered, SessionClosed).error == Error(errors.ERRANT_LINK, "go away")
    only(answered, LinkDetached)
    near, _ = wire.producer("again")  # on a new session
    assert near.is_open


def test_channels_are_limited() -> None:
    peer = RawPeer(channel_max=3)
    peer.open()
    events = peer.say(*(peer.begin(channel) for channel in (1, 2, 3)))
    assert len(each(events, SessionOpened)) == 3
    error = only(peer.say(peer.begin(4)), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.FRAMING_ERROR


def test_a_peer_without_room_for_our_handles_is_disconnected_instead_of_wedged() -> None:
    peer = RawPeer()
    peer.say(b"AMQP\x00\x01\x00\x00", frame(0, 0x10, ["raw"]))
    peer.say(frame(0, 0x11, [None, uint(0), uint(100), uint(100), uint(0)]))  # handle-max 0: one link
    for handle in (0, 1):
        only(peer.say(peer.attach(f"l{handle}", handle)), LinkRequested).link.accept()
        peer.hear()
    error = only(peer.engine.events(), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.RESOURCE_LIMIT_EXCEEDED


def test_late_calls_on_links_of_a_closed_connection_do_nothing() -> None:
    wire = Wire()
    near, far = wire.producer()
    receiving, sending = wire.consumer("other")
    near.send_many([message()] * 3)
    heard, _ = wire.talk()
    deliveries = only(heard, Transfers).deliveries
    wire.server.receive_eof()
    only(wire.server.events(), ConnectionClosed)
    far.settle(deliveries)
    far.grant(5)
    far.drain()
    far.close()
    far.detach(Error(errors.DETACH_FORCED))
    sending.drained()
    sending.session.close()
    assert sending.send_many([message()]) == range(0)
    assert far.credit == 0
    assert receiving.is_open
