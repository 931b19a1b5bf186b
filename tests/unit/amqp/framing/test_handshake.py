"""How a connection begins, stays alive and ends: headers, SASL, open, idle time, garbage."""

from __future__ import annotations

import random

import pytest

from holdfast.amqp import (
    AuthenticationWork,
    ConnectionClosed,
    ConnectionOpened,
    Engine,
    Error,
    SessionOpened,
    UsageError,
    errors,
    symbol,
    uint,
)
from holdfast.amqp.engine.engine import HANDSHAKE_TIMEOUT_S
from holdfast.amqp.framing.handshake import MAX_PRELUDE_BYTES, MAX_SASL_FRAME_BYTES
from holdfast.amqp.framing.sasl import Challenge, LoginAccepted, LoginDenied, LoginLater, OneStep
from tests.unit.amqp.wire import AMQP_HEADER, SASL_HEADER, LoopbackWire, RawPeer, each, frame, only


def test_both_sides_learn_what_the_other_says_in_its_open() -> None:
    wire = LoopbackWire(
        server={"offered_capabilities": ["AMQP_EVENT_STREAMS_V1_0"], "properties": {"product": "holdfast"}},
        client={
            "hostname": "broker.example",
            "desired_capabilities": ["amqp:link:redirect", "AMQP_EVENT_STREAMS_V1_0"],
            "properties": {"platform": "test", "depth": {"a": [1, 2]}},
        },
    )
    heard, answered = wire.talk()
    only(heard, ConnectionOpened)
    only(answered, ConnectionOpened)
    assert wire.server.remote_container == "client"
    assert wire.server.remote_hostname == "broker.example"
    assert wire.server.remote_desired_capabilities == ("amqp:link:redirect", "AMQP_EVENT_STREAMS_V1_0")
    assert wire.server.remote_properties == {"platform": "test", "depth": {"a": [1, 2]}}
    assert wire.client.remote_container == "node-1"
    assert wire.client.remote_offered_capabilities == ("AMQP_EVENT_STREAMS_V1_0",)
    assert wire.client.remote_properties == {symbol("product"): "holdfast"}


def test_a_client_with_and_one_without_a_sasl_layer_are_both_served() -> None:
    anonymous, bare = LoopbackWire(), LoopbackWire(client={"sasl": None})
    assert anonymous.client.data_to_send() == SASL_HEADER
    assert bare.client.data_to_send().startswith(AMQP_HEADER)
    for wire in (LoopbackWire(), LoopbackWire(client={"sasl": None})):
        heard, _ = wire.talk()
        only(heard, ConnectionOpened)
    assert anonymous.server.identity is None


def test_sasl_identity_comes_from_the_mechanism() -> None:
    def plain(response: bytes) -> str | None:
        _, user, password = response.split(b"\0")
        return user.decode() if password == b"secret" else None

    good = LoopbackWire(
        server={"mechanisms": {"PLAIN": lambda: OneStep(plain)}},
        client={"sasl": "PLAIN", "sasl_response": b"\0ann\0secret"},
    )
    good.exchange()
    assert good.server.identity == "ann"
    guess = {"sasl": "PLAIN", "sasl_response": b"\0ann\0guess"}
    bad = LoopbackWire(server={"mechanisms": {"PLAIN": lambda: OneStep(plain)}}, client=guess)
    heard, answered = bad.talk()
    for events in (heard, answered):
        error = only(events, ConnectionClosed).error
        assert error is not None
        assert error.condition == errors.UNAUTHORIZED_ACCESS
    assert bad.server.output_done


class Slow:
    """Asks for a number, and takes its time to look at it."""

    name = "SLOW"

    def respond(self, data: bytes) -> object:
        if not data:
            return Challenge(b"which number?")
        return LoginLater(lambda: LoginAccepted("ann") if data == b"7" else LoginDenied("wrong number"))

    def __call__(self, offered: object) -> Slow:
        assert offered == ("SLOW",)
        return self

    def first(self) -> bytes:
        return b""

    def succeeded(self, additional: bytes) -> None:
        pass


class SlowClient(Slow):
    def __init__(self, number: bytes) -> None:
        self._number = number

    def respond(self, data: bytes) -> object:
        assert data == b"which number?"
        return LoginLater(lambda: self._number)


