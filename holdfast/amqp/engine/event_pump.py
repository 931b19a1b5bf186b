"""Translation of proton's events into ours: the input half of an engine (engine.py is the other half).

Rules never broken:
- the queue is emptied within each call that can fill it, so that events of one batch of input are never mixed with
  others (the loops of transfer_pump.py count on it);
- no memory grows with what a peer sends beyond its credit; links and sessions are bounded by count;
- references that we hold on C objects are given back only when nothing in proton can still point at them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from cproton import ffi, lib

from holdfast.amqp.encoding.codec import symbols_of, uint
from holdfast.amqp.engine.deferred_release import DeferredRelease
from holdfast.amqp.engine.frame_input import ProtonInput
from holdfast.amqp.engine.transfer_pump import READ_BUFFER_BYTES, TransferPump, read_buffer
from holdfast.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    Error,
    MalformedMessage,
)
from holdfast.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    LinkDetached,
    LinkOpened,
    LinkRequested,
    SessionClosed,
    SessionOpened,
)
from holdfast.amqp.framing.attach_fields import frames_of, with_fields
from holdfast.amqp.framing.early_handles import EarlyHandles
from holdfast.amqp.framing.frame_scanner import FrameScanner
from holdfast.amqp.framing.full_lists import FullLists, needs_full_lists
from holdfast.amqp.framing.handshake import AMQP_HEADER, frame, performative
from holdfast.amqp.framing.performatives import (
    ATTACH_FRAME,
    BEGIN_FRAME,
    MAX_CONTROL_FRAME_BYTES,
    MAX_CONTROL_VALUES,
    OPEN_FRAME,
    Place,
    ScannedFrame,
)
from holdfast.amqp.links.delivery_state_encoding import error_value
from holdfast.amqp.links.dispositions import read_condition, text
from holdfast.amqp.links.link import (
    CLOSED,
    OPEN,
    OPENING,
    Link,
    Session,
)
from holdfast.amqp.links.memory_accounting import attach_bytes, gone_too_far, too_much
from holdfast.amqp.links.receiver_link import ReceiverLink
from holdfast.amqp.links.sender_link import SenderLink
from holdfast.amqp.links.terminus import Coordinator, map_of

_peek, _pop, _event_type, _event_link = (
    lib.pn_collector_peek,
    lib.pn_collector_pop,
    lib.pn_event_type,
    lib.pn_event_link,
)
_DELIVERY, _TRANSPORT = lib.PN_DELIVERY, lib.PN_TRANSPORT

GONE: Final = "the peer has left without closing the connection"
PROTON_SAYS: Final = {
    "connection aborted": GONE,
    "local-idle-timeout expired": "nothing came from the peer for as long as its silence is borne",
}
"""Texts of proton, and ours for people."""

_UNREADABLE = f"malformed, or larger than {MAX_CONTROL_FRAME_BYTES} bytes or {MAX_CONTROL_VALUES} values"

_log = logging.getLogger("holdfast.amqp")


@ffi.callback("void(pn_transport_t *, const char *)")
def _on_log_line(transport: Any, line: Any) -> None:
    """Log proton's remarks on what peers do; left alone it writes to stderr, where any peer could fill the disk."""
    _log.debug("proton: %s", text(line))


