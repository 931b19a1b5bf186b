"""What an operator is told of nodes, by the node asked and by those that it asks in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster.rpc import Callers, PeerNetwork, Unavailable
from node.admin.administration import Administration
from node.admin.errors import AdminRequestFailed
from tests.unit.metadata.test_state_machine import Cluster


class Peer:
    """Another node: what it says of its callers; None: nothing."""

    def __init__(self, told: Callers | None) -> None:
        self.told = told
        self.was_asked_of: Collection[int] | None = None

    async def replicas(self, groups: Sequence[int]) -> list[Any]:
        return []

    async def callers(self, known: Collection[int]) -> Callers:
        self.was_asked_of = set(known)
        await asyncio.sleep(0)
        if self.told is None:
            raise Unavailable("it does not answer", sent=True)
        return self.told


class Network:
    """Of node 1. A peer that is not listed is down."""

    def __init__(self, own: Callers, **peers: Callers | None) -> None:
        self.own = own
        self.peers = {int(name[-1]): Peer(told) for name, told in peers.items()}

    def is_up(self, node: int) -> bool:
        return node == 1 or node in self.peers

    def client(self, node: int) -> Peer:
        return self.peers[node]

    def callers(self) -> Callers:
        return self.own


class Proposer:
    async def current(self, timeout_s: float = 0.0) -> None:
        """It is."""


def callers(*accepted: int, refused: Collection[int] = ()) -> Callers:
    return Callers(frozenset(accepted), frozenset(refused))


def node_1(network: Network) -> Administration:
    parts: dict[str, Any] = {
        "group": SimpleNamespace(leader=1, term=1, members=(1, 2, 3), voters=frozenset({1, 2, 3}), is_settled=True),
        "proposer": Proposer(),
        "view": Cluster(nodes=3).view,
        "network": cast(PeerNetwork, network),
        "leader_of": lambda group: 1,
        "routing_events": None,
        "drain": None,
        "health": None,
        "states": lambda groups: [],
        "repair": lambda group: None,
        "ask_load": None,
    }
    return Administration(1, **parts)


def refused(answer: dict[str, Any]) -> list[int]:
    return [node["node"] for node in answer["nodes"] if node["refused"]]


async def test_a_node_that_only_another_one_has_refused_is_listed_as_refused() -> None:
    network = Network(callers(1, 2), node_2=callers(1, 2, refused=[3]))
    answer = await node_1(network).run("node.list", {})
    assert refused(answer) == [3]
    assert [node["up"] for node in answer["nodes"]] == [True, True, False]
    assert network.peers[2].was_asked_of == {1, 2, 3}
    described = await node_1(network).run("node.describe", {"name": "3"})
    assert (described["node"], described["up"], described["refused"]) == (3, False, True)
    assert not (await node_1(network).run("node.describe", {"name": "2"}))["refused"]


async def test_what_the_status_tells_is_what_the_node_knows_by_itself() -> None:
    asked = node_1(Network(callers(1, 2), node_2=callers(1, 2, refused=[3])))
    assert refused(await asked.run("cluster.status", {})) == []
    assert refused(await node_1(Network(callers(1, 2, refused=[3]))).run("cluster.status", {})) == [3]


async def test_a_node_that_is_let_in_is_not_listed_as_refused_by_who_remembers_that_it_was() -> None:
    network = Network(callers(1, 2, 3), node_2=callers(1, 2, refused=[3]), node_3=callers(1, 3))
    assert refused(await node_1(network).run("node.list", {})) == []
    network = Network(callers(1, 2, refused=[3]), node_2=callers(1, 2, 3))
    assert refused(await node_1(network).run("node.list", {})) == []


async def test_a_node_that_does_not_answer_takes_nothing_from_the_list() -> None:
    answer = await node_1(Network(callers(1, 2, 3, refused=[]), node_2=None, node_3=callers(1, 3))).run("node.list", {})
    assert [node["node"] for node in answer["nodes"]] == [1, 2, 3]
    assert refused(answer) == []
    answer = await node_1(Network(callers(1, 2, refused=[3]), node_2=None)).run("node.list", {})
    assert refused(answer) == [3]


async def test_all_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its bound of time, and the list has no more than that."""
    network = Network(callers(1), node_2=callers(2), node_3=callers(3))
    met = asyncio.Barrier(2)

    async def together(_: Collection[int]) -> Callers:
        await met.wait()
        return Callers()

    for peer in network.peers.values():
        monkeypatch.setattr(peer, "callers", together)
    async with asyncio.timeout(30):
        await node_1(network).run("node.list", {})


async def test_a_node_that_is_not_registered_is_not_found() -> None:
    for operation in ("node.describe", "node.readmit"):
        with pytest.raises(AdminRequestFailed, match="node 9 is not registered"):
            await node_1(Network(callers(1))).run(operation, {"name": "9"})