@pytest.mark.parametrize("number", [b"7", b"8"])
def test_a_login_may_take_several_messages_and_its_time(number: bytes) -> None:
    wire = LoopbackWire(server={"mechanisms": {"SLOW": Slow}}, client={"sasl": SlowClient(number)})
    _, asked = wire.talk()
    wire.client.authenticated(only(asked, AuthenticationWork).work())
    heard, _ = wire.talk()
    work = only(heard, AuthenticationWork).work
    assert not wire.server.opened, "nothing of AMQP is looked at meanwhile"
    wire.server.authenticated(work())
    heard, answered = wire.talk()
    if number == b"7":
        only(heard, ConnectionOpened)
        only(answered, ConnectionOpened)
        assert wire.server.identity == "ann"
    else:
        for events in (heard, answered):
            error = only(events, ConnectionClosed).error
            assert error is not None
            assert error.condition == errors.UNAUTHORIZED_ACCESS


def test_what_is_pipelined_behind_a_slow_login_waits_for_it() -> None:
    engine = Engine("server", container_id="n", mechanisms={"SLOW": Slow})
    engine.receive(SASL_HEADER + frame(0, 0x41, [symbol("SLOW"), b"7"], kind=1))
    work = only(engine.events(), AuthenticationWork).work
    engine.receive(AMQP_HEADER + frame(0, 0x10, ["c"]))
    assert engine.events() == []
    engine.authenticated(work())
    only(engine.events(), ConnectionOpened)


def test_nobody_talks_for_ever_before_authentication() -> None:
    engine = Engine("server", container_id="n", mechanisms={"SLOW": Slow})
    engine.receive(SASL_HEADER + frame(0, 0x41, [symbol("SLOW"), b"7"], kind=1))
    engine.receive(bytes(MAX_PRELUDE_BYTES))
    assert only(engine.events()[1:], ConnectionClosed).error is not None

    rounds = Engine("server", container_id="n", mechanisms={"SLOW": Slow})
    rounds.receive(SASL_HEADER + frame(0, 0x41, [symbol("SLOW")], kind=1))
    for _ in range(20):
        rounds.receive(frame(0, 0x43, [b""], kind=1))
    only(rounds.events(), ConnectionClosed)


def test_a_sasl_frame_holds_a_token_and_no_more() -> None:
    for size, fits in ((MAX_SASL_FRAME_BYTES - 100, True), (MAX_SASL_FRAME_BYTES, False)):
        seen: list[bytes] = []
        engine = Engine("server", container_id="n", mechanisms={"T": lambda seen=seen: OneStep(seen.append)})
        engine.receive(SASL_HEADER + frame(0, 0x41, [symbol("T"), bytes(size)], kind=1))
        assert bool(seen) is fits


def test_where_anonymous_is_not_offered_there_is_no_way_round_sasl() -> None:
    engine = Engine("server", container_id="n", mechanisms={"SLOW": Slow})
    engine.receive(AMQP_HEADER + frame(0, 0x10, ["c"]))
    error = only(engine.events(), ConnectionClosed).error
    assert error is not None
    assert "authenticate" in str(error)
    assert engine.data_to_send() == SASL_HEADER
    engine = Engine("server", container_id="n", mechanisms={"SLOW": Slow})
    engine.receive(SASL_HEADER + frame(0, 0x41, [symbol("ANONYMOUS")], kind=1) + AMQP_HEADER)
    only(engine.events(), ConnectionClosed)


@pytest.mark.parametrize(
    ("greeting", "word"), [(b"\x16\x03\x01\x02\x00\x01", "TLS hello"), (b"GET / HTTP/1.1\r\n", "HTTP")]
)
def test_the_log_says_what_a_stranger_seems_to_be(greeting: bytes, word: str) -> None:
    engine = Engine("server", container_id="n")
    engine.receive(greeting)
    assert word in str(only(engine.events(), ConnectionClosed).error)


def test_a_client_whose_mechanism_is_not_offered_says_so() -> None:
    wire = LoopbackWire(client={"sasl": "SCRAM-SHA-256"})
    _, answered = wire.talk()
    error = only(answered, ConnectionClosed).error
    assert error is not None
    assert "ANONYMOUS" in str(error)


