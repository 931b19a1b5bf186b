"""Bytes that a peer makes an engine keep: reckoned, not measured.

The problem: a message that is never finished, a link with long properties and a delivery that is never settled each
stay for as long as the peer likes, and no count of links or credits bounds them together. The rule: whatever outlives
the frame that brought it is added to one integer of the engine, and taken off where it goes; the owner says how high
that may become (`keep_limit`). At the limit the link that asks for more is refused; a peer that goes on (refused links
stay until it detaches them) is closed at BEYOND times the limit. Rejected: measuring the process; that tells what all
peers hold, not which.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.amqp.errors import RESOURCE_LIMIT_EXCEEDED, Error

LINK_BYTES = 8 * 1024
"""A link with nothing in it: proton's object, ours, and what serves it (2.4 KiB measured here, the rest above)."""

FRAME_FACTOR = 4
"""An attach is kept as proton's bytes and as values, and its answer may echo it: 17 KiB were measured for one of 3."""

VALUE_BYTES = 64
"""Any Python value, however short its encoding: an empty list takes one byte to say and 64 to keep."""

DELIVERY_BYTES = 600
"""A delivery that was sent and is not settled: proton's record with its buffers, and our two table rows."""

BEYOND = 1.25
"""Factor by which refused requests may take a connection over its limit, before it is closed."""


class ByteKeeper(Protocol):
    kept_bytes: int
    keep_limit: int


def attach_bytes(frame_bytes: int, values: int) -> int:
    """Bytes that a link with such an attach costs for as long as it is there."""
    return LINK_BYTES + FRAME_FACTOR * frame_bytes + VALUE_BYTES * values


def too_much(keeper: ByteKeeper, what: str) -> Error:
    """The peer is at fault, and can mend it."""
    told = (
        f"{what} would make this connection hold more than {keeper.keep_limit} bytes here; finish messages, settle "
        "deliveries or detach links before, or spread them over connections"
    )
    return Error(RESOURCE_LIMIT_EXCEEDED, told)


def gone_too_far(keeper: ByteKeeper) -> Error | None:
    if keeper.kept_bytes <= BEYOND * keeper.keep_limit:
        return None
    told = (
        f"this connection makes the node hold {keeper.kept_bytes} bytes, of {keeper.keep_limit} that it may, and goes "
        "on after refusals; detach what was refused, and connect again with less"
    )
    return Error(RESOURCE_LIMIT_EXCEEDED, told)
