"""Who does not belong is told whose fault it is and what to change."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.rpc.identity import METADATA_KEY, hello_in, refusal
from cluster.rpc.options import PROTOCOL_VERSION
from cluster.rpc.rpc_pb2 import Hello

GOOD: dict[str, Any] = {"cluster": "dev", "node": 1, "dialled": 2, "protocol": PROTOCOL_VERSION}


def test_a_configured_peer_is_welcome() -> None:
    assert refusal(Hello(**GOOD), cluster="dev", self_id=2, known={1, 3}) is None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cluster": "prod"}, "wrong cluster name"),
        ({"dialled": 3}, "correct the address of node 3 in cluster.peers of node 1"),
        ({"protocol": 99}, "run the same version of Holdfast on both"),
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