def test_sasl_can_be_required() -> None:
    engine = Engine("server", container_id="n", sasl_required=True)
    engine.receive(AMQP_HEADER + frame(0, 0x10, ["c"]))
    assert only(engine.events(), ConnectionClosed).error is not None
    assert engine.data_to_send() == SASL_HEADER
    assert engine.output_done


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS client hello
        b"AMQP\x00\x00\x09\x01",  # AMQP 0-9-1
        b"AMQP\x02\x01\x00\x00",  # AMQP's own TLS layer
        b"AMQP\x00\x01\x00\x01",
        b"\x00" * 8,
        b"X",
    ],
)
def test_a_stranger_is_told_the_right_header_and_disconnected(greeting: bytes) -> None:
    for cut in (len(greeting), 1):
        engine = Engine("server", container_id="n")
        for start in range(0, len(greeting), cut):
            engine.receive(greeting[start : start + cut])
        error = only(engine.events(), ConnectionClosed).error
        assert error is not None
        assert error.condition == errors.FRAMING_ERROR
        assert engine.data_to_send() == AMQP_HEADER
        assert engine.output_done
        engine.receive(b"more of it")
        engine.receive_eof()
        assert engine.events() == []


@pytest.mark.parametrize(
    "frames",
    [
        b"\x00\x00\x00\x04\x02\x00\x00\x00",  # size smaller than the frame header
        b"\x00\x00\x00\x0c\x01\x00\x00\x00\x00\x00\x00\x00",  # data offset inside the header
        b"\xff\xff\xff\xff\x02\x00\x00\x00",  # far above max-frame-size
        frame(0, 0x99, []),  # no such performative
        frame(0, 0x41, ["ANONYMOUS"], kind=1),  # a SASL frame in the AMQP layer
        frame(0, 0x10, ["c"], kind=7),  # no such frame type
        b"\x00\x00\x00\x0b\x02\x00\x00\x00\x40\x40\x40",  # not a described list
        frame(0, 0x11, [None, 0, 0, 0]),  # begin before open
        frame(0, 0x10, ["c"]) + frame(0, 0x10, ["c"]) + frame(5, 0x12, ["l"]),  # attach without a session
        frame(0, 0x10, [["not a text"]]),
        frame(0, 0x10, ["c", None, None, None, None, None, None, None, None, "no map"]),
        frame(0, 0x10, ["c"]) + b"\x00\x00\x00\x00",
    ],
)
def test_garbage_behind_the_header_ends_in_a_close_with_an_error(frames: bytes) -> None:
    peer = RawPeer()
    events = peer.say(AMQP_HEADER, frames, b"\x00\x00\x00\x00" * 4)
    error = only(events, ConnectionClosed).error
    assert error is not None
    assert error.condition.startswith("amqp:")
    said = peer.hear()
    assert [code for code, _, _ in said][-1] == 0x18
    condition = said[-1][1][0].value[0]
    assert condition == error.condition
    assert peer.engine.output_done


def test_random_bytes_never_raise() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for _ in range(200):
        engine = Engine(rng.choice(("server", "client")), container_id="n", sasl=rng.choice((None, "ANONYMOUS")))
        engine.receive(rng.choice((b"", AMQP_HEADER, SASL_HEADER)) + rng.randbytes(rng.randrange(60)))
        engine.data_to_send()
        engine.receive_eof()
        assert each(engine.events(), ConnectionClosed), f"seed {seed}"


