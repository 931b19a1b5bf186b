"""A leader that does not see what is wished, since its own metadata are in quarantine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.moves.moving import reassign
from tests.integration.workloads.plain import send

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(200)
def test_a_group_whose_leader_does_not_see_its_move_is_led_by_others(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(nodes=4)
    cluster.allowed = ["given up by an operator"]  # type: ignore[attr-defined]
    cluster.start()
    log = cluster.create(log_name, 4, 3)
    status = cluster.call(lambda admin: admin.cluster_status())
    metadata_leader = status["metadata"]["leader"]
    described = cluster.describe(log)["partitions"]
    chosen = next(one for one in described if one["leader"] not in (metadata_leader, None))
    number, leader = chosen["partition"], chosen["leader"]
    send(cluster.address(metadata_leader), log, ["a"] * 10, number)
    cluster.call(lambda admin: admin.repair_group(leader, 0), [cluster.address(leader)])
    coming = next(node for node in cluster.nodes if node not in chosen["replicas"])
    goes = next(node for node in chosen["replicas"] if node != leader)
    target = [coming, *(node for node in chosen["replicas"] if node != goes)]
    knowing = [cluster.address(node) for node in cluster.nodes if node != leader]
    assert cluster.leaders(log, knowing)[number] == leader, "it does not lead what it does not see move"
    cluster.call(lambda admin: admin.reassign_partition(log, number, target), knowing)

    def arrived() -> bool:
        partitions = cluster.call(lambda admin: admin.describe_log(log), knowing)["partitions"]
        return sorted(next(one["replicas"] for one in partitions if one["partition"] == number)) == sorted(target)

    wait_until(arrived, f"{log}/{number} to go to {target}")
    assert "leadership goes to node" in cluster.log(leader)
    cluster.kill(leader)
    cluster.start(leader)
    reassign(cluster, log, number, chosen["replicas"])
