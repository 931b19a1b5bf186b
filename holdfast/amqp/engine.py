"""The AMQP 1.0 engine: bytes in, events out; calls in, bytes out. No sockets, no clock, no threads of its own.

One class serves both roles: the node accepts connections with role "server", the client library opens them with
role "client". Below it stands proton's C engine, reached through its functions, not its Python classes. What
proton does not do is done here: protocol headers and SASL (prelude.py), policing of credit, message size and
link count, an error for garbage that proton drops without a word.

Rules never broken:
- whatever a peer sends ends in events, never in an exception; a peer that breaks the protocol gets the AMQP
  error it caused and a ConnectionClosed event (or LinkDetached(local=True) if only the link is at fault);
- no memory grows with what a peer sends beyond its credit: complete messages leave proton on each receive(),
  partial ones are bounded by max_message_size, links and sessions by count;
- the queue of proton's events is emptied within each call that can fill it, so that events of one batch of
  input are never mixed with others (the loop below counts on it).

How the hot loop saves calls: a foreign call costs about 150 ns. The first transfer event of a link drains the
whole link (current, recv, advance per message; "is it complete" is asked only for the last, since transfers on
a link cannot interleave). If as many messages came out as frames went in, every queued event belongs to one of
them and all are popped without being looked at.

Usage: receive() what the socket gives, handle events(), write data_to_send() until it is b"", call tick(now) at
the time that it returned. After ConnectionClosed flush and close the socket when output_done. free() (or
garbage collection) releases C memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Any, Final, Literal

from cproton import ffi, lib

from holdfast.amqp.codec import Described, encode_symbol_map, symbol, symbol_array, symbols_of, ulong
from holdfast.amqp.errors import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    Error,
    MalformedMessage,
    UsageError,
)
from holdfast.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    Credit,
    Drained,
    Event,
    LinkDetached,
    LinkOpened,
    LinkRequested,
    SessionClosed,
    SessionOpened,
    Settlements,
    Transfers,
)
from holdfast.amqp.link import (
    MIXED,
    SETTLED,
    Link,
    ReceiverLink,
    SenderLink,
    Session,
    read_condition,
    write_condition,
)
from holdfast.amqp.prelude import (
    ClientPrelude,
    Mechanism,
    PreludeError,
    ServerPrelude,
    anonymous,
    frame,
    performative,
)
from holdfast.amqp.states import (
    ACCEPTED,
    ACCEPTED_CODE,
    MODIFIED_CODE,
    RECEIVED_CODE,
    REJECTED_CODE,
    RELEASED,
    RELEASED_CODE,
    SETTLED_WITHOUT_STATE,
    DeliveryState,
    Modified,
    OtherState,
    Rejected,
)
from holdfast.amqp.terminus import Coordinator, Source, Target, read_data, read_map, text, write_data

MAX_FRAME_BYTES = 65536
"""Default max-frame-size: small enough that one connection's buffers stay small, large enough that framing
costs nothing."""

MAX_CHANNEL = 255
"""Default channel-max: clients use one session, some a handful; each costs a few KiB of C memory."""

MAX_LINKS = 4096
"""Links per connection. A gateway of a thousand partitions fits; an attach loop does not."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Default largest message, also the bound on what an unfinished message may occupy."""

SEND_CHUNK_BYTES = 256 * 1024
"""About what one data_to_send() returns: a few socket buffers, so a slow peer does not make us copy megabytes
in one go."""

READ_BUFFER_BYTES = 64 * 1024
"""Messages up to this size leave proton in one call."""

MIN_TICK_S = 0.02
"""A peer may demand a keep-alive every millisecond; it gets one no more often than this."""

_peek, _pop, _event_type = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_link, _event_delivery = lib.pn_event_link, lib.pn_event_delivery
_current, _recv, _advance = lib.pn_link_current, lib.pn_link_recv, lib.pn_link_advance
_settle = lib.pn_delivery_settle
_remote_state = lib.pn_delivery_remote_state
_DELIVERY, _TRANSPORT = lib.PN_DELIVERY, lib.PN_TRANSPORT
_PN_EOS, _PN_ABORTED = lib.PN_EOS, -11


class _ReadBuffer(threading.local):
    """Where proton copies messages to before they become bytes. Per thread: foreign calls release the
    interpreter lock."""

    def __init__(self) -> None:
        self.memory = ffi.new("char[]", READ_BUFFER_BYTES)
        self.view = ffi.buffer(self.memory)


