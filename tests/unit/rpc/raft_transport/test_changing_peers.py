"""Peers that come and go while the network runs, and who is let in meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.rpc import Unavailable, options
from cluster.rpc.handshake import Who
from cluster.rpc.raft_transport.errors import StreamRefused, from_end, to_end
from cluster.rpc.raft_transport.minority_detection import MinorityDetector
from tests.unit.rpc.raft_transport.test_links import messages
from tests.unit.rpc.support import cluster_of, until


def who(node: int = 1, **more: Any) -> Who:
    return Who("prod", node, frozenset({2, 3}), active=lambda: 15, **more)


def hello_of(node: int, **more: Any) -> Any:
    other = Who("prod", node, frozenset({1}), active=lambda: 15, **more)
    return other.hello_to(1)


def test_who_is_announced_may_ask_and_who_is_not_is_told_what_to_type() -> None:
    announced: list[int] = []
    judge = who(announced=lambda: announced)
    assert "holdfast node add 4" in str(judge.refusal(hello_of(4)))
    announced.append(4)
    assert judge.refusal(hello_of(4)) is None
    assert "cluster.join = true" in str(judge.refusal(hello_of(4, members=(1, 2, 3, 4))))


def test_lists_of_nodes_are_compared_until_the_cluster_has_metadata_of_version_15() -> None:
    other = hello_of(2, members=(1, 2))
    assert who(members=(1, 2, 3)).refusal(other) is None
    for active in (0, 14):
        judge = Who("prod", 1, frozenset({2}), members=(1, 2, 3), active=lambda active=active: active)  # type: ignore[misc]
        other.protocol = active
        assert "write the same cluster.peers into both" in str(judge.refusal(other))


def test_data_of_another_cluster_of_the_same_name_are_refused() -> None:
    judge = who(cluster_id=lambda: 17)
    assert judge.refusal(hello_of(2, cluster_id=lambda: 17)) is None
    assert judge.refusal(hello_of(2)) is None, "it has no metadata yet"
    assert "data of another cluster" in str(judge.refusal(hello_of(2, cluster_id=lambda: 18)))


def test_before_version_15_nobody_says_which_cluster_it_is_of() -> None:
    old = Who("prod", 2, frozenset({1}), active=lambda: 14, cluster_id=lambda: 17)
    assert not old.hello_to(1).cluster_id


def test_a_removed_node_is_told_so_only_with_the_data_that_it_had() -> None:
    judge = who(removed=lambda node: (70,) if node == 2 else None)
    own, wiped = hello_of(2, incarnation=70), hello_of(2, incarnation=71)
    assert "was removed from the cluster" in str(judge.refusal(own))
    assert "was removed from the cluster" in str(judge.refusal(wiped))
    assert (judge.is_told_removed(own), judge.is_told_removed(wiped)) == (True, False)
    assert not judge.is_told_removed(hello_of(3, incarnation=70))


def test_the_end_of_a_stream_says_that_the_dialler_was_removed() -> None:
    told = from_end(to_end(StreamRefused("gone", removed=True)))
    assert isinstance(told, StreamRefused)
    assert told.removed
    plain = from_end(to_end(StreamRefused("other")))
    assert isinstance(plain, StreamRefused)
    assert not plain.removed


def test_the_majority_follows_the_peers() -> None:
    detector = MinorityDetector([2], lambda: None)
    detector.begin(0.0)
    detector.look(lambda _: True, 1.0)
    detector.add(3, 1.0)
    detector.add(4, 1.0)
    late_s = 1.0 + options.FIRST_TOUCH_S + options.CUT_OFF_S
    detector.look(lambda node: node == 2, late_s)
    assert not detector.cut_off, "two of four could do nothing alone"
    detector.add(5, late_s - 10.0)
    detector.look(lambda node: node == 2, late_s)
    assert detector.cut_off, "three of five could"
    detector.forget(5, late_s)
    assert not detector.cut_off


async def test_a_peer_that_comes_is_dialled_and_one_that_goes_is_not_heard_any_more() -> None:
    async with cluster_of(1, 2, 3) as nodes:
        one, three = nodes[1].network, nodes[3].network
        address = one.status()[3]["address"]
        for network, node in ((one, 3), (three, 1), (three, 2), (nodes[2].network, 3)):
            network.forget_peer(node)
        assert ("down", 3) in nodes[1].events
        assert list(one.peers) == [2]
        one.send(3, messages(0, 1))  # nobody takes it, and nobody minds
        with pytest.raises(Unavailable, match="no member of the cluster any more"):
            await one.client(3).execute(b"")
        with pytest.raises(Unavailable, match="as far as is known here"):
            one.client(9)
        assert not one.is_up(3)
        one.add_peer(3, address)
        three.add_peer(1, f"127.0.0.1:{one.port}")
        await until(lambda: one.is_up(3) and three.is_up(1), "both directions")
        one.send(3, messages(7, 1))
        await until(lambda: nodes[3].heard, "a message")


@pytest.mark.parametrize("address", ["", "no-port", "two..dots:7101"])
async def test_a_peer_with_an_address_that_cannot_be_is_dialled_when_it_tells_a_right_one(address: str) -> None:
    async with cluster_of(1, 2) as nodes:
        one, two = nodes[1].network, nodes[2].network
        right = one.status()[2]["address"]
        one.forget_peer(2)
        one.add_peer(2, address)
        await until(lambda: "correct it at that node" in one.status()[2]["last_error"], "the word of what is wrong")
        one.set_address(2, right)
        await until(lambda: one.is_up(2) and two.is_up(1), "both directions")
