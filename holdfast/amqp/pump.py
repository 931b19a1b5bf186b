"""From proton's queue of events to ours: the input half of an engine (engine.py is the other half).

Rules never broken:
- the queue is emptied within each call that can fill it, so that events of one batch of input are never mixed
  with others (the loop below counts on it);
- no memory grows with what a peer sends beyond its credit: complete messages leave proton at once, partial ones
  are bounded by max_message_size, links and sessions by count;
- references that we hold on C objects are given back only when nothing in proton can still point at them.

How the hot loop saves calls: a foreign call costs about 150 ns. The first transfer event of a link drains the
whole link (current, recv, advance per message; "is it complete" is asked only for the last, since transfers on
a link cannot interleave). If as many messages came out as frames went in, every queued event belongs to one of
them and all are popped without being looked at. Rejected alternative: one Python-visible event per transfer,
which doubles the cost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any, Final

from cproton import ffi, lib

from holdfast.amqp.codec import Described, symbol, symbols_of, ulong
from holdfast.amqp.dispositions import read_condition, read_state, text
from holdfast.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    Error,
    MalformedMessage,
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
from holdfast.amqp.link import SETTLED, Link, ReceiverLink, SenderLink, Session
from holdfast.amqp.prelude import AMQP_HEADER, frame, performative
from holdfast.amqp.states import ACCEPTED, ACCEPTED_CODE, RECEIVED_CODE, RELEASED_CODE
from holdfast.amqp.tap import ATTACH, BEGIN, OPEN, Frame, Tap
from holdfast.amqp.terminus import map_of

READ_BUFFER_BYTES = 64 * 1024
"""Messages up to this size leave proton in one call."""

_peek, _pop, _event_type = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_link, _event_delivery = lib.pn_event_link, lib.pn_event_delivery
_current, _recv, _advance = lib.pn_link_current, lib.pn_link_recv, lib.pn_link_advance
_settle, _remote_state = lib.pn_delivery_settle, lib.pn_delivery_remote_state
_DELIVERY, _TRANSPORT, _ABORTED = lib.PN_DELIVERY, lib.PN_TRANSPORT, -11


class _ReadBuffer(threading.local):
    """Where proton copies bytes to before they become Python's. Per thread: foreign calls release the
    interpreter lock."""

    def __init__(self) -> None:
        self.memory = ffi.new("char[]", READ_BUFFER_BYTES)
        self.view = ffi.buffer(self.memory)


read_buffer = _ReadBuffer()

_log = logging.getLogger("holdfast.amqp")


@ffi.callback("void(pn_transport_t *, const char *)")
def _on_log_line(transport: Any, line: Any) -> None:
    """proton remarks on what peers do; left alone it writes to stderr, where any peer could fill the disk."""
    _log.debug("proton: %s", text(line))


class EventPump:
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
        self._last_words = b""
        self._output_ended = False
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        self._collector = lib.pn_collector()
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_set_tracer(self._transport, _on_log_line)
        self._tap = Tap(self._transport)

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
                elif isinstance(link, SenderLink):
                    self._settle_run(link, event)
                    continue
            elif kind != _TRANSPORT:
                handler = _HANDLERS.get(kind)
                if handler is not None:
                    handler(self, event)
            _pop(collector)
        self._frames_seen = lib.pn_transport_get_frames_input(self._transport)
        if self._graveyard:
            _bury(self._graveyard)

    # ---------------------------------------------------------------------------------------------------- transfers

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
            told = f"{queued} messages came with credit for {credit}: wait for credit"
            error = Error(TRANSFER_LIMIT_EXCEEDED, told)
        if error is not None:
            self._violated(link, error)
            taken += self._discard(link, queued - taken)
        elif link._draining:
            self._check_drained(link)
        return taken

    def _take(self, link: ReceiverLink, count: int, queued: int) -> tuple[int, Error | None]:
        """The first `count` messages of a link become one Transfers event, but for a last one that is incomplete."""
        impl, limit = link._impl, link.max_message_size
        memory, view = read_buffer.memory, read_buffer.view
        presettled = link.remote_snd_settle_mode == SETTLED
        deliveries: list[Any] = []
        payloads: list[bytes] = []
        taken = 0
        error: Error | None = None
        certain = count if count < queued else count - 1  # before this index every message is complete
        while taken < count:
            delivery = _current(impl)
            size = _recv(impl, memory, READ_BUFFER_BYTES)
            if taken < certain and 0 <= size < READ_BUFFER_BYTES and size <= limit and not link._parts:
                payload = view[:size]
            else:
                if size == _ABORTED:
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
        """Moves what is there of the current message to its parts. size: what the read buffer holds of it."""
        while size > 0:
            link._parts.append(read_buffer.view[:size])
            link._parts_bytes += size
            if link._parts_bytes > limit:
                return Error(MESSAGE_SIZE_EXCEEDED, f"a message is larger than {limit} bytes: split it")
            size = _recv(link._impl, read_buffer.memory, READ_BUFFER_BYTES) if size == READ_BUFFER_BYTES else 0
        return None

    def _abort(self, link: ReceiverLink, delivery: Any) -> None:
        """The peer took a message back: forget its parts, give back its credit."""
        link._parts = []
        link._parts_bytes = 0
        _settle(delivery)
        lib.pn_link_flow(link._impl, 1)

    def _discard(self, link: ReceiverLink, count: int) -> int:
        """Messages of a link that we have closed or never accepted: released, so the sender knows they were not
        kept."""
        link._parts = []
        link._parts_bytes = 0
        discarded = 0
        while discarded < count and (delivery := _current(link._impl)):
            lib.pn_delivery_update(delivery, RELEASED_CODE)
            _settle(delivery)
            discarded += 1
        return discarded

    def _violated(self, link: Link, error: Error) -> None:
        """The peer broke a rule of this link: close it and say so once."""
        link.close(error)
        self._report(LinkDetached(link, True, error, local=True))

    def _report(self, event: LinkDetached) -> None:
        if not event.link._reported:
            event.link._reported = True
            self._events.append(event)

    def _settle_run(self, link: SenderLink, event: Any) -> None:
        """Takes the outcomes of one link's sends off the queue until something else comes up. An event that is not of a
        delivery has no delivery in the table, so its type need not be asked."""
        collector, outstanding = self._collector, link._outstanding
        if link._pumped != self._pump_number:
            link._pumped = self._pump_number
            link._outcomes = []
        outcomes = link._outcomes
        known = len(outcomes)
        while event:
            delivery = _event_delivery(event)
            number = outstanding.pop(delivery, None)
            if number is None:
                if link._impl is not None and _event_link(event) == link._impl and _event_type(event) == _DELIVERY:
                    _pop(collector)  # a state after the final one
                break
            code = _remote_state(delivery)
            if code == ACCEPTED_CODE:
                outcomes.append((number, ACCEPTED))
                _settle(delivery)
            elif (code == 0 or code == RECEIVED_CODE) and not lib.pn_delivery_settled(delivery):
                outstanding[delivery] = number  # not final yet
            else:
                outcomes.append((number, read_state(delivery, code, trusted=self.role == "client")))
                _settle(delivery)
            _pop(collector)
            event = _peek(collector)
        if not known and outcomes:
            self._events.append(Settlements(link, outcomes))

    def _on_link_flow(self, event: Any) -> None:
        link = self._links.get(_event_link(event))
        if isinstance(link, SenderLink):
            credit = lib.pn_link_credit(link._impl)
            if credit < -link._next:  # it may take back what it granted, which is never more than was sent
                told = "the flow grants more than 2147483647 messages, or counts some that were never sent"
                self._violated(link, Error(INVALID_FIELD, f"{told}: attach again and grant less"))
                return
            credit = max(0, credit)
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

    # ------------------------------------------------------------------------------------- connection, sessions, links

    def _on_connection_open(self, event: Any) -> None:
        if self.opened:
            self._fail(Error(ILLEGAL_STATE, "the connection was opened twice"))
            return
        said = self._tap.next(OPEN)
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
            self._fail(Error(DECODE_ERROR, "the open is malformed"))
            return
        self.opened = True
        if self.role == "server":
            lib.pn_connection_open(self._connection)
        self._events.append(ConnectionOpened())

    def _on_connection_close(self, event: Any) -> None:
        error = read_condition(lib.pn_connection_remote_condition(self._connection), trusted=self.role == "client")
        if not self.closed:
            lib.pn_connection_open(self._connection)
            lib.pn_connection_close(self._connection)
        self._finish(error)

    def _on_transport_error(self, event: Any) -> None:
        self._finish(read_condition(lib.pn_transport_condition(self._transport), trusted=False))

    def _on_tail_closed(self, event: Any) -> None:
        """proton reads no more. If it has no word for why, the frame had no meaning that it knows."""
        if self.closed or lib.pn_connection_state(self._connection) & lib.PN_REMOTE_CLOSED:
            return
        if self._at_eof:
            self._fail(Error(FRAMING_ERROR, "connection aborted"))
        elif not lib.pn_condition_is_set(lib.pn_transport_condition(self._transport)):
            self._fail(Error(DECODE_ERROR, "a frame is not an AMQP 1.0 performative"))

    def _on_session_open(self, event: Any) -> None:
        begin = self._tap.next(BEGIN)
        impl = lib.pn_event_session(event)
        session = self._sessions.get(impl)
        if begin.fields is None or not self.opened:
            self._fail(Error(ILLEGAL_STATE, "begin before open" if begin.fields else "the begin is malformed"))
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
        session._drop()
        lib.pn_session_close(impl)
        lib.pn_session_free(impl)
        self._events.append(SessionClosed(session, error))

    def _on_link_open(self, event: Any) -> None:
        impl = _event_link(event)
        attach = self._tap.next(ATTACH)
        session = self._sessions.get(lib.pn_link_session(impl))
        if session is None:
            return
        handle = attach.field(1)
        if attach.fields is None or not isinstance(handle, int):
            self._fail(Error(DECODE_ERROR, "the attach is malformed"))
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
        if requested:
            self._on_link_request(link, attach)
        else:
            self._on_link_answer(link, attach)

    def _on_link_request(self, link: Link, attach: Frame) -> None:
        try:
            link.read_attach(attach)
        except MalformedMessage as problem:
            link.refuse(Error(INVALID_FIELD, f"the attach is malformed: {problem}"))
            return
        if len(self._links) > self.max_links:
            link.refuse(Error(RESOURCE_LIMIT_EXCEEDED, f"more than {self.max_links} links on a connection"))
            return
        self._events.append(LinkRequested(link))

    def _on_link_answer(self, link: Link, attach: Frame) -> None:
        try:
            link.read_attach(attach)
        except MalformedMessage as problem:
            self._violated(link, Error(INVALID_FIELD, f"the answer to our attach is malformed: {problem}"))
            return
        terminus = link.remote_source if link.role == "receiver" else link.remote_target
        if link._state == "opening" and terminus is not None:  # null: the peer refuses, its detach follows
            link._state = "open"
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
        link._state = "closed"
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
        if self._due is None:
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
        self._events.append(ConnectionClosed(error))

    def _die(self, error: Error | None, last_words: bytes) -> None:
        """Ends a connection that has no AMQP layer (any more): the bytes given are the last ones."""
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
        words.append(frame(0, performative(0x18, [_as_value(error)])))
        self._die(error, b"".join(words))

    def _flush(self) -> list[bytes]:
        words: list[bytes] = []
        while (count := lib.pn_transport_peek(self._transport, read_buffer.memory, READ_BUFFER_BYTES)) > 0:
            words.append(read_buffer.view[:count])
            lib.pn_transport_pop(self._transport, count)
            self._spoke = True
        return words


def _bury(graves: list[Any]) -> None:
    """Gives back references to C objects that are gone from our tables. Links: only with an empty queue of events.
    Sessions: moreover only after their end has been put out, which queues events of their links. proton frees a
    session with all its links, also those that a queued event points at."""
    for impl in graves:
        lib.pn_decref(impl)
    graves.clear()


def _as_value(error: Error) -> Described:
    info = {symbol(key): item for key, item in error.info.items()}
    fields: list[Any] = [symbol(error.condition), error.description, info]
    return Described(ulong(0x1D), fields)


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
