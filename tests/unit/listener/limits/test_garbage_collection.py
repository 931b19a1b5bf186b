"""When the collector may look at everything, and that connections leave it nothing to find."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from holdfast.amqp import Engine
from node.listener.connections.event_queue import DROPPED_A_TURN
from node.listener.limits.garbage_collection import (
    FIRST_GUESS_S,
    LEAST_GROWTH_BLOCKS,
    MOST_GROWTH_BLOCKS,
    MOST_S,
    GarbageCollection,
)
from tests.attacks import wire
from tests.attacks.wire import RawWire
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.single import SingleNode

CHEAP = int(MOST_S / FIRST_GUESS_S)
"""Blocks that are expected to be looked at in time."""


def test_a_look_is_due_when_much_has_come_since_the_last() -> None:
    garbage = GarbageCollection()
    assert not garbage.is_due(LEAST_GROWTH_BLOCKS - 1)
    assert garbage.is_due(LEAST_GROWTH_BLOCKS)
    garbage.looked(0.001, LEAST_GROWTH_BLOCKS, 10)
    assert not garbage.is_due(LEAST_GROWTH_BLOCKS)


def test_a_look_that_would_take_too_long_is_owed_until_it_does_not() -> None:
    garbage = GarbageCollection()
    assert not garbage.is_due(CHEAP + 1)
    assert garbage.put_off == 1
    assert garbage.is_due(CHEAP - 1)
    garbage.looked(10 * MOST_S, CHEAP, 0)  # ten times what was expected
    assert not garbage.is_due(CHEAP // 3)
    assert garbage.is_due(CHEAP // 11)


def test_what_can_only_be_garbage_is_looked_for_whatever_it_takes() -> None:
    garbage = GarbageCollection()
    assert not garbage.is_due(MOST_GROWTH_BLOCKS - 1)
    assert garbage.is_due(MOST_GROWTH_BLOCKS)


async def test_while_a_node_runs_the_collector_does_not_look_at_everything_by_itself() -> None:
    before = gc.get_threshold()
    garbage = GarbageCollection()
    garbage.start()
    try:
        assert gc.get_threshold()[:2] == (700, 10)
        assert gc.get_threshold()[2] > 1_000_000
        assert gc.get_freeze_count() > 1000
    finally:
        garbage.stop()
    assert gc.get_threshold() == before
    assert not gc.get_freeze_count()


async def test_a_connection_is_gone_without_the_collector(tmp_path: Path) -> None:
    """Who comes and goes a thousand times a second leaves nothing to look for."""
    node = await SingleNode(tmp_path).start()
    gc.collect()
    gc.disable()
    try:
        async with Peer(node.port), RawWire(node.port):
            await eventually(lambda: node.listener.counters.connections_open == 2)
            seen = [weakref.ref(one) for one in node.listener._connections]
            seen += [weakref.ref(one.engine) for one in node.listener._connections]  # type: ignore[misc]
        await eventually(lambda: not node.listener.counters.connections_open)
        await eventually(lambda: not any(one() for one in seen))
    finally:
        gc.enable()
    await node.stop()


async def test_a_connection_with_many_links_is_freed_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    whole = Engine.free_some

    def counted(engine: Engine, most_links: int) -> bool:
        asked.append(most_links)
        return whole(engine, most_links)

    node = await SingleNode(tmp_path).start()
    await node.create("trades")
    async with RawWire(node.port) as raw:
        await raw.say(b"".join(wire.attach(f"l{n}", n, "trades") for n in range(3 * DROPPED_A_TURN)))
        await raw.until(lambda: raw.seen[wire.ATTACH] == 3 * DROPPED_A_TURN)
        monkeypatch.setattr(Engine, "free_some", counted)
        (connection,) = node.listener._connections
    await connection.lost
    await eventually(lambda: connection.engine.free_some(0))
    assert asked.count(DROPPED_A_TURN) >= 3
    await node.stop()
