"""The two kinds of link as the client uses them, and their owners, which they call back.

Rule never broken: an owner hears `on_closed` exactly once, unless it closed the link itself; after that, nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from holdfast import protocol
from holdfast.amqp.encoding.codec import uint
from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.amqp.links.link import Link
from holdfast.amqp.links.receiver_link import ReceiverLink
from holdfast.amqp.links.sender_link import SenderLink
from holdfast.amqp.messages.data_section import data_head
from holdfast.client.errors import HoldfastError
from holdfast.client.transport.address import Address
from holdfast.records.batch_transfer import SECTION_BYTES
from holdfast.records.lengths import LENGTH_BYTES
from holdfast.records.record_batch import DIGEST_BYTES, HEAD_BYTES, VERSION, RecordBatch, agreed_version

BATCH_BYTES = 256 * 1024
"""Size of one batch, about. More would only wait longer for the first one's outcome."""

OVERHEAD_BYTES = SECTION_BYTES + HEAD_BYTES
"""Around all events of a batch together."""

EVENT_BYTES = LENGTH_BYTES + DIGEST_BYTES
"""Bytes beside each event, at most."""

IN_BATCHES: Mapping[str, Any] = {protocol.RECORD_BATCHES: uint(VERSION)}
"""Property of an attach that says that the link takes record batches."""


class LinkHost(Protocol):
    """The part of its connection that a link needs."""

    address: Address

    @property
    def congested(self) -> bool: ...
    def forget(self, link: Link) -> None: ...
    def flush_soon(self) -> None: ...


class SenderOwner(Protocol):
    """Owner of a link that sends."""

    def on_credit(self) -> None:
        """Called when there is credit, or room in the socket again."""

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        """Called with the outcomes of sends, by the numbers that `send_many` and `send_batch` gave."""

    def on_closed(self, error: HoldfastError) -> None:
        """Called when the link is gone, with all its unanswered sends."""


class ReceiverOwner(Protocol):
    """Owner of a link that receives."""

    def on_transfers(self, payloads: list[bytes]) -> None:
        """Called with messages, in order."""

    def on_closed(self, error: HoldfastError) -> None:
        """Called when the link is gone."""


class ClientLink:
    """Common part of senders and receivers."""

    def __init__(self, connection: LinkHost, link: Any, owner: Any, what: str) -> None:
        self._connection, self.link, self.owner, self.what = connection, link, owner, what
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.for_good = True  # closing it says that nobody comes back; False: a group's epoch outlives it

    @property
    def address(self) -> str | None:
        """The address that the node gave: its own choice for a dynamic source."""
        return self.link.remote_address

    @property
    def server(self) -> Address:
        """Address of its connection."""
        return self._connection.address

    async def close(self) -> None:
        """Detach; the owner hears nothing more."""
        self.abandon()

    def abandon(self) -> None:
        self._connection.forget(self.link)
        if self.for_good:
            self.link.close()
        else:
            self.link.detach()
        self._connection.flush_soon()

    def ended(self, error: HoldfastError) -> None:
        """End the link, as the node or the connection did."""
        if self.opened.done():
            self.owner.on_closed(error)
        else:
            self.opened.set_exception(error)


class Sender(ClientLink):
    """A link that sends: single messages, or record batches, each in one message."""

    link: SenderLink

    @property
    def batch_bytes(self) -> int:
        """Bytes of the events in one batch at most, each with EVENT_BYTES; one event may be larger."""
        return min(BATCH_BYTES, self.link.remote_max_message_size or BATCH_BYTES) - OVERHEAD_BYTES

    @property
    def max_event_bytes(self) -> int:
        """Size of an event at most, which goes in a batch of its own if it must; 0: there is no limit."""
        whole = self.link.remote_max_message_size
        return max(1, whole - OVERHEAD_BYTES - EVENT_BYTES) if whole else 0

    @property
    def properties(self) -> Mapping[str, Any]:
        """Properties of the node's answer to the attach."""
        return self.link.remote_properties

    @property
    def credit(self) -> int:
        """Number of messages that may be sent now."""
        return 0 if not self.link.is_open or self._connection.congested else self.link.credit

    def send_many(self, payloads: Sequence[bytes], *, txn_id: bytes | None = None) -> range:
        """Queue messages, at most `credit`; their outcomes come by number. `txn_id`: they are part of a transaction."""
        numbers = self.link.send_many(payloads, txn_id=txn_id)
        self._connection.flush_soon()
        return numbers

    def send_batch(self, batch: RecordBatch, *, txn_id: bytes | None = None) -> int:
        """Queue one batch, if there is credit; its outcome comes by this number."""
        number = self.link.send_pieces((data_head(batch.size), *batch.pieces()), txn_id=txn_id)
        self._connection.flush_soon()
        return number

    # ---------------------------------------------------------------- from the connection

    def on_credit(self) -> None:
        self.owner.on_credit()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        self.owner.on_outcomes(outcomes)


class Receiver(ClientLink):
    """A link that receives."""

    link: ReceiverLink
    _done: Callable[[], None] | None = None

    @property
    def properties(self) -> Mapping[str, Any]:
        """Properties of the node's answer to the attach."""
        return self.link.remote_properties

    @property
    def in_batches(self) -> bool:
        """True if each delivery holds record batches; credit counts deliveries."""
        return agreed_version(self.properties.get(protocol.RECORD_BATCHES)) is not None

    @property
    def credit(self) -> int:
        """Messages that the node may still send."""
        return self.link.credit

    def grant(self, credit: int) -> None:
        self.link.grant(credit)
        self._connection.flush_soon()

    def drain(self, credit: int, done: Callable[[], None]) -> None:
        """Grant so much, for what is there now: `done` is called when the node has used it up, or has no more."""
        self._done = done
        self.link.drain(credit)
        self._connection.flush_soon()

    @property
    def draining(self) -> bool:
        return self._done is not None

    def drained(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()
