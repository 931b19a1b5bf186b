"""Members of a group that divide the partitions through a real ZooKeeper, and read them from real nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.client import ZooKeeperOwnership
from tests.unit.client.members import Member, filled, share
from tests.unit.client.real_cluster import Nodes
from tests.unit.listener.peer import eventually
from tests.zookeeper import ZooKeeper, missing

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.skipif(bool(missing()), reason=missing())]

LONG_S = 30.0


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper") / "server")
    server.start()
    yield server
    server.kill()


def member(nodes: Nodes, log: str, zookeeper: ZooKeeper, **more: Any) -> Member:
    settings = {"session_timeout_s": 2.0, "settle_s": 0.3, "hand_over_s": 5.0} | more.pop("settings", {})
    ownership = ZooKeeperOwnership(f"zk://{zookeeper.address}/owners", **settings)
    return Member(nodes, log, ownership=ownership, **more)


async def test_members_share_hand_over_and_go_on(nodes: Nodes, zookeeper: ZooKeeper) -> None:
    log = await filled(nodes, 4, 100)
    async with member(nodes, log, zookeeper) as first:
        await eventually(lambda: first.count == 400, LONG_S)
        epochs = dict(first.consumer.epochs)
        assert epochs == dict.fromkeys("0123", 1)
        await first.consumer.commit()
        async with member(nodes, log, zookeeper) as second:
            await share([first, second], 2, 2)
            await filled(nodes, 4, 10, log)
            await eventually(lambda: first.count == 420 and second.count == 20, LONG_S)
            assert second.consumer.epochs == dict.fromkeys(second.partitions, 2)
            assert first.consumer.epochs == dict.fromkeys(first.partitions, 1)
            await second.consumer.commit()
        await share([first], 4)
        await filled(nodes, 4, 10, log)
        await eventually(lambda: {offsets[-1] for offsets in first.got.values()} == {119}, LONG_S)
        print(first.heard, first.got.keys(), first.consumer.epochs)
