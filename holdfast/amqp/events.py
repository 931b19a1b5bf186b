"""Events that an engine gives to its owner, in the order in which they happened.

Hot events are batches (`Transfers`, `Settlements`): one object per link and per call of `Engine.events()`,
never one per message. An event is a fact that has already happened; the engine has answered whatever AMQP
requires an answer to (open, begin, detach, end, close), so an owner that ignores an event breaks no protocol
rule.

Order: `ConnectionOpened` first, `ConnectionClosed` last and exactly once. Each link gets exactly one
`LinkDetached` unless `ConnectionClosed` comes first, which stands for the end of all its links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.amqp.errors import Error
from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.amqp.links.link import Link, Session
from holdfast.amqp.links.receiver_link import ReceiverLink
from holdfast.amqp.links.sender_link import SenderLink


@dataclass(slots=True)
class ConnectionOpened:
    """The peer's open arrived (its details are on the engine: remote_container, remote_properties, ...)."""


@dataclass(slots=True)
class AuthenticationWork:
    """Work that finds out who the peer is and takes a while: run `work` in a thread, and give its result to
    `Engine.authenticated`. Comes before ConnectionOpened."""

    work: Callable[[], object]


@dataclass(slots=True)
class ConnectionClosed:
    """Nothing more will arrive. error: why (None = a clean close). Take data_to_send() until it is empty, then
    close the socket; `error` is also what a peer that sent garbage was told."""

    error: Error | None


@dataclass(slots=True)
class SessionOpened:
    session: Session


@dataclass(slots=True)
class SessionClosed:
    """The session was ended by the peer or by us; LinkDetached was emitted before for each of its links."""

    session: Session
    error: Error | None


@dataclass(slots=True)
class LinkRequested:
    """The peer attached a new link: call link.accept(...) or link.refuse(error), now or later (holding is allowed)."""

    link: Link


@dataclass(slots=True)
class LinkOpened:
    """The peer accepted a link that we opened. A refused one yields LinkDetached(error) and never this."""

    link: Link


@dataclass(slots=True)
class LinkDetached:
    """The link is gone, or will be when the peer answers; the engine has sent our detach. local: the engine closed it
    itself because the peer broke a rule (credit overrun, message too large; `error` says which). Deliveries received
    before may still be settled."""

    link: Link
    closed: bool
    error: Error | None
    local: bool = False


@dataclass(slots=True)
class Transfers:
    """Complete messages of one link in order. deliveries: opaque handles for ReceiverLink.settle, parallel to
    payloads; the list is empty if the link's peer sends everything settled (nothing to settle). batches: places of
    payloads that came in Event Hubs' format of batches, in order; only while the engine watches for them. transactions:
    parallel to payloads, the transaction that each one names (settled ones, too), None = none; None as a whole if none
    of them does.

    A name is 32 bytes at most; a transfer whose transactional state holds none that can be read costs its sender the
    link (LinkDetached with amqp:invalid-field), and is released like those after it. The first frame of a message
    tells; a state that only later ones carry is not seen. What came before a message on a control link (its target is
    a Coordinator), on any link, is told before it; otherwise there is no order between links."""

    link: ReceiverLink
    deliveries: list[Any]
    payloads: list[bytes]
    batches: tuple[int, ...] = ()
    transactions: tuple[bytes | None, ...] | None = None


@dataclass(slots=True)
class Dropped:
    """Messages under these transactions came and were dropped: too large, beyond the credit, after one that was, or on
    a link that this side has closed. They were released; but not every client looks at that inside a transaction, and
    none that sends settled is answered. A commit would promise more than there is, so the owner must not allow it.
    Comes before any discharge that was sent after them."""

    link: ReceiverLink
    transactions: tuple[bytes, ...]


@dataclass(slots=True)
class Settlements:
    """Outcomes of unsettled sends: (number returned by send_many, state). The engine has settled them on our side too,
    with one exception: a state that is Transactional with settled=False leaves the delivery open. It counts as
    unsettled until the owner calls SenderLink.settle (the transaction is over), or the peer says something else of it
    (released after an abort, another transaction, a final outcome), which comes as a further outcome of the same
    number. A Transactional that the peer has settled is the last that it says; what it means is for the transaction to
    decide. If a peer says several things of a delivery in one breath, the last of them counts.

    A transactional state that cannot be read costs the peer the link (LinkDetached with amqp:invalid-field); the
    delivery has no outcome."""

    link: SenderLink
    outcomes: list[tuple[int, DeliveryState]]


@dataclass(slots=True)
class Credit:
    """The peer changed link.credit or link.drain. With link.drain True: send what is at hand, then link.drained()."""

    link: SenderLink


@dataclass(slots=True)
class Drained:
    """The peer has used up or given back all credit after ReceiverLink.drain(); link.credit is 0."""

    link: ReceiverLink


Event = (
    AuthenticationWork
    | ConnectionOpened
    | ConnectionClosed
    | SessionOpened
    | SessionClosed
    | LinkRequested
    | LinkOpened
    | LinkDetached
    | Transfers
    | Dropped
    | Settlements
    | Credit
    | Drained
)
