"""Delivery states: what the receiving side says became of a delivery.

Plain frozen values, not wrappers of C objects, so that they can be kept, compared and sent over process
boundaries. The two states that make up nearly all traffic are singletons (`ACCEPTED`, `RELEASED`): the settle
loops recognise them by identity and let proton coalesce runs of them into one disposition frame. Everything
else costs one frame per delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.amqp.errors import Error

RECEIVED_CODE = 0x23
ACCEPTED_CODE = 0x24
REJECTED_CODE = 0x25
RELEASED_CODE = 0x26
MODIFIED_CODE = 0x27
DECLARED_CODE = 0x33
TRANSACTIONAL_CODE = 0x34


@dataclass(frozen=True, slots=True)
class Accepted:
    """The receiver has taken responsibility."""


@dataclass(frozen=True, slots=True)
class Released:
    """The peer did not process or keep the delivery: the sender may send it again."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The delivery is invalid; sending it again unchanged is futile."""

    error: Error | None = None


@dataclass(frozen=True, slots=True)
class Modified:
    """The peer did not process the delivery as sent. delivery_failed=True is our form of "outcome unknown": it may or
    may not have been kept."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettledWithoutState:
    """The receiver forgot the delivery and never said what became of it."""


@dataclass(frozen=True, slots=True)
class OtherState:
    """Any state not listed here: its descriptor code and its fields."""

    code: int
    fields: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """The coordinator has opened a transaction: its answer to a declare, and to nothing else."""

    txn_id: bytes


Outcome = Accepted | Released | Rejected | Modified | OtherState


@dataclass(frozen=True, slots=True)
class Transactional:
    """Outcome of the delivery if the transaction commits. outcome: None in a state that only names the transaction.
    settled: True if the peer has settled with it, which only a state that came can tell; False: the peer still knows
    the delivery and may say something else of it, as it does when the transaction is aborted (see Settlements)."""

    txn_id: bytes
    outcome: Outcome | None = None
    settled: bool = True


ACCEPTED = Accepted()
RELEASED = Released()
SETTLED_WITHOUT_STATE = SettledWithoutState()

DeliveryState = Accepted | Released | Rejected | Modified | SettledWithoutState | OtherState | Declared | Transactional
