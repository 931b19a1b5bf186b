"""Waiting until a cluster is settled: looks that cost little, and become rarer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from holdfast.cli.commands import cluster
from holdfast.cli.shared import leaving
from holdfast.cli.shared.command_frame import CommandFrame


class MovingCluster:
    """A cluster in which so many partitions move, one fewer at each look; then it is in order, or something is not."""

    def __init__(self, moving: int, *unsettled: str) -> None:
        self.moving = moving
        self.unsettled = list(unsettled)
        self.limits: list[int | None] = []

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[MovingCluster]:
        yield self

    async def list_moves(self, *, limit: int | None = None) -> dict[str, Any]:
        self.limits.append(limit)
        left, self.moving = self.moving, max(0, self.moving - 1)
        moves = [{"log": "a", "partition": str(number), "state": "copying"} for number in range(left)]
        return {"moving": left, "moves": [] if limit == 0 else moves, "unsettled": [] if limit == 0 else self.unsettled}


def _settled(seen: MovingCluster, wait_s: float) -> dict[str, Any]:
    return asyncio.run(cluster._await_settled(cast(CommandFrame, seen), wait_s))


def test_while_something_moves_it_is_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "LOOK_EVERY_S", 0.0)
    seen = MovingCluster(4)
    assert _settled(seen, 60.0)["unsettled"] == []
    assert seen.limits == [0, 0, 0, 0, 0, None]


def test_when_the_time_is_over_everything_is_told() -> None:
    seen = MovingCluster(4, "node 4 does not answer")
    found = _settled(seen, 0.0)
    assert (len(found["moves"]), found["unsettled"]) == (4, ["node 4 does not answer"])
    assert seen.limits == [None]


def test_looks_become_rarer_and_are_never_far_apart() -> None:
    waited, looks = 0.0, 0
    while waited < 3600:
        between = leaving.next_look_s(waited)
        assert 0.5 <= between <= 5.0
        waited, looks = waited + between, looks + 1
    assert looks < 800
