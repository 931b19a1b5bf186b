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
        tag, number_field, number, size = self._tag, self._tag_bytes, first, 0
        if txn_id is not None:
            number, size = self._send_in_transaction(payloads, settled, txn_id)
        elif settled or (settled is None and self.remote_snd_settle_mode == SETTLED):
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

    def _send_in_transaction(self, payloads: Sequence[bytes], settled: bool | None, txn_id: bytes) -> tuple[int, int]:
        """Send in a transaction; returns (next number, bytes sent). proton repeats the state on each frame of a
        delivery."""
        impl, number, size = self._impl, self._next, 0
        state = encoded_fields(Transactional(txn_id))
        for payload in payloads:
            self._tag_bytes[0] = number & 0xFFFFFFFF
            delivery = _delivery(impl, self._tag)
            write_fields(delivery, state, checked=True)
            _update(delivery, TRANSACTIONAL_CODE)
            size += len(payload)
            _send(impl, payload, len(payload))
            if settled or (settled is None and self.presettled):
                _settle(delivery)
            else:
                _advance(impl)
                self._outstanding[delivery] = number
                self._keep(1)
            number += 1
        return number, size

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
