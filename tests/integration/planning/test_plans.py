"""Plans under load: what a dry run shows is what happens, a dead node is replaced, and nothing is lost meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client.errors import HoldfastError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.moves.moving import reassign, replicas, wait_settled
from tests.integration.moves.test_under_load import NODES, PARTITIONS, Load

pytestmark = pytest.mark.cluster


def loaded(make_cluster: Callable[..., Cluster], log: str) -> tuple[Cluster, Load]:
    cluster = make_cluster(nodes=NODES)
    cluster.start()
    cluster.create(log, PARTITIONS, 3)
    return cluster, Load(cluster, log)


def planned(cluster: Cluster, **what: int) -> dict[str, Any]:
    return dict(cluster.call(lambda admin: admin.plan_balance(**what)))


def apply(cluster: Cluster, plan: dict[str, Any], **what: int) -> None:
    done = cluster.call(lambda admin: admin.apply_balance(plan["digest"], **what))
    assert {**done, "applied": False, "after": plan["after"]} == plan


def placed(cluster: Cluster, log: str) -> dict[str, tuple[int, list[int]]]:
    """Preferred leader and replicas of each partition."""
    found = cluster.describe(log)["partitions"]
    return {one["partition"]: (one["preferred"], one["replicas"]) for one in found}


def as_planned(before: dict[str, tuple[int, list[int]]], plan: dict[str, Any]) -> dict[str, tuple[int, list[int]]]:
    moves = {one["partition"]: (one["preferred"], sorted(one["replicas"])) for one in plan["moves"]}
    return {**before, **moves}


def holdfast(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli", *words, "--server", cluster.address(1)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.timeout(400)
def test_a_node_is_emptied_as_the_dry_run_says(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster, load = loaded(make_cluster, log_name)
    before = placed(cluster, log_name)
    victim = Counter(node for _, nodes in before.values() for node in nodes).most_common(1)[0][0]
    plan = planned(cluster, remove=victim)
    assert plan["partitions"] >= 1
    assert placed(cluster, log_name) == before
    empty = ("cluster", "balance", "--empty", str(victim))
    told = holdfast(cluster, *empty, "--dry-run").stdout
    assert f"--empty {victim} --apply {plan['digest']}" in told
    assert f"node {victim} leaves" in told
    assert json.loads(holdfast(cluster, *empty, "--json").stdout)["digest"] == plan["digest"]
    applied = holdfast(cluster, *empty, "--apply", plan["digest"])
    assert (applied.returncode, f"plan {plan['digest']} is under way" in applied.stdout) == (0, True), applied.stderr
    wait_settled(cluster)
    assert placed(cluster, log_name) == as_planned(before, plan)
    assert all(victim not in nodes for nodes in replicas(cluster, log_name).values())
    load.resumed()
    cluster.create(f"{log_name}-wide", 1, NODES)
    nowhere = holdfast(cluster, *empty)
    assert nowhere.returncode == 1
    assert f"{log_name}-wide has {NODES} replicas, and without node {victim} there are {NODES - 1}" in nowhere.stderr
    again = holdfast(cluster, *empty, "--apply", plan["digest"])
    assert again.returncode == 1
    assert "cannot be carried out any more" in again.stderr
    load.judge()


@pytest.mark.timeout(400)
def test_a_node_with_nothing_gets_its_share(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster, load = loaded(make_cluster, log_name)
    for number in range(PARTITIONS):
        reassign(cluster, log_name, str(number), [1 + number % 3, 1 + (number + 1) % 3, 1 + (number + 2) % 3])
    wait_settled(cluster)
    before = placed(cluster, log_name)
    plan = planned(cluster)
    apply(cluster, plan)
    wait_settled(cluster)
    assert placed(cluster, log_name) == as_planned(before, plan)
    held = Counter(node for nodes in replicas(cluster, log_name).values() for node in nodes)
    assert max(held.values()) - min(held[node] for node in cluster.nodes) <= 1
    assert planned(cluster)["moves"] == []
    load.resumed()
    load.judge()


@pytest.mark.timeout(400)
def test_a_dead_node_is_replaced_by_itself_and_its_return_is_harmless(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster, load = loaded(make_cluster, log_name)
    cluster.call(lambda admin: admin.balance_settings(replace_after_s=3))
    victim = cluster.leaders(log_name)["0"]
    cluster.kill(victim)

    def replaced() -> bool:
        try:
            return all(victim not in nodes for nodes in replicas(cluster, log_name).values())
        except HoldfastError:
            return False

    wait_until(replaced, f"others take the place of node {victim}")
    load.resumed()
    cluster.start(victim)
    wait_settled(cluster)
    assert all(victim not in nodes and len(nodes) == 3 for nodes in replicas(cluster, log_name).values())
    load.resumed()
    load.judge()
