"""Who does not belong is told whose fault it is and what to change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.rpc.handshake import (
    METADATA_KEY,
    Who,
    hello_in,
    refusal,
)
from cluster.rpc.rpc_pb2 import Hello
from cluster.versions import NEWEST

GOOD: dict[str, Any] = {"cluster": "dev", "node": 1, "dialled": 2, "protocol": NEWEST}


def test_a_configured_peer_is_welcome() -> None:
    assert refusal(Hello(**GOOD), cluster="dev", self_id=2, known={1, 3}) is None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cluster": "prod"}, "wrong cluster name"),
        ({"dialled": 3}, "correct the address of node 3 in cluster.peers of node 1"),
        ({"protocol": 99}, "install releases that have one in common"),
        ({"node": 2}, "two processes call themselves node 2"),
        ({"node": 9}, "add it to cluster.peers of node 2"),
    ],
)
def test_others_are_refused_with_the_reason(wrong: dict[str, Any], says: str) -> None:
    reason = refusal(Hello(**{**GOOD, **wrong}), cluster="dev", self_id=2, known={1, 3})
    assert reason is not None
    assert says in reason


def test_no_hello_is_a_refusal() -> None:
    assert "not a Holdfast node" in (refusal(None, cluster="dev", self_id=2, known={1}) or "")
    assert hello_in(None) is None
    assert hello_in([("other", "x"), (METADATA_KEY, b"\xff\xff")]) is None
    assert hello_in([(METADATA_KEY, Hello(**GOOD).SerializeToString())]) == Hello(**GOOD)


def who(
    node: int, incarnation: int = 7, registered: dict[int, int] | None = None, members: tuple[int, ...] = ()
) -> Who:
    known = registered or {}
    others = frozenset({1, 2, 3} - {node})
    return Who("dev", node, others, incarnation, members or (1, 2, 3), lambda asked: known.get(asked, 0))


def test_nodes_that_know_each_other_by_their_data_are_let_in() -> None:
    known = {1: 11, 2: 22}
    assert who(2, 22, known).refusal(who(1, 11, known).hello_to(2)) is None


def test_nodes_that_are_not_registered_yet_are_let_in() -> None:
    assert who(2, 22).refusal(who(1, 11).hello_to(2)) is None


def test_a_node_with_other_data_is_refused_with_what_to_do() -> None:
    judge = who(2, 22, {1: 11})
    reason = judge.refusal(who(1, 99).hello_to(2)) or ""
    for word in ("node 1", f"{99:016x}", f"{11:016x}", "data_dir", "holdfast node readmit 1"):
        assert word in reason
    assert judge.stranger(1) == 99


def test_what_was_let_in_is_not_offered_to_the_operator_who_asks_for_the_next_disk() -> None:
    known = {1: 11}
    judge = who(2, 22, known)
    judge.refusal(who(1, 99).hello_to(2))
    known[1] = 99  # another node was asked to let it in
    assert judge.stranger(1) is None
    known[1] = 100  # and the one after it, too
    assert judge.refusal(who(1, 100).hello_to(2)) is None
    asyncio.run(judge.welcome(who(1, 100).hello_to(2)))
    assert judge.stranger(1) is None, "99 is older than what is known"
    judge.refusal(who(1, 101).hello_to(2))
    assert judge.stranger(1) == 101


def test_the_one_with_other_data_is_told_so_by_those_who_dial_it() -> None:
    reason = who(1, 99).refusal(who(2, 22, {1: 11}).hello_to(1)) or ""
    assert "node 1 comes with other data" in reason


def test_two_lists_of_members_are_refused() -> None:
    reason = who(2, 22).refusal(who(1, 11, members=(1, 2)).hello_to(2)) or ""
    for word in ("1, 2 and", "1, 2, 3", "cluster.peers"):
        assert word in reason
