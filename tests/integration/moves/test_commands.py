"""The commands by which operators move replicas, what they say, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import pytest

from holdfast.client.errors import AdminError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.moves.moving import moves, replicas, wait_settled
from tests.integration.workloads.plain import send
from tests.ports import free_ports

pytestmark = pytest.mark.cluster


def _typed(cluster: Cluster, *words: str) -> tuple[int, Any, str]:
    """Exit status, what it answered as JSON, and what it said."""
    command = [sys.executable, "-m", "holdfast.cli", *words, "--json"]
    for node in cluster.running:
        command += ["--server", cluster.address(node)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr


def _pace(address: str) -> float:
    with urlopen(f"http://{address}/metrics", timeout=10) as page:
        lines: list[str] = page.read().decode().splitlines()
    return min(float(line.split()[1]) for line in lines if line.startswith("holdfast_move_pace_bytes{"))


@pytest.mark.timeout(300)
def test_moves_are_asked_for_shown_cancelled_and_awaited(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    monitoring = {node: f"127.0.0.1:{port}" for node, port in enumerate(free_ports(4), start=1)}
    bound = {node: f'[monitoring]\nbind = "{address}"' for node, address in monitoring.items()}
    cluster = make_cluster(nodes=4, more_of=bound)
    cluster.start()
    log = cluster.create(log_name, 2, 3)
    send(cluster.address(1), log, ["a"] * 10, "0")
    before = replicas(cluster, log)
    coming = next(node for node in cluster.nodes if node not in before["0"])
    target = [coming, *before["0"][:2]]
    status, answer, _ = _typed(cluster, "log", "reassign", f"{log}/0", "--to", ",".join(map(str, target)))
    assert (status, answer["log"], answer["partition"]) == (0, log, "0")
    status, answer, _ = _typed(cluster, "cluster", "settled", "--wait-s", "60")
    assert (status, answer["settled"]) == (0, True)
    assert replicas(cluster, log)["0"] == sorted(target)

    status, answer, _ = _typed(cluster, "cluster", "settings", "--pace", "2MiB")
    assert (status, answer["pace_bytes_per_s"]) == (0, 2 << 20)
    wait_until(lambda: all(_pace(address) == 2 << 20 for address in monitoring.values()), "the pace of all nodes")
    for wrong in ("forever", "0MiB", "1KiB"):
        assert _typed(cluster, "cluster", "settings", "--pace", wrong)[0] in (1, 2)

    away = next(node for node in cluster.nodes if node not in replicas(cluster, log)["1"])
    cluster.kill(away)
    target = [*before["1"][:2], away]
    assert _typed(cluster, "log", "reassign", f"{log}/1", "--to", ",".join(map(str, target)))[0] == 0
    wait_until(lambda: [one["state"] for one in (moves(cluster) or {"moves": []})["moves"]] == ["copying"], "a learner")
    status, answer, _ = _typed(cluster, "cluster", "moves")
    [move] = answer["moves"]
    assert status == 0
    assert (move["log"], move["partition"], move["add"]) == (log, "1", away)
    assert "is not near enough to the end of the log" in move["waits_for"]
    assert f"node {away} does not answer" in answer["unsettled"]
    [entry] = [one for one in cluster.describe(log)["partitions"] if one["partition"] == "1"]
    assert entry["move"]["add"] == away
    status, _, said = _typed(cluster, "cluster", "settled")
    assert status == 1
    assert f"{log}/1 moves (copying)" in said
    status, answer, _ = _typed(cluster, "cluster", "moves", "--cancel", f"{log}/1")
    assert (status, answer["cancelled"]) == (0, [{"log": log, "partition": "1", "outcome": "cancelled"}])
    assert replicas(cluster, log)["1"] == before["1"]
    assert _typed(cluster, "cluster", "moves", "--cancel", "all")[1] == {"cancelled": []}
    cluster.start(away)
    wait_settled(cluster)


@pytest.mark.timeout(200)
def test_a_log_that_shrinks_keeps_the_replicas_of_nodes_that_are_up(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(nodes=3)
    cluster.start()
    log = cluster.create(log_name, 3, 3)
    away = cluster.describe(log)["partitions"][0]["leader"]
    cluster.kill(away)
    cluster.leaders(log)
    assert _typed(cluster, "log", "alter", log, "--replicas", "2")[0] == 0
    left = sorted(set(cluster.nodes) - {away})
    wait_until(lambda: all(sorted(kept) == left for kept in replicas(cluster, log).values()), f"{log} on {left}")


@pytest.mark.timeout(200)
def test_what_cannot_be_is_refused_with_a_reason(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster = make_cluster(nodes=3)
    cluster.start()
    log = cluster.create(log_name, 1, 2)
    for words, reason in (
        ((f"{log}/0", "--to", "1,9"), f"{log}/0: node 9 is not registered"),
        ((f"{log}/0", "--to", "1,1"), f"{log}/0: a node is named twice"),
        ((f"{log}/0", "--to", "1,2,3"), f"log {log} has 2 replicas, and 3 nodes are named"),
        ((f"{log}/7", "--to", "1,2"), "partition 7 does not exist: log"),
        (("nowhere/0", "--to", "1,2"), "there is no log 'nowhere'"),
        ((log, "--to", "1,2"), "names no partition"),
        ((f"{log}/0", "--to", "one"), "names no nodes"),
    ):
        status, _, said = _typed(cluster, "log", "reassign", *words)
        assert status != 0
        assert reason in said, said
    status, _, said = _typed(cluster, "log", "alter", log, "--replicas", "4")
    assert status != 0
    assert "4 replicas need 4 nodes" in said
    with pytest.raises(AdminError, match="its replicas have changed since this was decided"):
        cluster.call(lambda admin: admin.reassign_partition(log, "0", [2, 3], configuration_version=9))
    assert moves(cluster) == {"moving": 0, "under_way": 0, "stalled": 0, "moves": [], "unsettled": []}
