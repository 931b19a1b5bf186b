"""The bell for whoever waits for a change: who is told, who waits no longer."""

from __future__ import annotations

import asyncio

import pytest

from node.routing_events import RoutingEvents

PASSES = 8
"""Passes of the loop from a ring until all that wait for it have gone on."""


@pytest.mark.parametrize("passes", range(PASSES))
async def test_a_waiter_that_is_cancelled_as_the_bell_rings_waits_no_longer(passes: int) -> None:
    """A node that stops waits for tasks that it has cancelled, and bells ring amid that."""
    events = RoutingEvents()
    waiting = asyncio.create_task(events.until(lambda: False, 600.0))
    for _ in range(PASSES):
        await asyncio.sleep(0)
    events.ring()
    for _ in range(passes):
        await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(PASSES):
        await asyncio.sleep(0)
    assert waiting.cancelled()


async def test_a_state_is_looked_at_after_each_ring() -> None:
    events, seen = RoutingEvents(), []

    def third_look() -> bool:
        seen.append(len(seen))
        return len(seen) == 3

    waiting = asyncio.create_task(events.until(third_look, 600.0))
    while not waiting.done():
        events.ring()
        await asyncio.sleep(0)
    assert await waiting
    assert not await events.until(lambda: False, 0.0)
