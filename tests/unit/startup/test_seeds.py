"""A node that joins asks its seeds, waits until one lets it in, and remembers what it was told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.discovery import Member, RememberedCluster, SeedDiscovery
from cluster.discovery import seeds as seeds_module
from cluster.rpc import Members, Unavailable

ME = Member(4, "h4:1")
TOLD = Members(17, {1: "other1:1", 2: "h2:1"})


class Seeds:
    """Seeds of which some let the node in."""

    def __init__(self, *welcoming: int) -> None:
        self.welcoming = set(welcoming)
        self.asked: list[tuple[int, str]] = []
        self.were_all_asked_again = asyncio.Event()

    async def ask(self, seed: int, address: str) -> Members:
        self.asked.append((seed, address))
        if len(self.asked) > 4:
            self.were_all_asked_again.set()
        if seed in self.welcoming:
            return TOLD
        raise Unavailable(f"seed {seed} says no", sent=False)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "ASK_AGAIN_S", 0.0)


def discovery(
    path: Path, seeds: Seeds, listed: dict[int, str] | None = None
) -> tuple[SeedDiscovery, RememberedCluster]:
    memory = RememberedCluster(path)
    return SeedDiscovery(ME, listed or {3: "h3:1", 1: "h1:1", 4: "h4:1"}, seeds.ask, memory), memory


async def test_the_first_seed_that_lets_it_in_tells_the_members(tmp_path: Path) -> None:
    seeds = Seeds(3)
    joining, memory = discovery(tmp_path, seeds)
    assert joining.cluster_id == ""
    assert await joining.join() == {1: "h1:1", 2: "h2:1", 3: "h3:1", 4: "h4:1"}, "the configuration's go before"
    assert seeds.asked == [(1, "h1:1"), (3, "h3:1")], "it does not ask itself"
    assert (joining.cluster_id, joining.waiting_for) == ("0000000000000011", "")
    memory.close()


async def test_it_waits_and_says_what_to_type(tmp_path: Path) -> None:
    seeds = Seeds()
    joining, memory = discovery(tmp_path, seeds)
    task = asyncio.ensure_future(joining.join())
    await seeds.were_all_asked_again.wait()
    assert not task.done()
    assert "holdfast node add 4" in joining.waiting_for
    assert "node 3 at h3:1: seed 3 says no" in joining.waiting_for
    seeds.welcoming.add(1)
    assert 2 in await task
    memory.close()


async def test_it_comes_back_without_its_seeds(tmp_path: Path) -> None:
    joining, memory = discovery(tmp_path, Seeds(1))
    await joining.join()
    memory.close()
    gone = Seeds()
    again, memory = discovery(tmp_path, gone, {9: "h9:1"})
    assert await again.join() == {1: "other1:1", 2: "h2:1", 4: "h4:1", 9: "h9:1"}
    assert not gone.asked
    memory.close()


async def test_a_node_with_data_asks_nobody_since_all_may_be_starting(tmp_path: Path) -> None:
    seeds, memory = Seeds(), RememberedCluster(tmp_path)
    founder = SeedDiscovery(ME, {1: "h1:1", 4: "h4:1"}, seeds.ask, memory, has_data=True)
    assert await founder.join() == {1: "h1:1", 4: "h4:1"}
    assert not seeds.asked
    memory.close()
