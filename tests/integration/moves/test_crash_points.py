"""A node dies between two steps of a move, at each step: the move ends as it should, and nothing is lost.

Which moment is tested where: docs/internals/membership.md.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.client.errors import HoldfastError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.judges.judging import judge
from tests.integration.moves.moving import reassign, replicas, wait_settled
from tests.integration.workloads.holdfast_producer import HoldfastProducer

pytestmark = pytest.mark.cluster

TIMES = number_from("HOLDFAST_CRASHES", 1)
"""Each point is met so often, by leaders and nodes that are others each time."""
OF_LEADERS = [
    "move-before-learner",
    "move-after-learner",
    "move-before-joint",
    "move-after-joint",
    "move-before-end",
    "move-after-end",
    "move-before-report",
    "move-after-report",
]
OF_FOLLOWERS = [
    "replica-before-open",
    "replica-before-erase",
    "replica-after-erase",
]


@pytest.mark.timeout(300 + 300 * TIMES)
@pytest.mark.parametrize("count", [1, 3], ids=["one-replica", "three-replicas"])
def test_a_crash_between_any_two_steps_of_a_move_loses_nothing(
    tmp_path: Path, make_cluster: Callable[..., Cluster], count: int
) -> None:
    directory = tmp_path / "crash-points"
    directory.mkdir()
    cluster = make_cluster(nodes=4, crash_points=directory)
    cluster.start()
    log = cluster.create("trades", 1, count)
    producer = HoldfastProducer(cluster.addresses, log, "0", "numbered", idempotent=True).begin()
    producer.wait_for(100)
    for point in (OF_LEADERS + OF_FOLLOWERS) * TIMES:
        at = replicas(cluster, log)["0"]
        coming = next(node for node in cluster.nodes if node not in at)
        target = [*at[1:], coming]
        (directory / point).touch()
        reassign(cluster, log, "0", target)
        dead = cluster.wait_any_exit()
        assert not (directory / point).exists()
        cluster.start(dead)
        wait_settled(cluster)
        assert replicas(cluster, log)["0"] == sorted(target), point
        producer.wait_for(20)
    judge(cluster, log, [producer])


@pytest.mark.timeout(300)
def test_a_cancel_meets_a_crash(tmp_path: Path, make_cluster: Callable[..., Cluster]) -> None:
    """The learner was added; the entry that takes it out again is appended by another leader."""
    directory = tmp_path / "crash-points"
    directory.mkdir()
    cluster = make_cluster(nodes=4, crash_points=directory)
    cluster.start()
    log = cluster.create("trades", 1, 3)
    before = replicas(cluster, log)["0"]
    producer = HoldfastProducer(cluster.addresses, log, "0", "numbered", idempotent=True).begin()
    producer.wait_for(100)
    coming = next(node for node in cluster.nodes if node not in before)
    cluster.kill(coming)
    reassign(cluster, log, "0", [*before[1:], coming])
    wait_until(lambda: "members are v2" in "".join(map(cluster.log, cluster.nodes)), "the learner is added")
    (directory / "move-before-end").touch()
    for node in cluster.nodes.values():
        node.expected_dead = True
    with contextlib.suppress(HoldfastError):  # the node that answers may be the one that dies of it
        cluster.call(lambda admin: admin.cancel_moves(log))
    dead = cluster.wait_any_exit()
    cluster.start(dead)
    cluster.start(coming)
    wait_settled(cluster)
    assert replicas(cluster, log)["0"] == before
    producer.wait_for(20)
    judge(cluster, log, [producer])


def _led(make_cluster: Callable[..., Cluster], log_name: str, **options: Path) -> tuple[Cluster, str, HoldfastProducer]:
    cluster = make_cluster(nodes=4, **options)
    cluster.start()
    log = cluster.create(log_name, 1, 3)
    producer = HoldfastProducer(cluster.addresses, log, "0", "numbered", idempotent=True).begin()
    producer.wait_for(100)
    return cluster, log, producer


def _without(cluster: Cluster, log: str, gone: int) -> list[int]:
    """Nodes that are to keep the partition: another one comes for this one."""
    before = replicas(cluster, log)["0"]
    coming = next(node for node in cluster.nodes if node not in before)
    return [*(node for node in before if node != gone), coming]


@pytest.mark.timeout(300)
def test_a_leader_dies_that_has_begun_to_hand_over(
    tmp_path: Path, make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    directory = tmp_path / "crash-points"
    directory.mkdir()
    cluster, log, producer = _led(make_cluster, log_name, crash_points=directory)
    leader = cluster.leaders(log)["0"]
    target = _without(cluster, log, leader)
    (directory / "move-after-transfer").touch()
    reassign(cluster, log, "0", target)
    assert cluster.wait_any_exit() == leader
    cluster.start(leader)
    wait_settled(cluster)
    assert replicas(cluster, log)["0"] == sorted(target)
    producer.wait_for(20)
    judge(cluster, log, [producer])


@pytest.mark.timeout(300)
def test_the_leader_of_the_metadata_dies_while_it_is_asked(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    """Nobody knows whether the target was taken; it is stated again, and one move comes of it."""
    cluster, log, producer = _led(make_cluster, log_name)
    target = _without(cluster, log, replicas(cluster, log)["0"][0])
    leader = cluster.call(lambda admin: admin.cluster_status())["metadata"]["leader"]
    asking = threading.Thread(target=reassign, args=(cluster, log, "0", target))
    asking.start()
    cluster.kill(leader)
    cluster.start(leader)
    asking.join()
    wait_settled(cluster)
    assert replicas(cluster, log)["0"] == sorted(target)
    producer.wait_for(20)
    judge(cluster, log, [producer])


@pytest.mark.timeout(300)
def test_who_was_away_while_it_was_replaced_is_erased_when_it_comes_back(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster, log, producer = _led(make_cluster, log_name)
    leader = cluster.leaders(log)["0"]
    gone = next(node for node in replicas(cluster, log)["0"] if node != leader)
    target = _without(cluster, log, gone)
    cluster.kill(gone)
    reassign(cluster, log, "0", target)
    wait_until(lambda: replicas(cluster, log)["0"] == sorted(target), "the move without it")
    cluster.start(gone)
    wait_until(lambda: "moved to other nodes" in cluster.log(gone), "its replica is erased")
    wait_settled(cluster)
    producer.wait_for(20)
    judge(cluster, log, [producer])
