"""A coordinator, a participant or the client's node dies between two steps of a transaction, at each step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.transactions.transactor import ScriptedTransactor

PARTITIONS = 4

OF_BEGINNINGS = [
    "coordinator-before-register",
    "coordinator-after-register",
    "coordinator-before-add",  # of transactions that last
    "coordinator-after-add",
    "partition-after-begin",
]
OF_ENDS = [
    "coordinator-before-end",  # it was asked for, and is not decided
    "coordinator-after-end",  # decided, and nobody was told
    "coordinator-after-a-marker",
    "partition-after-marker",
    "coordinator-before-complete",
    "coordinator-after-complete",
]
OF_COMMITS = [
    "manager-before-end",  # data written, no end asked for
    "manager-after-end",  # all is done, and its client has not heard
]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_crash_between_any_two_steps_tears_nothing(
    tmp_path: Path, make_cluster: Callable[..., Cluster], commit: bool
) -> None:
    directory = tmp_path / "crash-points"
    directory.mkdir()
    cluster = make_cluster(crash_points=directory)
    cluster.start()
    log = cluster.create("trades", partitions=PARTITIONS)
    cluster.wait_settled(log)
    transactor = ScriptedTransactor(cluster, log, PARTITIONS, "worker")

    async def crash_at(point: str) -> None:
        node = 1 + len(transactor.attempts) % 3
        (directory / point).touch()
        hold = asyncio.Event() if point.endswith("-add") else None
        crossed = asyncio.ensure_future(transactor.one(node, commit=commit, hold=hold))
        dead = await asyncio.to_thread(cluster.wait_any_exit)
        if hold is not None:
            hold.set()
        await crossed
        survivor = cluster.other_than(dead)
        await until_committed(survivor)
        await asyncio.to_thread(cluster.start, dead)
        for node in (dead, survivor):
            await until_committed(node)
            transactor.judge(await transactor.read(node))
        assert all(one.outcome != "unknown" for one in transactor.attempts), (point, transactor.attempts)

    async def until_committed(node: int) -> None:
        for _ in range(40):
            if (await transactor.one(node)).outcome == "committed":
                return
        raise AssertionError(f"nothing can be committed through node {node}: {transactor.attempts[-40:]}")

    async def story() -> None:
        await until_committed(1)
        for point in OF_BEGINNINGS + OF_ENDS + OF_COMMITS if commit else OF_ENDS:
            await crash_at(point)

    asyncio.run(story())
