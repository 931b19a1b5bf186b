"""One ZooKeeper for all tests of the process that do not hurt it, and ways to find nodes to run the suite on."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.discovery import (
    Discovery,
    Member,
    RememberedCluster,
    StaticDiscovery,
    ZooKeeperDiscovery,
    ZooKeeperOptions,
)
from tests.zookeeper import LoopbackZooKeeper, missing

SESSION_S = 1.0

ADDRESSES = {number: f"10.0.0.{number}:7101" for number in (1, 2, 3)}


@pytest.fixture(scope="session")
def _shared_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackZooKeeper]:
    if missing():
        pytest.skip(missing())
    server = LoopbackZooKeeper(tmp_path_factory.mktemp("zookeeper") / "shared")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def zookeeper(_shared_zookeeper: LoopbackZooKeeper) -> LoopbackZooKeeper:
    return _shared_zookeeper


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[LoopbackZooKeeper]:
    """One that the test may do anything to; not started."""
    if missing():
        pytest.skip(missing())
    server = LoopbackZooKeeper(tmp_path / "own-zookeeper")
    yield server
    server.kill()


class Found:
    """Makes nodes of one cluster, by one way of finding each other."""

    def __init__(self, kind: str, directory: Path, server: LoopbackZooKeeper | None) -> None:
        self.kind = kind
        self.directory = directory
        self.server = server
        self.cluster = f"c-{uuid.uuid4().hex[:8]}"
        self.made: list[Discovery] = []
        self.memories: list[RememberedCluster] = []

    def node(
        self, number: int, *, of: Mapping[int, str] = ADDRESSES, data: str = "", cluster: str = "", address: str = "",
        **options: Any,
    ) -> Any:  # fmt: skip
        """`data`: another data directory than node `number` has."""
        me = Member(number, address or of.get(number, "10.9.9.9:7101"), {"default": f"10.0.0.{number}:5672"}, "0.1")
        name = cluster or self.cluster
        if self.kind == "static":
            found: Discovery = StaticDiscovery(name, me, of)
        else:
            assert self.server is not None
            memory = RememberedCluster(self.directory / (data or f"node{number}"))
            self.memories.append(memory)
            hosts = options.pop("hosts", self.server.address)
            settings = ZooKeeperOptions(
                hosts=hosts, initial_nodes=len(of), session_timeout_s=SESSION_S, **{"root": "/holdfast", **options}
            )
            found = ZooKeeperDiscovery(name, me, settings, memory)
        self.made.append(found)
        return found

    async def close(self) -> None:
        for found in self.made:
            await found.close()
        for memory in self.memories:
            memory.close()


@pytest.fixture
async def by_zookeeper(tmp_path: Path, zookeeper: LoopbackZooKeeper) -> AsyncIterator[Found]:
    found = Found("zookeeper", tmp_path, zookeeper)
    yield found
    await found.close()


@pytest.fixture
async def by_own_zookeeper(tmp_path: Path, own_zookeeper: LoopbackZooKeeper) -> AsyncIterator[Found]:
    found = Found("zookeeper", tmp_path, own_zookeeper)
    yield found
    await found.close()


@pytest.fixture(params=["static", "zookeeper"])
async def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Found]:
    server = request.getfixturevalue("zookeeper") if request.param == "zookeeper" else None
    found = Found(request.param, tmp_path, server)
    yield found
    await found.close()
