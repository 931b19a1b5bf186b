"""Sender links: messages leave an engine. `send_many` is one of the two loops that matter; see link.py.

An integer per send stands for an outgoing delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cproton import ffi, lib

from holdfast.amqp.errors import UsageError
from holdfast.amqp.links.delivery_state_encoding import encoded_fields
from holdfast.amqp.links.delivery_states import (
    SETTLED_WITHOUT_STATE,
    TRANSACTIONAL_CODE,
    DeliveryState,
    Transactional,
)
from holdfast.amqp.links.dispositions import settle_one_by_one, write_fields
from holdfast.amqp.links.link import (
    OPEN,
    SETTLED,
    Link,
    Session,
)
from holdfast.amqp.links.memory_accounting import DELIVERY_BYTES

FRAME_OVERHEAD_BYTES = 32
"""About what a transfer frame adds to a payload; used only to estimate what proton holds."""

_delivery, _send = lib.pn_delivery, lib.pn_link_send
_advance, _settle, _update = lib.pn_link_advance, lib.pn_delivery_settle, lib.pn_delivery_update


class SenderLink(Link):
    """Link on which we send: the peer grants credit."""

    __slots__ = ("_next", "_open", "_outcomes", "_outstanding", "_pumped", "_tag", "_tag_bytes", "credit", "drain")

    role = "sender"

    def __init__(self, session: Session, impl: Any, *, ours: bool) -> None:
        super().__init__(session, impl, ours=ours)
        self.credit = 0
        """Messages we may send now."""
        self.drain = False
        """The peer waits for drained()."""
        self._next = 0
        self._outstanding: dict[Any, int] = {}
        self._open: dict[int, Any] = {}  # of the outstanding ones, those with an outcome that awaits a transaction
        self._outcomes: list[tuple[int, DeliveryState]] = []
        self._pumped = 0
        self._tag_bytes = ffi.new("uint32_t[1]")
        self._tag = ffi.new("pn_bytes_t *", {"size": 4, "start": ffi.cast("char *", self._tag_bytes)})[0]

    @property
    def presettled(self) -> bool:
        """The peer asked for settled sends only."""
        return self.remote_snd_settle_mode == SETTLED

    @property
    def unsettled(self) -> int:
        """Sends whose outcome is not known yet."""
        return len(self._outstanding)

    def send_many(
        self, payloads: Sequence[bytes], settled: bool | None = None, *, txn_id: bytes | None = None
    ) -> range:
        """Queues complete encoded messages; never more than `credit` (UsageError). settled: None = as the peer
        asked. txn_id: of the transaction that they belong to. Returns the numbers of the deliveries; Settlements name
        them. On a link that is gone nothing is sent and the range is empty. Watch Engine.pending_output: credit does
        not bound bytes."""
        impl = self._impl
        count = len(payloads)
        first = self._next
        if impl is None or self._state != OPEN:
            return range(first, first)
        if count > self.credit:
            raise UsageError(f"{count} sends with credit for {self.credit}")
        if txn_id is not None:
            for payload in payloads:
                self._send_in_pieces((payload,), txn_id, settled)
            return range(first, self._next)
        tag, number_field, number, size = self._tag, self._tag_bytes, first, 0
        if settled or (settled is None and self.remote_snd_settle_mode == SETTLED):
            for payload in payloads:
                number_field[0] = number & 0xFFFFFFFF
                number += 1
                delivery = _delivery(impl, tag)
                length = len(payload)
                size += length
                _send(impl, payload, length)
                _settle(delivery)
        else:
            outstanding = self._outstanding
            for payload in payloads:
                number_field[0] = number & 0xFFFFFFFF
                delivery = _delivery(impl, tag)
                length = len(payload)
                size += length
                _send(impl, payload, length)
                _advance(impl)
                outstanding[delivery] = number
                number += 1
            self._keep(count)
        self._next = number
        self.credit -= count
        self._engine._held += size + count * FRAME_OVERHEAD_BYTES
        return range(first, number)

    def send_pieces(self, pieces: Sequence[bytes | memoryview], *, txn_id: bytes | None = None) -> int:
        """Queues one message, which these pieces are side by side: nobody has to join them before. Else as
        `send_many`, but a link that is gone has no credit (UsageError)."""
        if self._impl is None or self._state != OPEN or not self.credit:
            raise UsageError("a send without credit")
        self._send_in_pieces(pieces, txn_id, None)
        return self._next - 1

    def _send_in_pieces(self, pieces: Sequence[bytes | memoryview], txn_id: bytes | None, settled: bool | None) -> None:
        impl, size = self._impl, 0
        state = None if txn_id is None else encoded_fields(Transactional(txn_id))
        self._tag_bytes[0] = self._next & 0xFFFFFFFF
        delivery = _delivery(impl, self._tag)
        if state is not None:  # proton repeats the state on each frame of a delivery
            write_fields(delivery, state, checked=True)
            _update(delivery, TRANSACTIONAL_CODE)
        for piece in pieces:
            size += len(piece)
            _send(impl, ffi.from_buffer(piece), len(piece))
        if settled or (settled is None and self.presettled):
            _settle(delivery)
        else:
            _advance(impl)
            self._outstanding[delivery] = self._next
            self._keep(1)
        self._next += 1
        self.credit -= 1
        self._engine._held += size + FRAME_OVERHEAD_BYTES

    def settle(self, numbers: Iterable[int], state: DeliveryState | None = None) -> None:
        """Forgets deliveries whose peer has said Transactional without settling: their transaction is over. state: what
        the peer is told, None = nothing but that. Numbers that are settled by now are passed over."""
        if self._impl is None:
            return
        found = [delivery for number in numbers if (delivery := self._open.pop(number, None)) is not None]
        for delivery in found:
            del self._outstanding[delivery]
        self._keep(-len(found))
        settle_one_by_one(found, SETTLED_WITHOUT_STATE if state is None else state)

    def drained(self) -> None:
        """Gives back the credit left over after a drain request."""
        if self._impl is not None and self.drain:
            lib.pn_link_drained(self._impl)
            self.credit = 0

    def _keep(self, deliveries: int) -> None:
        self._kept_bytes += deliveries * DELIVERY_BYTES
        self._engine.kept_bytes += deliveries * DELIVERY_BYTES

    def _drop(self) -> None:
        super()._drop()
        self.credit = 0
        self._outstanding.clear()
        self._open.clear()
