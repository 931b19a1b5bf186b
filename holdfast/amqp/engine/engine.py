"""The AMQP 1.0 engine: bytes in, events out; calls in, bytes out. No sockets, no clock, no threads of its own.

One class serves both roles: the node accepts connections with role "server", the client library opens them with
role "client". Below it stands proton's C engine, reached through its functions, not its Python classes. What
proton does not do is done here: protocol headers and SASL (handshake.py), reading attaches (frame_scanner.py), policing
of credit, message size and link count, an error for garbage that proton drops without a word (event_pump.py).

Rule never broken: whatever a peer sends ends in events, never in an exception; a peer that breaks the protocol
gets the AMQP error it caused and a ConnectionClosed event (or LinkDetached(local=True) if only the link is at
fault).

Usage: receive() what the socket gives, handle events(), write data_to_send() until it is b"", call tick(now) at
the time that it returned. After ConnectionClosed flush, and close the socket when output_done. free() (or
garbage collection) releases the C memory. An engine belongs to one thread at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from cproton import lib

from holdfast.amqp.encoding.codec import encode_symbol_map, symbol_array
from holdfast.amqp.engine.deferred_release import DeferredRelease
from holdfast.amqp.engine.event_pump import EventPump, _bury
from holdfast.amqp.engine.transfer_pump import READ_BUFFER_BYTES, read_buffer
from holdfast.amqp.errors import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
    Error,
    UsageError,
)
from holdfast.amqp.events import AuthenticationWork, Event
from holdfast.amqp.framing.handshake import (
    AMQP_HEADER,
    ClientHandshake,
    HandshakeError,
    Mechanisms,
    ServerHandshake,
    anonymous,
    frame,
)
from holdfast.amqp.framing.sasl import FixedLogin, Login
from holdfast.amqp.links.dispositions import write_condition, write_data
from holdfast.amqp.links.link import MIXED, Session
from holdfast.amqp.links.receiver_link import ReceiverLink
from holdfast.amqp.links.sender_link import SenderLink
from holdfast.amqp.links.terminus import Coordinator, Source, Target

MAX_FRAME_BYTES = 65536
"""Default max-frame-size: one connection's buffers stay small, and framing still costs next to nothing."""

MAX_CHANNEL = 255
"""Default channel-max: clients use one session, some a handful; each costs a few KiB of C memory."""

MAX_LINKS = 1024
"""Links per connection: a thousand partitions over one connection fit; an attach loop does not."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Default largest message, also the bound on what an unfinished message may occupy."""

SEND_CHUNK_BYTES = 256 * 1024
"""About what one data_to_send() returns: a few socket buffers, so a slow peer does not make us copy megabytes."""

HANDSHAKE_TIMEOUT_S = 10.0
"""Time from the first tick() to the peer's open. Honest peers take milliseconds; others hold a socket for nothing."""

MIN_TICK_S = 0.02
"""A peer may demand a keep-alive every millisecond; it gets one no more often than this."""


