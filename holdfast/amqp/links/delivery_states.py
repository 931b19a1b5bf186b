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


@dataclass(frozen=True, slots=True)
class Accepted:
    """The receiver has taken responsibility."""


@dataclass(frozen=True, slots=True)
class Released:
    """Not processed, certainly not kept: the sender may send it again."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Invalid; sending it again unchanged is futile."""

    error: Error | None = None


@dataclass(frozen=True, slots=True)
class Modified:
    """Not processed as sent. delivery_failed=True is our form of "outcome unknown": it may or may not have been
    kept."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettledWithoutState:
    """The receiver forgot the delivery and never said what became of it."""


@dataclass(frozen=True, slots=True)
class OtherState:
    """Any state not listed above (transactional, declared, ...): its descriptor code and its fields."""

    code: int
    fields: tuple[Any, ...] = ()


ACCEPTED = Accepted()
RELEASED = Released()
SETTLED_WITHOUT_STATE = SettledWithoutState()

DeliveryState = Accepted | Released | Rejected | Modified | SettledWithoutState | OtherState
