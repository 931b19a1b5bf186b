"""One frame ends a session with all its links: some are let go in a turn, and what comes behind it waits for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count, pairwise

import pytest

from holdfast.amqp import uint
from holdfast.amqp.framing.handshake import frame, performative
from node.listener.connections.connection import Connection
from node.listener.connections.event_queue import DROPPED_A_TURN
from node.listener.limits import fair_scheduling
from node.partition.consumer_groups.group_state import End
from tests.attacks import wire
from tests.attacks.wire import RawWire
from tests.unit.listener.support.peer import eventually
from tests.unit.listener.support.single import SingleNode

LINKS = 5 * DROPPED_A_TURN

ENDS = frame(0, performative(wire.END, []))
BEGINS = frame(0, performative(wire.BEGIN, [None, uint(0), uint(1000), uint(1000)]))


async def with_many_links(node: SingleNode, raw: RawWire) -> Connection:
    await raw.say(b"".join(wire.attach(f"of-old-{number}", number, "trades") for number in range(LINKS)))
    await raw.until(lambda: raw.seen[wire.ATTACH] == LINKS)
    (connection,) = node.listener._connections
    assert len(connection.endpoints) == LINKS
    return connection


async def turn_by_turn(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - each turn is looked at
            await asyncio.sleep(0)


@pytest.fixture
def one_piece_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what waits: each look at the clock finds it later."""
    seconds = count()
    monkeypatch.setattr(fair_scheduling, "clock_s", lambda: float(next(seconds)))
    monkeypatch.setattr(fair_scheduling, "WAITING_S", 1.5)


@pytest.mark.usefixtures("one_piece_a_turn")
async def test_links_of_a_session_that_ends_are_let_go_some_in_a_turn_and_before_what_comes_behind(
    node: SingleNode,
) -> None:
    left = [LINKS]
    async with RawWire(node.port) as raw:
        connection = await with_many_links(node, raw)
        await raw.say(ENDS + BEGINS + wire.attach("comes behind", 0, "trades"))

        def has_come() -> bool:
            names = {link.name for link in connection.endpoints}
            left.append(sum(name.startswith("of-old") for name in names))
            return "comes behind" in names

        await turn_by_turn(has_come)
        assert len(connection.endpoints) == node.listener.counters.links_open == 1, "by then all others are gone"
        assert max(before - after for before, after in pairwise(left)) == DROPPED_A_TURN
        await raw.say(wire.attach("is read on", 1, "trades"))
        await raw.until(lambda: raw.seen[wire.ATTACH] == LINKS + 2)


@pytest.mark.usefixtures("one_piece_a_turn")
async def test_a_connection_that_is_lost_meanwhile_takes_the_rest_along(node: SingleNode) -> None:
    async with RawWire(node.port) as raw:
        connection = await with_many_links(node, raw)
        await raw.say(ENDS)
        await turn_by_turn(lambda: len(connection.endpoints) < LINKS)
        left = list(connection.endpoints.values())
        assert left
        connection.abort()
        await eventually(lambda: connection.lost.done() and not connection.endpoints)
    assert {endpoint.ended for endpoint in left} == {End.RELEASED}, "their session was ended in peace"
    assert node.listener.counters.links_open == 0