class Engine(EventPump):
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
        mechanisms: Mechanisms | None = None,
        sasl_required: bool = False,
        sasl: str | Login | None = "ANONYMOUS",
        sasl_response: bytes = b"",
    ) -> None:
        """idle_timeout_s: how long we tolerate silence (half of it is advertised, as the specification advises).
        max_message_size: bytes, per link, advertised on attach. Servers: mechanisms (by name; or a function that is
        asked when the peer wants to know), by default ANONYMOUS; peers without a SASL layer are refused where that is
        not offered, or with sasl_required. Clients: sasl, a mechanism with its sasl_response, or a Login that chooses
        (None: no SASL)."""
        if role not in ("server", "client"):
            raise UsageError(f"role is {role!r}; it must be 'server' or 'client'")
        super().__init__(role, max_message_size, max_links)
        self.identity: Any = None
        """Identity of the peer according to SASL; None: it had no such layer."""
        self._default_session: Session | None = None
        self._link_number = 0
        self._handshake_deadline_s: float | None = None
        self._header = b""
        self._handshake: ServerHandshake | ClientHandshake | None = None
        if role == "server":
            lib.pn_transport_set_server(self._transport)
            self._scanner.watching = True
            self._handshake = ServerHandshake(mechanisms or {"ANONYMOUS": anonymous}, sasl_required)
        elif sasl is not None:
            login = FixedLogin(sasl, sasl_response) if isinstance(sasl, str) else sasl
            self._handshake = ClientHandshake(login, hostname)
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
    def remote_idle_timeout_s(self) -> float:
        """Time for which the peer tolerates silence; 0 = for ever."""
        transport = self._transport
        return 0.0 if transport is None else lib.pn_transport_get_remote_idle_timeout(transport) / 1000.0

    def open(self) -> None:
        """Opens our side. A server does so by itself when the peer opens."""
        if self._connection is not None:
            lib.pn_connection_open(self._connection)

    def close(self, error: Error | None = None) -> None:
        """Closes the connection with an error or cleanly; ConnectionClosed follows when the peer has answered (the
        owner bounds that wait, then closes the socket)."""
        if self._connection is None or self.closed:
            return
        if self._handshake is not None:
            self._die(error, b"")
            return
        lib.pn_connection_open(self._connection)
        if error is not None:
            write_condition(lib.pn_connection_condition(self._connection), error)
        lib.pn_connection_close(self._connection)

    def watch_for_batches(self, watching: bool) -> None:
        """Choose whether Transfers tell which payloads came as Event Hubs' batches: it costs half a microsecond for
        each KiB that comes. A server does until it is told not to."""
        self._scanner.watching = watching
        self._scanner.batches.clear()

    # ------------------------------------------------------------------------------------------------ sessions, links

    def open_session(self) -> Session:
        """Begins a session (clients), after open()."""
        if self._connection is None or self.closed:
            raise UsageError("the connection is gone")
        if not lib.pn_connection_state(self._connection) & lib.PN_LOCAL_ACTIVE:
            raise UsageError("open() the connection first: proton forgets what was begun before")
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
        desired_capabilities: Sequence[str] = (),
    ) -> SenderLink:
        """Attaches a link that sends to `target` (an address or a Target). LinkOpened or LinkDetached follows."""
        place = Target(address=target) if isinstance(target, str) else target
        link = self._attach(lib.pn_sender, SenderLink, name, session, max_message_size)
        link._write_attach(source or Source(), place, properties, snd_settle_mode, 0, desired_capabilities)
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

    def authenticated(self, result: object) -> None:
        """Take the result of an AuthenticationWork. Events may follow, and there may be something to send."""
        if self._handshake is not None and self._handshake.work is not None and not self.closed:
            self.receive(self._shake_hands(result, worked=True))

    def _receive_prelude(self, data: bytes) -> bytes:
        if self._handshake is not None:
            data = self._shake_hands(data)
        return self._receive_header(data) if data and not self.closed else b""

    def _shake_hands(self, data: Any, *, worked: bool = False) -> bytes:
        """Go on with what the peer said, or with the result of work; returns what follows the handshake."""
        handshake = self._handshake
        assert handshake is not None
        busy = handshake.work is not None and not worked
        try:
            rest = handshake.worked(data) if worked else handshake.receive(data)
        except HandshakeError as problem:
            self._handshake = None
            self._die(problem.error, bytes(handshake.output))
            return b""
        if handshake.done:
            self.identity = handshake.identity
            self._last_words = bytes(handshake.output)
            self._handshake = None
        elif handshake.work is not None and not busy:
            self._events.append(AuthenticationWork(handshake.work))
        return rest

    def _receive_header(self, data: bytes) -> bytes:
        """The eight bytes before the first frame; returns what follows them."""
        missing = 8 - len(self._header)
        self._header += data[:missing]
        if not AMQP_HEADER.startswith(self._header):
            self._die(Error(FRAMING_ERROR, f"peer does not speak AMQP 1.0: it begins with {self._header!r}"), b"")
        elif len(self._header) == 8:
            lib.pn_transport_push(self._transport, self._header, 8)
            self._has_begun = True
        return data[missing:]

    def receive_eof(self) -> None:
        """The peer closed its side of the socket."""
        if self.closed:
            return
        if not self.opened:
            self._handshake = None
            self._die(Error(FRAMING_ERROR, "the peer went away before it opened the connection"), b"")
            return
        self._at_eof = True
        lib.pn_transport_close_tail(self._transport)
        self._pump()

    def events(self) -> list[Event]:
        """Take the events since the last call."""
        events, self._events = self._events, []
        return events

    # --------------------------------------------------------------------------------------------------- output, end

    @property
    def pending_output(self) -> int:
        """About how many bytes proton holds for the peer: queued sends not yet taken by data_to_send()."""
        return self._held

    @property
    def output_done(self) -> bool:
        """True if everything that will ever be sent has been taken: close the socket."""
        return self._output_ended and not self._last_words

    def data_to_send(self, limit: int = SEND_CHUNK_BYTES) -> bytes:
        """The next bytes for the socket, about `limit` at most; b"" when there is nothing to send now."""
        lists = self._full_lists
        while True:
            said = self._next_output(limit)
            if lists is None or not said:
                return said
            if written := lists.rewrite(said):  # else this was the beginning of a large frame
                return written

    def _next_output(self, limit: int) -> bytes:
        if self._last_words:
            words, self._last_words = self._last_words, b""
            return words
        if self._handshake is not None:
            words = bytes(self._handshake.output)
            self._handshake.output.clear()
            return words
        if self._said:
            words, self._said = self._said, b""
            return words
        if self._output_ended:
            return b""
        transport, size = self._transport, 0
        memory, view = read_buffer.memory, read_buffer.view
        chunks: list[bytes] = []
        while size < limit:
            count = lib.pn_transport_peek(transport, memory, READ_BUFFER_BYTES)
            if count <= 0:
                self._emptied(count < 0)
                break
            chunks.append(view[:count])
            lib.pn_transport_pop(transport, count)
            size += count
        else:
            self._held = max(0, self._held - size)
        self._spoke = self._spoke or size > 0
        self._pump()
        if self._ended_sessions and not self.closed:
            _bury(self._ended_sessions)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _emptied(self, ended: bool) -> None:
        """Called when proton has nothing more to say for now (`ended`: for ever)."""
        self._output_ended = ended
        if self._held:  # what is left waits for the peer's session window
            self._held = sum(session._waiting_bytes() for session in self._sessions.values())
        if self._due is not None:
            due, self._due = self._due, None
            if due == lib.pn_transport_get_frames_output(self._transport) and not self.closed:
                told = "no channel or handle left within the limits that the peer stated"
                self._fail(Error(RESOURCE_LIMIT_EXCEEDED, told))

    def tick(self, now_s: float) -> float | None:
        """Call when the returned time has come (and once at the start): closes the connection of a silent peer, sends
        keep-alives. now_s: any clock that never goes back. None = no deadline."""
        if self._transport is None or self.closed:
            return None
        if not self.opened:
            return self._tick_handshake(now_s)
        deadline = lib.pn_transport_tick(self._transport, max(1, int(now_s * 1000)))
        self._pump()
        return max(deadline / 1000.0, now_s + MIN_TICK_S) if deadline else None

    def beat(self) -> None:
        """Send an empty frame, which says that this side lives. `tick` sends those that the peer asked for; this one is
        for a peer that looks more often."""
        if self._connection is not None and self.opened and not self.closed and self._handshake is None:
            self._said = b"".join([*self._flush(), frame(0, b"")])

    def _tick_handshake(self, now_s: float) -> float | None:
        if self._handshake_deadline_s is None:
            self._handshake_deadline_s = now_s + HANDSHAKE_TIMEOUT_S
        if now_s < self._handshake_deadline_s:
            return self._handshake_deadline_s
        self._handshake = None
        self._die(Error(RESOURCE_LIMIT_EXCEEDED, f"no open within {HANDSHAKE_TIMEOUT_S:g} seconds"), b"")
        return None

    def free(self) -> None:
        """Releases the C objects. Also done by garbage collection; anything called afterwards does nothing."""
        self.free_some(sys.maxsize)

    def free_some(self, most_links: int) -> bool:
        """Release the C objects, those of at most so many links at a time. Returns True when all are released; until
        then, call it again."""
        if self._connection is not None:
            self._finish(Error(CONNECTION_FORCED, "the engine was freed"))
            connection, transport, collector = self._connection, self._transport, self._collector
            self._connection = self._transport = self._collector = None
            self._output_ended = True
            self._input.clear()
            self._remains = DeferredRelease(connection, transport, collector, [*self._ended_sessions, *self._graveyard])
            self._ended_sessions.clear()
            self._graveyard.clear()
        if self._remains is not None and self._remains.release(most_links):
            self._remains = None
        return self._remains is None

    def __del__(self) -> None:
        if getattr(self, "_collector", None) is not None or getattr(self, "_remains", None) is not None:
            self.free()
