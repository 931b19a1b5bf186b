"""Receiver links: messages enter an engine. `settle` is one of the two loops that matter; see link.py.

Delivery handles are the C pointers themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from cproton import ffi, lib

from holdfast.amqp.errors import UsageError
from holdfast.amqp.links.delivery_states import (
    ACCEPTED,
    ACCEPTED_CODE,
    RELEASED,
    RELEASED_CODE,
    DeliveryState,
)
from holdfast.amqp.links.dispositions import settle_one_by_one
from holdfast.amqp.links.link import CLOSED, Link, Session

_update, _settle = lib.pn_delivery_update, lib.pn_delivery_settle


class ReceiverLink(Link):
    """Link on which we receive: the peer (or the node it stands for) is the sender."""

    __slots__ = ("_draining", "_gone", "_parts", "_parts_bytes", "_pumped", "_unsettled", "in_order")

    role = "receiver"

    def __init__(self, session: Session, impl: Any, *, ours: bool) -> None:
        super().__init__(session, impl, ours=ours)
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._unsettled = 0
        self._gone = False
        self._draining = False
        self._pumped = 0
        self.in_order = False
        """True if everything that the peer said before a message of this link, on any link, is told before it: a
        transaction is not discharged ahead of its messages. True on control links; elsewhere it would cost."""

    @property
    def credit(self) -> int:
        """Messages the peer may still send. Proton reckons with the count of deliveries that the peer states in its
        flow frames: one that states any number it likes makes it far less than nothing."""
        return 0 if self._impl is None else max(0, int(lib.pn_link_credit(self._impl)))

    @property
    def unsettled(self) -> int:
        """Deliveries handed out and not settled yet."""
        return self._unsettled

    def grant(self, credit: int) -> None:
        """Lets the peer send `credit` more messages."""
        if self._impl is not None and self._state != CLOSED and credit > 0:
            lib.pn_link_flow(self._impl, credit)

    def drain(self, credit: int = 0) -> None:
        """Grants `credit` more and asks the peer to use up or give back all it has; Drained follows."""
        if self._impl is not None and self._state != CLOSED:
            self._draining = True
            lib.pn_link_drain(self._impl, credit)
            self._engine._check_drained(self)  # without credit there is nothing to wait for

    def sent_settled(self, delivery: Any) -> bool:
        """True if the peer has settled the delivery itself, so that our outcome tells it nothing."""
        return bool(lib.pn_delivery_settled(delivery))

    def tag_of(self, delivery: Any) -> bytes:
        """The tag that the peer gave to a delivery."""
        tag = lib.pn_delivery_tag(delivery)
        return bytes(ffi.buffer(tag.start, tag.size))

    def settle(self, deliveries: Sequence[Any], state: DeliveryState = ACCEPTED) -> None:
        """Settles deliveries (handles out of Transfers events), all with one outcome. Each handle once, in any
        order; runs in order of arrival cost one frame if they are accepted or released. Works after a detach; does
        nothing once the session is gone. Transactional(txn_id, outcome) and Declared(txn_id) are states like others:
        the engine keeps no book on transactions."""
        if self._impl is None or not deliveries:
            return
        if len(deliveries) > self._unsettled:
            raise UsageError(f"{len(deliveries)} deliveries to settle, {self._unsettled} are open: settled twice?")
        if state is ACCEPTED or state is RELEASED:
            code = ACCEPTED_CODE if state is ACCEPTED else RELEASED_CODE
            deque(map(_update, deliveries, repeat(code)), maxlen=0)
            deque(map(_settle, deliveries), maxlen=0)
        else:
            settle_one_by_one(deliveries, state)
        self._unsettled -= len(deliveries)
        if self._gone and self._unsettled == 0:
            self._engine._free_link(self)