_read_buffer = _ReadBuffer()


class Engine:
    """One AMQP connection. See the module's text for how to drive it."""

    def __init__(
        self,
        role: Literal["server", "client"],
        *,
        container_id: str,
        hostname: str | None = None,
        max_frame_size: int = MAX_FRAME_BYTES,
        channel_max: int = MAX_CHANNEL,
        idle_timeout_s: float | None = None,
        offered_capabilities: Iterable[str] = (),
        desired_capabilities: Iterable[str] = (),
        properties: Mapping[str, Any] | None = None,
        max_message_size: int = MAX_MESSAGE_BYTES,
        max_links: int = MAX_LINKS,
        mechanisms: Mapping[str, Mechanism] | None = None,
        sasl_required: bool = False,
        sasl: str | None = "ANONYMOUS",
        sasl_response: bytes = b"",
    ) -> None:
        """idle_timeout_s: how long we tolerate silence (half of it is advertised, as the specification advises).
        max_message_size: bytes, per link, advertised on attach. Servers: mechanisms (name -> check), default ANONYMOUS;
        sasl_required refuses peers without a SASL layer. Clients: sasl and sasl_response (None: no SASL layer)."""
        if role not in ("server", "client"):
            raise UsageError(f"role is {role!r}; it must be 'server' or 'client'")
        self.role = role
        self.max_message_size = max_message_size
        self.max_links = max_links
        self._output_ended = False
        self.closed = False
        """ConnectionClosed has been queued."""
        self.opened = False
        """The peer's open has arrived."""
        self.identity: str | None = None
        """Who the peer is according to SASL."""
        self._events: list[Event] = []
        self._links: dict[Any, Link] = {}
        self._sessions: dict[Any, Session] = {}
        self._default_session: Session | None = None
        self._link_number = 0
        self._held = 0
        self._pump_number = 0
        self._frames_seen = 0
        self._last_words = b""
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        self._collector = lib.pn_collector()
        lib.pn_connection_collect(self._connection, self._collector)
        self._prelude: ServerPrelude | ClientPrelude | None = None
        if role == "server":
            lib.pn_transport_set_server(self._transport)
            self._prelude = ServerPrelude(mechanisms or {"ANONYMOUS": anonymous}, sasl_required)
        elif sasl is not None:
            self._prelude = ClientPrelude(sasl, sasl_response, hostname)
        lib.pn_transport_set_max_frame(self._transport, max_frame_size)
        lib.pn_transport_set_channel_max(self._transport, channel_max)
        if idle_timeout_s is not None:
            lib.pn_transport_set_idle_timeout(self._transport, int(idle_timeout_s * 1000))
        self._describe(container_id, hostname, offered_capabilities, desired_capabilities, properties)
        lib.pn_transport_bind(self._transport, self._connection)
        self._pump()

    def _describe(
        self,
        container_id: str,
        hostname: str | None,
        offered: Iterable[str],
        desired: Iterable[str],
        properties: Mapping[str, Any] | None,
    ) -> None:
        connection = self._connection
        lib.pn_connection_set_container(connection, container_id.encode())
        if hostname is not None:
            lib.pn_connection_set_hostname(connection, hostname.encode())
        if offered := tuple(offered):
            write_data(lib.pn_connection_offered_capabilities(connection), symbol_array(offered))
        if desired := tuple(desired):
            write_data(lib.pn_connection_desired_capabilities(connection), symbol_array(desired))
        if properties:
            write_data(lib.pn_connection_properties(connection), encode_symbol_map(properties))

    # ------------------------------------------------------------------------------------------------- the connection

    @property
    def remote_container(self) -> str | None:
        return self._ask(lambda c: text(lib.pn_connection_remote_container(c)), None)

    @property
    def remote_hostname(self) -> str | None:
        """The host the peer believes it talks to."""
        return self._ask(lambda c: text(lib.pn_connection_remote_hostname(c)), None)

    @property
    def remote_offered_capabilities(self) -> tuple[str, ...]:
        return self._ask(lambda c: symbols_of(read_data(lib.pn_connection_remote_offered_capabilities(c))), ())

    @property
    def remote_desired_capabilities(self) -> tuple[str, ...]:
        return self._ask(lambda c: symbols_of(read_data(lib.pn_connection_remote_desired_capabilities(c))), ())

    @property
    def remote_properties(self) -> Mapping[str, Any]:
        return self._ask(lambda c: read_map(lib.pn_connection_remote_properties(c)), {})

    @property
    def remote_max_frame_size(self) -> int:
        """0 = the peer states no limit."""
        return self._ask(lambda c: int(lib.pn_transport_get_remote_max_frame(self._transport)), 0)

    @property
    def remote_idle_timeout_s(self) -> float:
        """0 = the peer tolerates any silence."""
        return self._ask(lambda c: lib.pn_transport_get_remote_idle_timeout(self._transport) / 1000.0, 0.0)

    def _ask(self, question: Callable[[Any], Any], otherwise: Any) -> Any:
        if self._connection is None:
            return otherwise
        try:
            return question(self._connection)
        except MalformedMessage:
            return otherwise

    def open(self) -> None:
        """Opens our side. A server does so by itself when the peer opens."""
        if self._connection is not None:
            lib.pn_connection_open(self._connection)

    def close(self, error: Error | None = None) -> None:
        """Closes the connection with an error or cleanly; ConnectionClosed follows when the peer has answered
        (the owner bounds that wait, then closes the socket)."""
        if self._connection is None or self.closed:
            return
        if self._prelude is not None:
            self._die(error, b"")
            return
        lib.pn_connection_open(self._connection)
        if error is not None:
            write_condition(lib.pn_connection_condition(self._connection), error)
        lib.pn_connection_close(self._connection)

    # ------------------------------------------------------------------------------------------------ sessions, links

    def open_session(self) -> Session:
        """Begins a session (clients)."""
        if self._connection is None:
            raise UsageError("the engine has been freed")
        impl = lib.pn_session(self._connection)
        session = self._sessions[impl] = Session(self, impl)
        lib.pn_session_open(impl)
        return session

    def open_sender(
        self,
        target: str | Target | Coordinator,
        *,
        name: str | None = None,
        source: Source | None = None,
        properties: Mapping[str, Any] | None = None,
        snd_settle_mode: int = MIXED,
        max_message_size: int | None = None,
        session: Session | None = None,
    ) -> SenderLink:
        """Attaches a link that sends to `target` (an address or a Target). LinkOpened or LinkDetached follows."""
        place = Target(address=target) if isinstance(target, str) else target
        link = self._attach(lib.pn_sender, SenderLink, name, session, max_message_size)
        link._write_attach(source or Source(), place, properties, snd_settle_mode, 0)
        return link

    def open_receiver(
        self,
        source: str | Source,
        *,
        name: str | None = None,
        target: Target | None = None,
        properties: Mapping[str, Any] | None = None,
        snd_settle_mode: int = MIXED,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
        session: Session | None = None,
    ) -> ReceiverLink:
        """Attaches a link that receives from `source` (an address or a Source). Credit may be granted at once."""
        place = Source(address=source) if isinstance(source, str) else source
        link = self._attach(lib.pn_receiver, ReceiverLink, name, session, max_message_size)
        link._write_attach(place, target or Target(), properties, snd_settle_mode, rcv_settle_mode)
        return link

    def _attach(self, make: Any, kind: type, name: str | None, session: Session | None, limit: int | None) -> Any:
        if session is None:
            session = self._default_session
            if session is None or not session.alive:
                session = self._default_session = self.open_session()
        if not session.alive:
            raise UsageError("the session has ended")
        self._link_number += 1
        impl = make(session._impl, (name if name is not None else f"link-{self._link_number}").encode())
        link = self._links[impl] = kind(session, impl, ours=True)
        if limit is not None:
            link.max_message_size = limit
        return link

    # ---------------------------------------------------------------------------------------------------------- input

    def receive(self, data: bytes) -> None:
        """Takes bytes from the peer, any number of them, cut anywhere."""
        if self.closed or not data:
            return
        if self._prelude is not None:
            data = self._receive_prelude(data)
            if not data:
                return
        self._push(data)
        self._pump()

    def _receive_prelude(self, data: bytes) -> bytes:
        prelude = self._prelude
        assert prelude is not None
        try:
            rest = prelude.receive(data)
        except PreludeError as problem:
            self._die(problem.error, bytes(prelude.output))
            return b""
        if prelude.done:
            self.identity = prelude.identity
            self._last_words = bytes(prelude.output)
            self._prelude = None
        return rest

    def _push(self, data: bytes) -> None:
        transport, size = self._transport, len(data)
        taken = lib.pn_transport_push(transport, data, size)
        if taken < size and taken > 0:
            start = ffi.from_buffer(data)
            while taken < size:
                step = lib.pn_transport_push(transport, start + taken, size - taken)
                if step <= 0:
                    return  # proton has closed its input: the events say why
                taken += step

    def receive_eof(self) -> None:
        """The peer closed its side of the socket."""
        if self.closed:
            return
        if self._prelude is not None:
            self._die(Error(FRAMING_ERROR, "the peer went away before it opened the connection"), b"")
            return
        lib.pn_transport_close_tail(self._transport)
        self._pump()
        if not self.closed:
            self._finish(Error(FRAMING_ERROR, "connection aborted"))

    def events(self) -> list[Event]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    def _pump(self) -> None:
        """Turns proton's queued events into ours until the queue is empty."""
        collector = self._collector
        self._pump_number += 1
        drained = popped = 0
        while event := _peek(collector):
            kind = _event_type(event)
            if kind == _DELIVERY:
                link = self._links.get(_event_link(event))
                if isinstance(link, ReceiverLink):
                    if link._pumped != self._pump_number:
                        link._pumped = self._pump_number
                        drained += self._drain(link)
                        if drained == lib.pn_transport_get_frames_input(self._transport) - self._frames_seen:
                            for _ in repeat(None, drained - popped):
                                _pop(collector)
                            continue
                    popped += 1
                elif link is not None:
                    self._on_disposition(link, _event_delivery(event))  # type: ignore[arg-type]
            elif kind != _TRANSPORT:
                handler = _HANDLERS.get(kind)
                if handler is not None:
                    handler(self, event)
            _pop(collector)
        self._frames_seen = lib.pn_transport_get_frames_input(self._transport)

    def _drain(self, link: ReceiverLink) -> int:
        """Takes every complete message off a link; returns how many deliveries left it."""
        impl = link._impl
        queued = lib.pn_link_queued(impl)
        credit = lib.pn_link_credit(impl)
        if not link.is_open:
            return self._discard(link, queued)
        count = min(queued, max(credit, 0))
        taken, error = self._take(link, count, queued) if count else (0, None)
        if error is None and queued > count:
            error = Error(TRANSFER_LIMIT_EXCEEDED, f"{queued} messages came with credit for {credit}: wait for credit")
        if error is not None:
            self._violated(link, error)
            taken += self._discard(link, queued - taken)
        elif link._draining:
            self._check_drained(link)
        return taken

    def _take(self, link: ReceiverLink, count: int, queued: int) -> tuple[int, Error | None]:
        impl, limit = link._impl, link.max_message_size
        buffer = _read_buffer
        memory, view = buffer.memory, buffer.view
        presettled = link.remote_snd_settle_mode == SETTLED
        deliveries: list[Any] = []
        payloads: list[bytes] = []
        taken = 0
        error: Error | None = None
        last = count if count < queued else count - 1  # before this index every message is complete
        while taken < count:
            delivery = _current(impl)
            size = _recv(impl, memory, READ_BUFFER_BYTES)
            if taken < last and 0 <= size < READ_BUFFER_BYTES and size <= limit and not link._parts:
                payload = view[:size]
            else:
                if size == _PN_ABORTED:
                    self._abort(link, delivery)
                    taken += 1
                    continue
                error = self._collect(link, size, limit)
                if error is not None or lib.pn_delivery_partial(delivery):
                    break
                payload = b"".join(link._parts)
                link._parts = []
                link._parts_bytes = 0
            payloads.append(payload)
            if presettled:
                _settle(delivery)
            else:
                deliveries.append(delivery)
                _advance(impl)
            taken += 1
        if payloads:
            link._unsettled += len(deliveries)
            self._events.append(Transfers(link, deliveries, payloads))
        return taken, error

    def _collect(self, link: ReceiverLink, size: int, limit: int) -> Error | None:
        """Moves what is there of the current message to its parts."""
        buffer = _read_buffer
        while size > 0:
            link._parts.append(buffer.view[:size])
            link._parts_bytes += size
            if link._parts_bytes > limit:
                return Error(MESSAGE_SIZE_EXCEEDED, f"a message is larger than {limit} bytes: split it")
            size = _recv(link._impl, buffer.memory, READ_BUFFER_BYTES) if size == READ_BUFFER_BYTES else 0
        return None

    def _abort(self, link: ReceiverLink, delivery: Any) -> None:
        """The peer took a message back: forget its parts, give back its credit."""
        link._parts = []
        link._parts_bytes = 0
        _settle(delivery)
        lib.pn_link_flow(link._impl, 1)

    def _discard(self, link: ReceiverLink, count: int) -> int:
        """Messages of a link that we have closed (or never accepted): released, so the sender knows they were
        not kept."""
        impl = link._impl
        link._parts = []
        link._parts_bytes = 0
        discarded = 0
        while discarded < count and (delivery := _current(impl)):
            lib.pn_delivery_update(delivery, RELEASED_CODE)
            _settle(delivery)
            discarded += 1
        return discarded

    def _violated(self, link: Link, error: Error) -> None:
        """The peer broke a rule of this link: close it and say so once."""
        link.close(error)
        self._events.append(LinkDetached(link, True, error, local=True))

    def _on_disposition(self, link: SenderLink, delivery: Any) -> None:
        code = _remote_state(delivery)
        state: DeliveryState
        if code == ACCEPTED_CODE:
            state = ACCEPTED
        elif (code == 0 or code == RECEIVED_CODE) and not lib.pn_delivery_settled(delivery):
            return
        else:
            state = _read_state(delivery, code)
        number = link._outstanding.pop(delivery, None)
        if number is None:
            return
        _settle(delivery)
        if link._pumped != self._pump_number:
            link._pumped = self._pump_number
            link._outcomes = []
            self._events.append(Settlements(link, link._outcomes))
        link._outcomes.append((number, state))

    # -------------------------------------------------------------------------------------------- events of endpoints

    def _on_connection_open(self, event: Any) -> None:
        if self.opened:
            self._fail(Error(ILLEGAL_STATE, "the connection was opened twice"))
            return
        self.opened = True
        if self.role == "server":
            lib.pn_connection_open(self._connection)
        self._events.append(ConnectionOpened())

    def _on_connection_close(self, event: Any) -> None:
        error = read_condition(lib.pn_connection_remote_condition(self._connection))
        if not self.closed:
            lib.pn_connection_open(self._connection)
            lib.pn_connection_close(self._connection)
        self._finish(error)

    def _on_transport_error(self, event: Any) -> None:
        self._finish(read_condition(lib.pn_transport_condition(self._transport)))

    def _on_tail_closed(self, event: Any) -> None:
        """proton reads no more. If it has no word for why, the frame had no meaning that it knows."""
        state = lib.pn_connection_state(self._connection)
        if self.closed or state & lib.PN_REMOTE_CLOSED:
            return
        if not lib.pn_condition_is_set(lib.pn_transport_condition(self._transport)):
            self._fail(Error(DECODE_ERROR, "a frame is not an AMQP 1.0 performative"))

    def _on_session_open(self, event: Any) -> None:
        impl = lib.pn_event_session(event)
        session = self._sessions.get(impl)
        if session is None:
            if not self.opened:
                self._fail(Error(ILLEGAL_STATE, "begin before open"))
                return
            session = self._sessions[impl] = Session(self, impl)
            lib.pn_session_open(impl)
        self._events.append(SessionOpened(session))

    def _on_session_close(self, event: Any) -> None:
        impl = lib.pn_event_session(event)
        session = self._sessions.pop(impl, None)
        if session is None:
            return
        error = read_condition(lib.pn_session_remote_condition(impl))
        for link in list(session.links):
            reported = link._state == "closed"
            self._links.pop(link._impl, None)
            link._drop()
            if not reported:
                self._events.append(LinkDetached(link, False, error))
        session._impl = None
        lib.pn_session_close(impl)
        lib.pn_session_free(impl)
        self._events.append(SessionClosed(session, error))

    def _on_link_open(self, event: Any) -> None:
        impl = _event_link(event)
        link = self._links.get(impl)
        if link is None:
            self._on_link_request(impl)
            return
        try:
            link.read_remote()
        except MalformedMessage as problem:
            self._violated(link, Error(INVALID_FIELD, f"the answer to our attach is malformed: {problem}"))
            return
        terminus = link.remote_source if link.role == "receiver" else link.remote_target
        if link._state == "opening" and terminus is not None:  # null: the peer refuses, its detach follows
            link._state = "open"
            self._events.append(LinkOpened(link))

    def _on_link_request(self, impl: Any) -> None:
        session = self._sessions.get(lib.pn_link_session(impl))
        if session is None:
            return
        kind = SenderLink if lib.pn_link_is_sender(impl) else ReceiverLink
        link = self._links[impl] = kind(session, impl, ours=False)
        try:
            link.read_remote()
        except MalformedMessage as problem:
            link.refuse(Error(INVALID_FIELD, f"the attach is malformed: {problem}"))
            return
        if len(self._links) > self.max_links:
            link.refuse(Error(RESOURCE_LIMIT_EXCEEDED, f"more than {self.max_links} links on a connection"))
            return
        self._events.append(LinkRequested(link))

    def _on_link_detach(self, event: Any) -> None:
        impl = _event_link(event)
        link = self._links.get(impl)
        if link is None:
            return
        closed = _event_type(event) == lib.PN_LINK_REMOTE_CLOSE
        error = read_condition(lib.pn_link_remote_condition(impl))
        if link.role == "sender" and lib.pn_link_queued(impl):
            lib.pn_transport_pending(self._transport)  # frames what was sent before, else proton would keep it for ever
        lib.pn_link_open(impl)  # a no-op unless the attach was still held: AMQP wants an attach before the detach
        if closed:
            lib.pn_link_close(impl)
        else:
            lib.pn_link_detach(impl)
        reported = link._state == "closed"
        link._state = "closed"
        if not reported:
            self._events.append(LinkDetached(link, closed, error))
        if isinstance(link, ReceiverLink) and link._unsettled:
            link._gone = True  # its deliveries are still in somebody's hands
        else:
            self._free_link(link)

    def _free_link(self, link: Link) -> None:
        impl = link._impl
        self._links.pop(impl, None)
        link._drop()
        lib.pn_link_free(impl)

    def _on_link_flow(self, event: Any) -> None:
        link = self._links.get(_event_link(event))
        if isinstance(link, SenderLink):
            credit = lib.pn_link_credit(link._impl)
            drain = bool(lib.pn_link_get_drain(link._impl))
            if credit != link.credit or drain != link.drain:
                link.credit, link.drain = credit, drain
                self._events.append(Credit(link))
        elif isinstance(link, ReceiverLink) and link._draining:
            self._check_drained(link)

    def _check_drained(self, link: ReceiverLink) -> None:
        if not lib.pn_link_draining(link._impl):
            link._draining = False
            lib.pn_link_set_drain(link._impl, False)
            self._events.append(Drained(link))

    # --------------------------------------------------------------------------------------------------- output, end

    @property
    def pending_output(self) -> int:
        """About how many bytes proton holds for the peer: queued sends not yet taken by data_to_send()."""
        return self._held

    def _outgoing_bytes(self) -> int:
        """Sends that wait for the peer's session window."""
        return sum(int(lib.pn_session_outgoing_bytes(impl)) for impl in self._sessions)

    @property
    def output_done(self) -> bool:
        """Everything that will ever be sent has been taken: close the socket."""
        return self._output_ended and not self._last_words

    def data_to_send(self, limit: int = SEND_CHUNK_BYTES) -> bytes:
        """The next bytes for the socket, about `limit` at most; b"" when there is nothing to send now."""
        chunks: list[bytes] = []
        size = 0
        if self._last_words:
            chunks.append(self._last_words)
            self._last_words = b""
        if self._prelude is not None:
            if self._prelude.output:
                chunks.append(bytes(self._prelude.output))
                self._prelude.output.clear()
            return b"".join(chunks)
        if self._transport is None or self._output_ended:
            return b"".join(chunks)
        transport = self._transport
        buffer = _read_buffer
        while size < limit:
            count = lib.pn_transport_peek(transport, buffer.memory, READ_BUFFER_BYTES)
            if count <= 0:
                self._output_ended = count < 0
                self._held = self._outgoing_bytes() if self._held else 0
                break
            chunks.append(buffer.view[:count])
            lib.pn_transport_pop(transport, count)
            size += count
        else:
            self._held = max(0, self._held - size)
        self._pump()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def tick(self, now_s: float) -> float | None:
        """Call when the returned time has come (and once at the start): closes the connection of a silent peer, sends
        keep-alives. now_s: any clock that never goes back. None = no deadline."""
        if self._transport is None or self.closed:
            return None
        deadline = lib.pn_transport_tick(self._transport, max(1, int(now_s * 1000)))
        self._pump()
        return max(deadline / 1000.0, now_s + MIN_TICK_S) if deadline else None

    def _finish(self, error: Error | None) -> None:
        """The one place where ConnectionClosed comes from."""
        if self.closed:
            return
        self.closed = True
        for link in self._links.values():
            link._drop()
        for session in self._sessions.values():
            session._impl = None
        self._links.clear()
        self._sessions.clear()
        self._events.append(ConnectionClosed(error))

    def _die(self, error: Error | None, last_words: bytes) -> None:
        """Ends a connection that has no AMQP layer (any more): the bytes given are the last ones."""
        self._last_words += last_words
        self._prelude = None
        self._output_ended = True
        self._finish(error)

    def _fail(self, error: Error) -> None:
        """Ends the connection over a fault that proton has no reaction to. Our frames are made by hand, since
        proton sends no close on a connection that it does not consider open."""
        if self.closed:
            return
        words = []
        buffer = _read_buffer
        while (count := lib.pn_transport_peek(self._transport, buffer.memory, READ_BUFFER_BYTES)) > 0:
            words.append(buffer.view[:count])
            lib.pn_transport_pop(self._transport, count)
        if not lib.pn_connection_state(self._connection) & lib.PN_LOCAL_ACTIVE:
            words.append(frame(0, performative(0x10, [""])))
        words.append(frame(0, performative(0x18, [_as_value(error)])))
        self._die(error, b"".join(words))

    def free(self) -> None:
        """Releases the C objects. Also done by garbage collection; anything called afterwards does nothing."""
        connection, transport, collector = self._connection, self._transport, self._collector
        if connection is None:
            return
        if not self.closed:
            self._finish(Error(CONNECTION_FORCED, "the engine was freed"))
        self._connection = self._transport = self._collector = None
        self._output_ended = True
        lib.pn_transport_unbind(transport)
        lib.pn_connection_collect(connection, ffi.NULL)
        lib.pn_connection_release(connection)
        lib.pn_decref(connection)
        lib.pn_decref(transport)
        lib.pn_collector_free(collector)

    def __del__(self) -> None:
        if getattr(self, "_collector", None) is not None:
            self.free()


