"""The metadata group's own log: its length is bounded, and who was away for longer is given the state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cluster.metadata import KEPT_ENTRIES
from cluster.raft import METADATA_GROUP
from holdfast.client.admin import AdminClient
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.repairing import empty, readmit, wait_caught_up
from tests.integration.clusters.stores import span
from tests.integration.workloads.plain import read, send

pytestmark = pytest.mark.cluster

AT_ONCE = 50
"""Commands of the administrator under way."""


def change_often(cluster: Cluster, log: str, times: int) -> None:
    async def change(admin: AdminClient) -> None:
        for first in range(0, times, AT_ONCE):
            await asyncio.gather(
                *(admin.alter_log(log, retention_bytes=10**9 + first + number) for number in range(AT_ONCE))
            )

    cluster.call(change)


@pytest.mark.timeout(480)
def test_many_changes_leave_a_short_log_and_a_new_disk_gets_the_state(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(storage={"retention_waits_s": 1.0})  # as long as the log waits for who is away
    cluster.start()
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["before"], "0")
    cluster.kill(3)
    empty(cluster, 3)
    for _ in range(3):
        change_often(cluster, log_name, KEPT_ENTRIES)
    cluster.create(f"{log_name}-later", 1, replicas=2)
    cluster.spawn(3)
    readmit(cluster, 3)
    wait_caught_up(cluster, 3)
    assert f"group {METADATA_GROUP} at node 3: installed a snapshot" in cluster.log(3)
    cluster.kill(2)
    send(cluster.address(1), log_name, ["with the vote of the third"], "0")
    found = [event.body for event in read(cluster.address(3), log_name, 2, "0")]
    assert found == ["before", "with the vote of the third"]
    names = [log["name"] for log in cluster.call(lambda admin: admin.list_logs(), [cluster.address(3)])]
    assert names == sorted([log_name, f"{log_name}-later"])
    cluster.start(2)
    wait_until(lambda: cluster.describe(log_name)["retention_bytes"] == 10**9 + KEPT_ENTRIES - 1, "the last change")
    cluster.stop()
    for node in cluster.nodes:
        first, last = span(cluster, node, METADATA_GROUP)
        assert last > 3 * KEPT_ENTRIES
        assert last - first < 2 * KEPT_ENTRIES + AT_ONCE, f"node {node} keeps the entries {first} to {last}"
