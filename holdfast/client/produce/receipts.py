"""Where accepted events stand, as nodes tell it.

Problem: a program may want the offset of what it published, and AMQP's `accepted` has no room for it.
Rule never broken: a link that does not list our outcome among those of its source is answered in plain AMQP; one that
does is told the place of many events by the answer to the first of them. What an answer does not tell stays unknown.
Rejected: an answer with its offset for each event; a frame for each, where a run of `accepted` is one.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast import protocol
from holdfast.amqp.links.delivery_states import DeliveryState, OtherState


class Receipt(NamedTuple):
    """Events that stand side by side."""

    base_offset: int
    events: int
    partition: str


def receipt_of(state: DeliveryState) -> Receipt | None:
    """What an outcome says of places; None: it is another outcome, or none that we can read."""
    if not isinstance(state, OtherState) or state.code != protocol.STORED_CODE:
        return None
    match state.fields:
        case (int(base_offset), int(count), str(partition)) if base_offset >= 0 and count >= 1:
            return Receipt(base_offset, count, str(partition))
    return None