def _as_value(error: Error) -> Described:
    fields: list[Any] = [symbol(error.condition), error.description, {symbol(key): item for key, item in error.info.items()}]
    return Described(ulong(0x1D), fields)


def _read_state(delivery: Any, code: int) -> DeliveryState:
    """The peer's state of a delivery, copied out of C."""
    remote = lib.pn_delivery_remote(delivery)
    if code == RELEASED_CODE:
        return RELEASED
    if code == REJECTED_CODE:
        return Rejected(read_condition(lib.pn_disposition_condition(remote)))
    try:
        if code == MODIFIED_CODE:
            return Modified(
                bool(lib.pn_disposition_is_failed(remote)),
                bool(lib.pn_disposition_is_undeliverable(remote)),
                read_map(lib.pn_disposition_annotations(remote)),
            )
        if code in (0, RECEIVED_CODE):
            return SETTLED_WITHOUT_STATE
        fields = read_data(lib.pn_disposition_data(remote))
    except MalformedMessage:
        fields = None
    return OtherState(code, tuple(fields) if isinstance(fields, list) else ())


_HANDLERS: Final[dict[int, Callable[[Engine, Any], None]]] = {
    lib.PN_CONNECTION_REMOTE_OPEN: Engine._on_connection_open,
    lib.PN_CONNECTION_REMOTE_CLOSE: Engine._on_connection_close,
    lib.PN_SESSION_REMOTE_OPEN: Engine._on_session_open,
    lib.PN_SESSION_REMOTE_CLOSE: Engine._on_session_close,
    lib.PN_LINK_REMOTE_OPEN: Engine._on_link_open,
    lib.PN_LINK_REMOTE_CLOSE: Engine._on_link_detach,
    lib.PN_LINK_REMOTE_DETACH: Engine._on_link_detach,
    lib.PN_LINK_FLOW: Engine._on_link_flow,
    lib.PN_TRANSPORT_ERROR: Engine._on_transport_error,
    lib.PN_TRANSPORT_TAIL_CLOSED: Engine._on_tail_closed,
}
