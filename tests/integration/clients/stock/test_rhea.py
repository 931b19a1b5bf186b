"""A client that is not proton: rhea, from npm, at its pinned version, installed on demand outside the work tree."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clients.npm import NEEDS_NODE
from tests.integration.clusters.cluster import Cluster
from tests.integration.workloads.plain import read, send

HERE = Path(__file__).parent / "rhea"
RUN_WITHIN_S = 240

pytestmark = [
    pytest.mark.cluster,
    NEEDS_NODE,
]


def _run(home: Path, way: str, address: str, log: str, partition: str | None, count: int) -> list[dict[str, Any]]:
    host, _, port = address.rpartition(":")
    done = subprocess.run(
        ["node", str(HERE / "client.js"), way, host, port, log, partition or "-", str(count)],
        env={**os.environ, "RHEA_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"rhea failed: {done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("bound", [None, "0", "1"], ids=["agnostic", "partition 0", "partition 1"])
def test_rhea_produces_and_consumes_through_any_node(
    cluster: Cluster, log_name: str, rhea_home: Path, bound: str | None
) -> None:
    cluster.create(log_name, 2)
    count = 200
    for node in cluster.nodes:
        answers = _run(rhea_home, "produce", cluster.address(node), log_name, bound, count)
        assert len(answers) == count
    stored = count * len(cluster.nodes)
    for node in cluster.nodes:
        events = _run(rhea_home, "consume", cluster.address(node), log_name, bound, stored)
        assert sorted(event["body"] for event in events) == sorted(
            f"rhea {number}" for number in range(count) for _ in cluster.nodes
        )
        offsets = [event["annotations"]["event-streams-offset"] for event in events]
        partitions = [event["annotations"]["event-streams-source-partition"] for event in events]
        for partition in set(partitions):
            mine = [offset for offset, at in zip(offsets, partitions, strict=True) if at == partition]
            assert mine == sorted(set(mine))
    assert set(partitions) == ({"0", "1"} if bound is None else {bound})


def test_rhea_and_proton_read_each_other(cluster: Cluster, log_name: str, rhea_home: Path) -> None:
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, [b"proton 0", b"proton 1"])
    _run(rhea_home, "produce", cluster.address(2), log_name, "0", 2)
    expected = ["proton 0", "proton 1", "rhea 0", "rhea 1"]
    assert [bytes(event.body).decode() for event in read(cluster.address(3), log_name, 4)] == expected
    assert [event["body"] for event in _run(rhea_home, "consume", cluster.address(3), log_name, None, 4)] == expected


def test_rhea_hears_which_message_is_too_large(cluster: Cluster, log_name: str, rhea_home: Path) -> None:
    cluster.create(log_name, 1)
    heard = _run(rhea_home, "too-large", cluster.address(1), log_name, None, 5 << 20)
    condition = "amqp:link:message-size-exceeded"
    assert {"outcome": "rejected", "condition": condition} in heard
    assert {"detached": condition} in heard
