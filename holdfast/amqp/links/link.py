"""Sessions, and what both kinds of link share: attaching, answering, ending.

Messages leave through a `SenderLink` (sender_link.py) and enter through a `ReceiverLink` (receiver_link.py). Their
loops call proton's C functions directly, with as few calls per transfer as proton allows, because one foreign call
costs about as much as moving a small message.

Rule never broken: no C pointer is used after the object behind it may have been freed. proton recycles deliveries, so
a stale handle would settle somebody else's message. A link therefore frees its C object only when every delivery
handed out has been settled (or the connection is gone), and every method of a link that is gone does nothing:
callbacks that arrive late are normal in a server and must not have to ask first. What the caller owes in return:
settle each handle once.

Rejected alternative: proton's Link and Delivery classes; a wrapper object and three dictionary look-ups per attribute
make a transfer cost 17 us instead of under 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cproton import lib

from holdfast.amqp.encoding.codec import encode_symbol_map, encode_value, symbol_array, symbols_of, ulong
from holdfast.amqp.errors import ILLEGAL_STATE, NOT_IMPLEMENTED, Error, Unencodable, UsageError
from holdfast.amqp.framing.attach_fields import DESIRED_CAPABILITIES, MAX_MESSAGE_SIZE, PROPERTIES
from holdfast.amqp.framing.early_handles import EarlyHandles
from holdfast.amqp.framing.performatives import ScannedFrame
from holdfast.amqp.links.dispositions import text, write_condition, write_data
from holdfast.amqp.links.terminus import (
    Coordinator,
    Source,
    Target,
    map_of,
    terminus_of,
    write_terminus,
)

REJECTED_OUTCOME = "amqp:rejected:list"
"""Name of the outcome, as a source lists it."""

UNSETTLED, SETTLED, MIXED = 0, 1, 2
"""Sender settle modes."""
FIRST, SECOND = 0, 1
"""Receiver settle modes."""

REQUESTED, OPENING, OPEN, CLOSED = "requested", "opening", "open", "closed"
"""States of a link on our side: asked for by the peer, asked for by us, attached on both sides, detached by us."""


class LinkEngine(Protocol):
    """The part of the engine that its sessions and links need."""

    max_message_size: int
    remote_properties: Mapping[str, Any]
    _held: int
    kept_bytes: int
    _graveyard: list[Any]
    _ended_sessions: list[Any]
    _early: EarlyHandles

    def _expect_output(self) -> None: ...
    def _attach_saying(self, link: Any, said: Mapping[int, bytes]) -> None: ...
    def _check_drained(self, link: Any) -> None: ...
    def _free_link(self, link: Any) -> None: ...


class Session:
    """A session. A server's engine opens its side by itself; a client gets one with Engine.open_session()."""

    __slots__ = ("_channel", "_engine", "_handles", "_impl", "_lost_bytes", "context", "links")

    def __init__(self, engine: LinkEngine, impl: Any) -> None:
        self._engine = engine
        self._impl: Any = impl
        lib.pn_incref(impl)
        self._channel: int | None = None
        self._handles: dict[int, Link] = {}
        self._lost_bytes = 0
        self.links: set[Link] = set()
        """The links that are not gone."""
        self.context: Any = None
        """Free for the owner."""

    @property
    def alive(self) -> bool:
        return self._impl is not None

    def close(self, error: Error | None = None) -> None:
        """Ends the session; SessionClosed follows when the peer has answered."""
        if self._impl is None:
            return
        if error is not None:
            write_condition(lib.pn_session_condition(self._impl), error)
        lib.pn_session_close(self._impl)
        for link in self.links:
            link._state = CLOSED

    def _waiting_bytes(self) -> int:
        """Sends that wait for the peer's window. proton goes on counting what a detached link left unsent, so whatever
        it counts while no link has anything queued is not there."""
        counted = int(lib.pn_session_outgoing_bytes(self._impl))
        if counted > self._lost_bytes:
            senders = (link._impl for link in self.links if link.role == "sender" and link._impl is not None)
            if not any(lib.pn_link_queued(impl) for impl in senders):
                self._lost_bytes = counted
        return max(0, counted - self._lost_bytes)

    def _drop(self) -> None:
        if self._impl is not None:
            self._engine._ended_sessions.append(self._impl)
            self._impl = None


