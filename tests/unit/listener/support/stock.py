"""What unmodified proton needs from its user to be a client of Holdfast."""

from __future__ import annotations

from proton import Described, symbol, ulong
from proton.reactor import Filter

WAIT_S = 90


def from_offset(offset: str) -> Filter:
    return Filter({symbol("start"): Described(ulong(0x200), {symbol("event-streams-offset"): symbol(offset)})})
