"""Where a receiver starts, what a delivery says of its place, and events to read."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.amqp import Described, Source, decode_message, symbol, timestamp, ulong
from tests.unit.listener.support.peer import Peer, message


def start_at(address: str, offset: str | None = None, time_ms: int | None = None) -> Source:
    value: dict[Any, Any] = {}
    if offset is not None:
        value[symbol("event-streams-offset")] = symbol(offset)
    if time_ms is not None:
        value[symbol("event-streams-timestamp")] = timestamp(time_ms)
    return Source(address=address, filter={"start": Described(ulong(0x200), value)})


def place(payload: bytes) -> tuple[str, int, int]:
    """(partition, offset, timestamp) of a delivery."""
    annotations = decode_message(payload).delivery_annotations
    return (
        str(annotations["event-streams-source-partition"]),
        int(annotations["event-streams-offset"], 16),
        int(annotations["event-streams-timestamp"]),
    )


async def fill(peer: Peer, count: int, address: str = "trades", rounds: int = 1) -> None:
    """Appends events in several entries, so that their timestamps differ."""
    sender = await peer.sender(address)
    for turn in range(rounds):
        await peer.send(sender, [message(b"%d" % number) for number in range(count)])
        await peer.states(sender, count * (turn + 1))
        await asyncio.sleep(0.003)  # the clock must move between the entries