class Link:
    """Common part of senders and receivers. Made by the engine, never by its owner."""

    __slots__ = (
        "_address_is_source",
        "_engine",
        "_handle",
        "_impl",
        "_kept_bytes",
        "_reported",
        "_state",
        "context",
        "max_message_size",
        "name",
        "remote_desired_capabilities",
        "remote_max_message_size",
        "remote_offered_capabilities",
        "remote_properties",
        "remote_rcv_settle_mode",
        "remote_snd_settle_mode",
        "remote_source",
        "remote_target",
        "session",
    )

    role = "link"

    def __init__(self, session: Session, impl: Any, *, ours: bool) -> None:
        self._engine = session._engine
        self._impl: Any = impl
        lib.pn_incref(impl)
        self._state = OPENING if ours else REQUESTED
        self._handle: int | None = None
        self._reported = False
        self._kept_bytes = 0  # of the engine's, for as long as the link is there
        self._address_is_source = (self.role == "sender") != ours
        self.session = session
        self.name = text(lib.pn_link_name(impl)) or ""
        self.context: Any = None
        """Free for the owner."""
        self.max_message_size = self._engine.max_message_size
        """Largest message we take on this link, in bytes."""
        self.remote_source: Source | Target | Coordinator | None = None
        self.remote_target: Source | Target | Coordinator | None = None
        self.remote_properties: Mapping[str, Any] = {}
        self.remote_snd_settle_mode = MIXED
        self.remote_rcv_settle_mode = FIRST
        self.remote_offered_capabilities: tuple[str, ...] = ()
        self.remote_desired_capabilities: tuple[str, ...] = ()
        self.remote_max_message_size = 0
        """Largest message the peer takes, in bytes; 0 = no limit stated."""
        session.links.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.remote_address!r} {self._state}>"

    @property
    def alive(self) -> bool:
        """True if it is attached on our side: what is done now has an effect."""
        return self._state in (OPEN, REQUESTED, OPENING) and self._impl is not None

    @property
    def is_open(self) -> bool:
        """True if both sides have attached."""
        return self._state == OPEN and self._impl is not None

    @property
    def remote_address(self) -> str | None:
        """The address of the node at the server's end of the link, as the peer stated it."""
        terminus = self.remote_source if self._address_is_source else self.remote_target
        return terminus.address if isinstance(terminus, (Source, Target)) else None

    @property
    def peer_properties(self) -> Mapping[str, Any]:
        """Properties that the peer's open states of its connection."""
        return self._engine.remote_properties

    @property
    def wants_coordinator(self) -> bool:
        """The peer attached to the transaction coordinator (refuse with amqp:not-implemented if there is none). Accept
        it with target=Coordinator(the capabilities granted): an answer that echoes what was asked grants it all."""
        return isinstance(self.remote_target, Coordinator)

    @property
    def takes_rejected(self) -> bool:
        """True if the peer's source lets us answer its messages with a rejected outcome: it lists that one, or lists
        none, as many do that understand it. If False, the specification has a coordinator detach the link with the
        error instead."""
        outcomes = self.remote_source.outcomes if isinstance(self.remote_source, Source) else ()
        return not outcomes or REJECTED_OUTCOME in outcomes

    def read_attach(self, attach: ScannedFrame) -> None:
        """Takes over what the peer's attach said. Raises MalformedMessage. For the engine."""
        snd, rcv, size = attach.field(3), attach.field(4), attach.field(10)
        self.remote_snd_settle_mode = snd if snd in (UNSETTLED, SETTLED) else MIXED
        self.remote_rcv_settle_mode = SECOND if rcv == SECOND else FIRST
        self.remote_max_message_size = int(size) if isinstance(size, int) else 0
        self.remote_offered_capabilities = symbols_of(attach.field(11))
        self.remote_desired_capabilities = symbols_of(attach.field(12))
        self.remote_source = terminus_of(attach.field(5))
        self.remote_target = terminus_of(attach.field(6))
        self.remote_properties = map_of(attach.field(13), "link properties")

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        properties: Mapping[str, Any] | None = None,
        max_message_size: int | None = None,
    ) -> None:
        """Answers a requested link. source, target: what is in force; None echoes what the peer asked for,
        filters and all. properties: ours, with symbols as keys. max_message_size: bytes; None = the engine's
        limit."""
        if not self._answers():
            return
        if max_message_size is not None:
            self.max_message_size = max_message_size
        ends = (
            source if source is not None else self.remote_source,
            target if target is not None else self.remote_target,
        )
        try:
            self._write_attach(*ends, properties, self.remote_snd_settle_mode, FIRST)
        except Unencodable:
            impl = self._impl
            echoes_source = source is None and not _can_be_said(lib.pn_link_source(impl), self.remote_source)
            echoes_target = target is None and not _can_be_said(lib.pn_link_target(impl), self.remote_target)
            if not (echoes_source or echoes_target):
                raise  # the owner's values, not the peer's
            self.refuse(Error(NOT_IMPLEMENTED, "the terminus holds a value that cannot be echoed"))
            self._reported = True
            return
        self._state = OPEN

    def refuse(self, error: Error) -> None:
        """Answers a requested link with a null terminus and a closing detach that carries the error (a redirect, too).
        No LinkDetached follows."""
        if not self._answers():
            return
        ours_is_source = self.role == "sender"
        theirs = self.remote_target if ours_is_source else self.remote_source
        address = theirs.address if isinstance(theirs, (Source, Target)) else None
        source = None if ours_is_source else Source(address=address)
        target = Target(address=address) if ours_is_source else None
        self._write_attach(source, target, None, self.remote_snd_settle_mode, FIRST)
        self._shut(error, closed=True)
        self._reported = True

    def close(self, error: Error | None = None) -> None:
        """Detaches with closed=true. LinkDetached follows when the peer has answered."""
        self._end(error, closed=True)

    def detach(self, error: Error | None = None) -> None:
        """Detaches with closed=false: the peer may attach again by the same name."""
        self._end(error, closed=False)

    def _answers(self) -> bool:
        if self._state == REQUESTED:
            return self._impl is not None
        if self._state == CLOSED:
            return False
        raise UsageError(f"{self!r} has been answered already")

    def _end(self, error: Error | None, *, closed: bool) -> None:
        if self._impl is None or self._state == CLOSED:
            return
        if self._state == REQUESTED:
            self.refuse(error if error is not None else Error(ILLEGAL_STATE, "the link was not accepted"))
            self._reported = False
            return
        self._shut(error, closed=closed)

    def _shut(self, error: Error | None, *, closed: bool) -> None:
        self._state = CLOSED
        if self._handle is not None:
            self._engine._early.parting.add(self)
        if error is not None:
            write_condition(lib.pn_link_condition(self._impl), error)
        if closed:
            lib.pn_link_close(self._impl)
        else:
            lib.pn_link_detach(self._impl)

    def _write_attach(
        self,
        source: Any,
        target: Any,
        properties: Mapping[str, Any] | None,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        desired_capabilities: Sequence[str] = (),
    ) -> None:
        impl = self._impl
        write_terminus(lib.pn_link_source(impl), source)
        write_terminus(lib.pn_link_target(impl), target)
        lib.pn_link_set_snd_settle_mode(impl, snd_settle_mode)
        lib.pn_link_set_rcv_settle_mode(impl, rcv_settle_mode)
        lib.pn_link_set_max_message_size(impl, self.max_message_size)
        said = {DESIRED_CAPABILITIES: symbol_array(desired_capabilities)} if desired_capabilities else {}
        if isinstance(target, Coordinator):
            said[MAX_MESSAGE_SIZE] = encode_value(ulong(self.max_message_size))
            if properties:
                said[PROPERTIES] = encode_symbol_map(properties)
        elif properties:
            write_data(lib.pn_link_properties(impl), encode_symbol_map(properties))
        self._engine._expect_output()
        if said:
            self._engine._attach_saying(self, said)
        else:
            lib.pn_link_open(impl)

    def _drop(self) -> None:
        """Lets go of the C object; the engine gives back our reference when no queued event can mention it."""
        self._state = CLOSED
        if self._impl is not None:
            self._engine._graveyard.append(self._impl)
            self._impl = None
        self._engine.kept_bytes -= self._kept_bytes
        self._kept_bytes = 0
        self.session.links.discard(self)
        self._release_handle()

    def _release_handle(self) -> None:
        if self._handle is not None:
            self.session._handles.pop(self._handle, None)
            self._handle = None
            self._engine._early.parting.discard(self)


def _can_be_said(impl: Any, terminus: Source | Target | Coordinator | None) -> bool:
    try:
        write_terminus(impl, terminus)
    except Unencodable:
        return False
    return True