class EventPump(TransferPump):
    """The state of a connection and the loop that turns proton's events into ours."""

    def __init__(self, role: str, max_message_size: int, max_links: int) -> None:
        self.role = role
        self.max_message_size = max_message_size
        self.max_links = max_links
        self.closed = False
        """ConnectionClosed has been queued."""
        self.opened = False
        """The peer's open has arrived; what it said is in remote_*."""
        self.remote_container: str | None = None
        self.remote_hostname: str | None = None
        self.remote_offered_capabilities: tuple[str, ...] = ()
        self.remote_desired_capabilities: tuple[str, ...] = ()
        self.remote_properties: Mapping[str, Any] = {}
        self.kept_bytes = 0
        """Bytes that the peer makes this engine keep beyond the frames that brought them (memory_accounting.py)."""
        self.keep_limit = sys.maxsize
        """Limit of `kept_bytes`; the owner may change it at any time."""
        self._events: list[Event] = []
        self._links: dict[Any, Link] = {}
        self._sessions: dict[Any, Session] = {}
        self._channels: dict[int, Session] = {}
        self._graveyard: list[Any] = []
        self._ended_sessions: list[Any] = []
        self._pump_number = 0
        self._frames_seen = 0
        self._due: int | None = None
        self._held = 0
        self._spoke = False
        self._at_eof = False
        self._said = b""
        self._last_words = b""
        self._full_lists: FullLists | None = None  # of a peer that needs every field of a frame
        self._output_ended = False
        self._remains: DeferredRelease | None = None
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        self._collector = lib.pn_collector()
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_set_tracer(self._transport, _on_log_line)
        self._has_begun = False
        self._scanner = FrameScanner()
        self._input = ProtonInput(self._transport, self._scanner)
        self._early = EarlyHandles()

    def _is_parting(self, place: Place) -> bool:
        channel, handle = place
        session = self._channels.get(channel) if channel is not None else None
        return session is not None and handle is not None and session._handles.get(handle) in self._early.parting

    def _pump(self) -> None:
        """Turns proton's queued events into ours until the queue is empty."""
        collector = self._collector
        self._pump_number += 1
        while event := _peek(collector):
            kind = _event_type(event)
            if kind == _DELIVERY:
                self._on_deliveries(event)
                continue
            if kind != _TRANSPORT:
                handler = _HANDLERS.get(kind)
                if handler is not None:
                    handler(self, event)
            _pop(collector)
        self._frames_seen = lib.pn_transport_get_frames_input(self._transport)
        if self._graveyard and not self.closed:  # those that the end leaves, `free_some` gives back
            _bury(self._graveyard)

    # ------------------------------------------------------------------------------------- connection, sessions, links

    def _on_connection_open(self, event: Any) -> None:
        if self.opened:
            self._fail(Error(ILLEGAL_STATE, "the connection was opened twice"))
            return
        said = self._scanner.next(OPEN_FRAME)
        try:
            self.remote_container = _text(said.field(0))
            self.remote_hostname = _text(said.field(1))
            self.remote_offered_capabilities = symbols_of(said.field(7))
            self.remote_desired_capabilities = symbols_of(said.field(8))
            self.remote_properties = map_of(said.field(9), "connection properties")
        except MalformedMessage as problem:
            self._fail(Error(INVALID_FIELD, f"the open is malformed: {problem}"))
            return
        if said.fields is None:
            self._fail(Error(DECODE_ERROR, f"the open is {_UNREADABLE}"))
            return
        self.opened = True
        if self.role == "server":
            self._full_lists = FullLists() if needs_full_lists(said.fields) else None
            lib.pn_connection_open(self._connection)
        self._events.append(ConnectionOpened())

    def _on_connection_close(self, event: Any) -> None:
        error = read_condition(lib.pn_connection_remote_condition(self._connection), trusted=self.role == "client")
        if not self.closed:
            lib.pn_connection_open(self._connection)
            lib.pn_connection_close(self._connection)
        self._finish(error)

    def _on_transport_error(self, event: Any) -> None:
        error = read_condition(lib.pn_transport_condition(self._transport), trusted=False)
        if error is not None and error.description in PROTON_SAYS:
            error = Error(error.condition, PROTON_SAYS[error.description])
        self._finish(error)

    def _on_tail_closed(self, event: Any) -> None:
        """proton reads no more. If it has no word for why, the frame had no meaning that it knows."""
        if self.closed or lib.pn_connection_state(self._connection) & lib.PN_REMOTE_CLOSED:
            return
        if self._at_eof:
            self._fail(Error(FRAMING_ERROR, GONE))
        elif not lib.pn_condition_is_set(lib.pn_transport_condition(self._transport)):
            self._fail(Error(DECODE_ERROR, "a frame is not an AMQP 1.0 performative"))

    def _on_session_open(self, event: Any) -> None:
        begin = self._scanner.next(BEGIN_FRAME)
        impl = lib.pn_event_session(event)
        session = self._sessions.get(impl)
        if begin.fields is None or not self.opened:
            self._fail(Error(ILLEGAL_STATE, "begin before open" if begin.fields else f"the begin is {_UNREADABLE}"))
            return
        if begin.channel in self._channels or (session is not None and session._channel is not None):
            self._fail(Error(ILLEGAL_STATE, f"channel {begin.channel} has a session already"), corrupt=True)
            return
        if session is None:
            session = self._sessions[impl] = Session(self, impl)
            self._expect_output()
            lib.pn_session_open(impl)
        session._channel = begin.channel
        self._channels[begin.channel] = session
        self._events.append(SessionOpened(session))

    def _on_session_close(self, event: Any) -> None:
        impl = lib.pn_event_session(event)
        session = self._sessions.pop(impl, None)
        if session is None:
            return
        error = read_condition(lib.pn_session_remote_condition(impl), trusted=self.role == "client")
        for link in list(session.links):
            self._links.pop(link._impl, None)
            link._drop()
            self._report(LinkDetached(link, False, error))
        if session._channel is not None:
            self._channels.pop(session._channel, None)
            self._early.session_ended(session._channel)
        session._drop()
        lib.pn_session_close(impl)
        lib.pn_session_free(impl)
        self._events.append(SessionClosed(session, error))

    def _on_link_open(self, event: Any) -> None:
        impl = _event_link(event)
        attach = self._scanner.next(ATTACH_FRAME)
        session = self._sessions.get(lib.pn_link_session(impl))
        if session is None:
            return
        handle = attach.field(1)
        if attach.fields is None or not isinstance(handle, uint):  # of any other type proton makes 0
            self._fail(Error(DECODE_ERROR, f"the attach is {_UNREADABLE}"))
            return
        if handle in session._handles:
            self._fail(Error(HANDLE_IN_USE, f"handle {handle} is in use by another link"), corrupt=True)
            return
        link = self._links.get(impl)
        requested = link is None
        if link is None:
            kind = SenderLink if lib.pn_link_is_sender(impl) else ReceiverLink
            link = self._links[impl] = kind(session, impl, ours=False)
        session._handles[handle] = link
        link._handle = handle
        link._kept_bytes = attach_bytes(attach.size, attach.values)
        self.kept_bytes += link._kept_bytes
        if requested:
            self._on_link_request(link, attach)
        else:
            self._on_link_answer(link, attach)

    def _on_link_request(self, link: Link, attach: ScannedFrame) -> None:
        try:
            link.read_attach(attach)
        except MalformedMessage as problem:
            link.refuse(Error(INVALID_FIELD, f"the attach is malformed: {problem}"))
            return
        if len(self._links) > self.max_links:
            link.refuse(Error(RESOURCE_LIMIT_EXCEEDED, f"more than {self.max_links} links on a connection"))
            if len(self._links) > 2 * self.max_links:
                self._fail(Error(RESOURCE_LIMIT_EXCEEDED, f"{len(self._links)} links, refused ones with them: detach"))
            return
        if self.kept_bytes > self.keep_limit:
            link.refuse(too_much(self, "the link"))
            if (error := gone_too_far(self)) is not None:
                self._fail(error)
            return
        if isinstance(link, ReceiverLink) and isinstance(link.remote_target, Coordinator):
            link.in_order = True
            self._scanner.transactional = True
        self._events.append(LinkRequested(link))

    def _on_link_answer(self, link: Link, attach: ScannedFrame) -> None:
        try:
            link.read_attach(attach)
        except MalformedMessage as problem:
            self._violated(link, Error(INVALID_FIELD, f"the answer to our attach is malformed: {problem}"))
            return
        terminus = link.remote_source if link.role == "receiver" else link.remote_target
        if link._state == OPENING and terminus is not None:  # null: the peer refuses, its detach follows
            link._state = OPEN
            self._events.append(LinkOpened(link))

    def _on_link_detach(self, event: Any) -> None:
        impl = _event_link(event)
        link = self._links.get(impl)
        if link is None:
            return
        closed = _event_type(event) == lib.PN_LINK_REMOTE_CLOSE
        error = read_condition(lib.pn_link_remote_condition(impl), trusted=self.role == "client")
        link._release_handle()
        if link.role == "sender" and lib.pn_link_queued(impl):
            # frames what was sent before, else proton would keep it for ever
            lib.pn_transport_pending(self._transport)
        lib.pn_link_open(impl)  # a no-op unless the attach was still held: AMQP wants an attach before the detach
        if closed:
            lib.pn_link_close(impl)
        else:
            lib.pn_link_detach(impl)
        link._state = CLOSED
        self._report(LinkDetached(link, closed, error))
        if isinstance(link, ReceiverLink) and link._unsettled:
            link._gone = True  # its deliveries are still in somebody's hands
        else:
            self._free_link(link)

    def _free_link(self, link: Link) -> None:
        impl = link._impl
        self._links.pop(impl, None)
        link._drop()
        lib.pn_link_free(impl)

    # -------------------------------------------------------------------------------------------------------- the end

    def _expect_output(self) -> None:
        """Something is about to be said that takes a frame: output that stays away means that proton has given up."""
        if self._due is None and lib.pn_connection_state(self._connection) & lib.PN_LOCAL_ACTIVE:
            self._due = lib.pn_transport_get_frames_output(self._transport)

    def _finish(self, error: Error | None) -> None:
        """The one place where ConnectionClosed comes from."""
        if self.closed:
            return
        self.closed = True
        for link in self._links.values():
            link._drop()
        for session in self._sessions.values():
            session._drop()
        self._links.clear()
        self._sessions.clear()
        self._channels.clear()
        self._early.clear()
        self._events.append(ConnectionClosed(error))

    def _die(self, error: Error | None, last_words: bytes) -> None:
        """Ends a connection that has no AMQP layer (any more): the bytes given are the last ones."""
        self._said = b""
        self._last_words += last_words
        self._output_ended = True
        self._finish(error)

    def _fail(self, error: Error, *, corrupt: bool = False) -> None:
        """Ends the connection over a fault that proton has no reaction to. Our frames are made by hand, since
        proton sends no close on a connection that it does not consider open. corrupt: proton's tables cannot be
        relied on any more."""
        if self.closed:
            return
        words = [] if corrupt else self._flush()
        if not self._spoke:
            words.append(AMQP_HEADER)
        if not self._spoke or not lib.pn_connection_state(self._connection) & lib.PN_LOCAL_ACTIVE:
            words.append(frame(0, performative(0x10, [""])))
        words.append(frame(0, performative(0x18, [error_value(error)])))
        self._die(error, b"".join(words))

    def _flush(self) -> list[bytes]:
        """Take everything that is to be sent now."""
        said, self._said = self._said, b""
        words = frames_of(self._transport, read_buffer.memory, read_buffer.view, READ_BUFFER_BYTES)
        self._spoke = self._spoke or bool(words)
        return [said, *words] if said else words

    def _attach_saying(self, link: Link, said: Mapping[int, bytes]) -> None:
        """Opens a link whose attach says what proton cannot, encoded and by place; it is said at once, after what was
        to be said before it."""
        before = b"".join(self._flush())
        lib.pn_link_open(link._impl)
        self._said = before + with_fields(b"".join(self._flush()), link.name, said)
        self._pump()