def test_a_frame_cut_off_by_the_end_of_the_stream_is_an_aborted_connection() -> None:
    peer = RawPeer()
    peer.open()
    peer.say(peer.attach("link")[:-5])
    peer.engine.receive_eof()
    error = only(peer.engine.events(), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.FRAMING_ERROR


def test_a_peer_that_goes_away_early_is_reported_once() -> None:
    for before in (b"", b"AMQ", SASL_HEADER, AMQP_HEADER):
        engine = Engine("server", container_id="n")
        engine.receive(before)
        engine.receive_eof()
        engine.receive_eof()
        only(engine.events(), ConnectionClosed)
        engine.data_to_send()
        assert engine.output_done


def test_a_clean_close_from_either_side_has_no_error() -> None:
    for closer in ("client", "server"):
        wire = LoopbackWire()
        wire.talk()
        getattr(wire, closer).close()
        for events in wire.talk():
            assert only(events, ConnectionClosed).error is None
        assert wire.client.output_done
        assert wire.server.output_done


def test_a_close_carries_its_error_and_info() -> None:
    wire = LoopbackWire()
    wire.talk()
    redirect = Error(errors.CONNECTION_REDIRECT, "other node", {"network-host": "10.0.0.2", "port": 5672})
    wire.server.close(redirect)
    _, answered = wire.talk()
    error = only(answered, ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.CONNECTION_REDIRECT
    assert error.info == {"network-host": "10.0.0.2", "port": 5672}


def test_silence_beyond_the_idle_timeout_closes_the_connection() -> None:
    wire = LoopbackWire(server={"idle_timeout_s": 30.0})
    wire.talk()
    assert wire.client.remote_idle_timeout_s == 15.0  # half is advertised
    now = 1000.0
    deadline = wire.server.tick(now)
    assert deadline == pytest.approx(now + 30)
    assert wire.server.tick(now + 29) == pytest.approx(now + 30)
    assert wire.server.events() == []
    wire.server.tick(now + 30)
    error = only(wire.server.events(), ConnectionClosed).error
    assert error is not None
    assert error.condition == errors.RESOURCE_LIMIT_EXCEEDED
    assert wire.server.tick(now + 60) is None


def test_keep_alives_hold_an_idle_connection_open() -> None:
    wire = LoopbackWire(server={"idle_timeout_s": 30.0})
    wire.talk()
    now = 1000.0
    for _ in range(20):
        deadlines = [wire.server.tick(now), wire.client.tick(now)]
        heard, answered = wire.talk()
        assert heard == []
        assert answered == []
        now = min(deadline for deadline in deadlines if deadline is not None)
    assert now > 1100


def test_a_peer_that_wants_a_keep_alive_every_millisecond_gets_them_at_a_bounded_rate() -> None:
    peer = RawPeer()
    peer.say(AMQP_HEADER, frame(0, 0x10, ["c", None, None, None, uint(1)]))
    deadline = peer.engine.tick(50.0)
    assert deadline is not None
    assert deadline >= 50.01


def test_a_peer_that_never_opens_is_dropped() -> None:
    for before in (b"", SASL_HEADER, AMQP_HEADER):
        engine = Engine("server", container_id="n")
        engine.receive(before)
        assert engine.tick(5.0) == 5.0 + HANDSHAKE_TIMEOUT_S
        assert engine.tick(5.0 + HANDSHAKE_TIMEOUT_S) is None
        assert only(engine.events(), ConnectionClosed).error is not None
        while engine.data_to_send():
            pass
        assert engine.output_done


def test_a_client_told_another_protocol_gives_up() -> None:
    for greeting in (b"HTTP/1.1 400", b"AMQP\x00\x00\x09\x01"):
        for sasl in ("ANONYMOUS", None):
            client = Engine("client", container_id="c", sasl=sasl)
            client.open()
            client.receive(greeting)
            assert only(client.events(), ConnectionClosed).error is not None


def test_everything_may_be_pipelined_before_the_first_answer() -> None:
    wire = LoopbackWire(client={"sasl": None})
    wire.client.open_session()
    engine = wire.server
    engine.receive(wire.client.data_to_send())
    events = engine.events()
    only(events, ConnectionOpened)
    only(events, SessionOpened)


def test_links_before_open_are_a_bug_of_the_caller() -> None:
    client = Engine("client", container_id="c")
    with pytest.raises(UsageError):
        client.open_sender("log")


def test_calls_on_a_freed_engine_do_nothing() -> None:
    wire = LoopbackWire()
    wire.talk()
    wire.server.free()
    wire.server.free()
    wire.server.close()
    wire.server.receive(b"x")
    wire.server.receive_eof()
    assert wire.server.data_to_send() == b""
    assert wire.server.tick(1.0) is None
    only(wire.server.events(), ConnectionClosed)
    with pytest.raises(UsageError):
        wire.server.open_session()


def test_an_unknown_role_is_a_bug_of_the_caller() -> None:
    with pytest.raises(UsageError):
        Engine("broker", container_id="x")  # type: ignore[arg-type]
