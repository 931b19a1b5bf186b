"""Which nodes are in the way of finalizing an upgrade, by name; and what is decided when none is."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.metadata import MetadataMachine, MetadataView, Ok, encode_command, register_node
from cluster.metadata import metadata_pb2 as pb
from cluster.rpc import Callers
from cluster.stale_copy_detection import DirectoryStart
from cluster.versions import NEWEST, VersionRange
from node.admin.administration import Administration
from node.admin.errors import AdminRequestFailed
from tests.simulation.world.disk import SimBatch

LATER = NEWEST + 1
OLD, BOTH = VersionRange(NEWEST, NEWEST), VersionRange(NEWEST, LATER)


class SeenCluster:
    """Three nodes as node 1 sees them: its metadata, and its network."""

    def __init__(self) -> None:
        self.machine = MetadataMachine(BOTH)
        self.view = MetadataView(self.machine)
        self.starts = dict.fromkeys((1, 2, 3), DirectoryStart(1, (11,)))
        self.heard_s = dict.fromkeys((1, 2, 3), 100.0)
        self.refused: set[int] = set()
        self.index = 1
        self.register(1, OLD)
        for node in (1, 2, 3):
            self.register(node, BOTH)
        parts: dict[str, Any] = dict.fromkeys(
            ("group", "leader_of", "routing_events", "drain", "health", "states", "repair", "ask_load")
        )
        parts |= {"proposer": self, "view": self.view, "network": self, "routing_events": self}
        self.administration = Administration(1, **parts)

    def register(self, node: int, versions: VersionRange, boot: int = 1) -> None:
        self.starts[node] = DirectoryStart(boot, (10 + boot,))
        command = register_node(node, f"h:{node}", {}, 100 + node, self.starts[node], versions=versions)
        assert self.apply(command) == Ok()

    def apply(self, command: pb.Command) -> Any:
        self.index += 1
        return self.machine.apply(self.index, 1, encode_command(command), SimBatch())

    async def finalize(self, **args: Any) -> dict[str, Any]:
        return await self.administration.run("cluster.finalize", args)

    # -- as the proposer

    async def current(self, timeout_s: float = 0.0) -> None:
        """It is."""

    async def execute(self, command: pb.Command) -> Any:
        return self.apply(command)

    async def until(self, condition: Any, timeout_s: float) -> None:
        assert condition()

    # -- as the network

    def is_up(self, node: int) -> bool:
        return self.heard_s[node] > 0

    def heard_for_s(self, node: int) -> float:
        return self.heard_s[node]

    def start_of(self, node: int) -> DirectoryStart | None:
        return self.starts[node]

    def callers(self) -> Callers:
        return Callers(frozenset(), frozenset(self.refused))


@pytest.fixture
def cluster() -> SeenCluster:
    return SeenCluster()


async def obstacles(cluster: SeenCluster, **args: Any) -> list[str]:
    """By a dry run; and the same refuse it, and change nothing."""
    found: list[str] = (await cluster.finalize(dry_run=True, **args))["obstacles"]
    if found:
        with pytest.raises(AdminRequestFailed, match=f"version {LATER} cannot be activated: node"):
            await cluster.finalize(**args)
    assert cluster.view.active_version == NEWEST
    return found


async def test_when_all_were_heard_long_enough_it_is_activated(cluster: SeenCluster) -> None:
    assert await obstacles(cluster) == []
    done = await cluster.finalize()
    assert (done["active_version"], done["target_version"], done["obstacles"]) == (LATER, LATER, [])
    assert cluster.view.active_version == LATER
    cluster.heard_s[2] = 0.0
    assert (await cluster.finalize())["obstacles"] == [], "there is nothing more to do, whoever is away"


async def test_an_old_a_silent_a_young_and_a_strange_node_are_named(cluster: SeenCluster) -> None:
    cluster.register(2, OLD, boot=2)
    (found,) = await obstacles(cluster)
    assert found == f"node 2 runs a program that knows version {NEWEST}: install the newest release on it"
    cluster.register(2, BOTH, boot=3)
    cluster.heard_s[3] = 0.0
    (found,) = await obstacles(cluster)
    assert "node 3 does not answer: start it" in found
    cluster.heard_s[3] = 31.0
    (found,) = await obstacles(cluster)
    assert found == "node 3 has been heard for 31 s without a break, of 60 s: wait"
    assert await obstacles(cluster, heard_s=30) == []
    cluster.refused = {3}
    (found,) = await obstacles(cluster)
    assert "node 3 is refused, since it came with other data" in found


async def test_a_start_that_is_heard_and_not_registered_is_in_the_way(cluster: SeenCluster) -> None:
    cluster.starts[2] = DirectoryStart(2, (11, 12))
    (found,) = await obstacles(cluster)
    assert "node 2 was started again, and is not registered yet" in found


async def test_a_node_that_goes_back_meanwhile_makes_it_void(cluster: SeenCluster) -> None:
    async def overtaken(command: pb.Command) -> Any:
        cluster.register(2, BOTH, boot=2)
        return cluster.apply(command)

    cluster.execute = overtaken  # type: ignore[method-assign]
    with pytest.raises(AdminRequestFailed, match="node 2 was started again"):
        await cluster.finalize()
    assert cluster.view.active_version == NEWEST


@pytest.mark.parametrize("heard_s", [-1, 86_401])
async def test_a_time_that_cannot_be_is_refused(cluster: SeenCluster, heard_s: int) -> None:
    with pytest.raises(AdminRequestFailed, match="heard_s: must be 0 to 86400 seconds"):
        await cluster.finalize(heard_s=heard_s)
