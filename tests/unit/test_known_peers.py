"""Peers of a node follow the nodes that the metadata know."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from cluster.metadata import NodeRecord
from node.members.known_peers import KnownPeers


class Network:
    def __init__(self, **addresses: str) -> None:
        self.addresses = {int(name[1:]): address for name, address in addresses.items()}

    @property
    def peers(self) -> Any:
        return self.addresses.keys()

    def add_peer(self, node: int, address: str) -> None:
        assert node not in self.addresses
        self.addresses[node] = address

    set_address = dict.__setitem__

    def forget_peer(self, node: int) -> None:
        del self.addresses[node]


class Follower:
    """Node 1, and what it is told."""

    def __init__(self, founders: tuple[int, ...], told: dict[int, str], *, seeds: Any = None, **peers: str) -> None:
        self.nodes: dict[int, NodeRecord] = {}
        self.gone: set[int] = set()
        self.forgotten: list[int] = []
        self.counts: list[int] = []
        self.network = Network(**peers)
        self.network.set_address = lambda node, address: self.network.addresses.update({node: address})  # type: ignore[method-assign,assignment,misc]
        view = SimpleNamespace(nodes=self.nodes, removed=lambda node: () if node in self.gone else None)
        fixed, network = told.keys() if seeds is None else seeds, cast(Any, self.network)
        self.peers = KnownPeers(
            1, founders, told, fixed, cast(Any, view), network, self.forgotten.append, self.counts.append
        )

    def follow(self, *registered: int) -> dict[int, str]:
        self.nodes.clear()
        self.nodes.update((node, NodeRecord(node, f"registered{node}:1")) for node in registered)
        self.peers.follow()
        return dict(sorted(self.network.addresses.items()))


def test_founders_are_peers_before_they_have_registered_and_keep_their_addresses() -> None:
    told = {1: "h1:1", 2: "h2:1", 3: "h3:1"}
    one = Follower((1, 2, 3), told, n2="h2:1", n3="h3:1")
    assert one.follow() == {2: "h2:1", 3: "h3:1"}
    assert one.follow(1) == {2: "h2:1", 3: "h3:1"}
    assert one.follow(1, 2, 3) == {2: "h2:1", 3: "h3:1"}
    assert not one.counts


def test_who_registers_is_dialled_and_who_is_removed_is_forgotten() -> None:
    one = Follower((1, 2), {1: "h1:1", 2: "h2:1"}, n2="h2:1")
    assert one.follow(1, 2, 4) == {2: "h2:1", 4: "registered4:1"}
    one.gone.add(2)
    assert one.follow(1, 4) == {4: "registered4:1"}
    assert (one.forgotten, one.counts) == ([2], [3, 2])


def test_who_leaves_may_be_gone_already() -> None:
    one = Follower((1, 2), {1: "h1:1", 2: "h2:1"}, n2="h2:1")
    assert one.peers.could_tell(), "a cluster that begins waits for all its founders"
    one.follow(1, 2)
    assert one.peers.could_tell()
    one.nodes[2] = replace(one.nodes[2], state="leaving")
    assert not one.peers.could_tell()
    assert not Follower((1,), {1: "h1:1"}).peers.could_tell()


def test_one_that_joins_knows_what_it_was_told_until_it_has_metadata_of_its_own() -> None:
    one = Follower((), {1: "h1:1", 7: "h7:1"}, n7="h7:1")
    assert one.follow() == {7: "h7:1"}
    assert one.follow(7, 8) == {7: "h7:1", 8: "registered8:1"}
    assert one.follow(1, 8) == {8: "registered8:1"}, "7 is no member any more"


def test_a_node_that_moved_after_this_one_has_joined_is_dialled_where_it_is() -> None:
    one = Follower((), {1: "h1:1", 2: "h2:1", 3: "h3:1"}, seeds={2}, n2="h2:1", n3="h3:1")
    assert one.follow() == {2: "h2:1", 3: "h3:1"}, "nothing newer is known"
    assert one.follow(1, 2, 3) == {2: "h2:1", 3: "registered3:1"}, "a seed is where the configuration says"