def _bury(graves: list[Any]) -> None:
    """Gives back references to C objects that are gone from our tables. Links: only with an empty queue of events.
    Sessions: moreover only after their end has been put out, which queues events of their links. proton frees a
    session with all its links, also those that a queued event points at."""
    for impl in graves:
        lib.pn_decref(impl)
    graves.clear()


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise MalformedMessage(f"a {type(value).__name__} where a text belongs")
    return None if value is None else str(value)


_HANDLERS: Final[dict[int, Callable[[EventPump, Any], None]]] = {
    lib.PN_CONNECTION_REMOTE_OPEN: EventPump._on_connection_open,
    lib.PN_CONNECTION_REMOTE_CLOSE: EventPump._on_connection_close,
    lib.PN_SESSION_REMOTE_OPEN: EventPump._on_session_open,
    lib.PN_SESSION_REMOTE_CLOSE: EventPump._on_session_close,
    lib.PN_LINK_REMOTE_OPEN: EventPump._on_link_open,
    lib.PN_LINK_REMOTE_CLOSE: EventPump._on_link_detach,
    lib.PN_LINK_REMOTE_DETACH: EventPump._on_link_detach,
    lib.PN_LINK_FLOW: EventPump._on_link_flow,
    lib.PN_TRANSPORT_ERROR: EventPump._on_transport_error,
    lib.PN_TRANSPORT_TAIL_CLOSED: EventPump._on_tail_closed,
}
