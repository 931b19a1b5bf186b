"""Nodes are killed while the sink writes: each event is there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.client.sync import RangeClient
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.spark.conftest import reader
from tests.integration.spark.events import fill, numbered
from tests.integration.spark.node_killer import NodeKiller
from tests.integration.spark.sink import bodies
from tests.integration.spark.streams import started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(
        number_from("HOLDFAST_SPARK_FAULTS", 0) == 0, reason="takes minutes: HOLDFAST_SPARK_FAULTS=1, as in make soak"
    ),
]

KILLS = min(number_from("HOLDFAST_KILLS", 2), 12)
EVENTS = 600  # of a batch
TASKS = 6  # of a batch, two at a time: what the first ones have written waits for the others


def reach(cluster: Cluster, log: str, isolation: Any) -> int:
    with RangeClient(cluster.addresses, isolation=isolation) as client:
        return sum(extent.end for extent in client.extents(log))


def test_nodes_that_are_killed_while_it_writes(spark: Any, own_cluster: Cluster, tmp_path: Path) -> None:
    own_cluster.create("source", partitions=2)
    own_cluster.create("target", partitions=2)
    servers = ",".join(own_cluster.addresses)
    events = reader(
        spark.readStream, own_cluster, "source", servers=servers, startingOffsets="earliest", minPartitions=TASKS
    ).load()
    writer = reader(events.select("body", "key").writeStream, own_cluster, "target", servers=servers)
    query = started(writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="0 seconds").start)
    killer, amid = NodeKiller(own_cluster, None), 0
    for kill in range(KILLS):
        before = reach(own_cluster, "target", "uncommitted")
        for partition in range(2):
            first = (2 * kill + partition) * EVENTS // 2
            fill(own_cluster, "source", numbered(EVENTS // 2, first=first), str(partition))
        wait_until(lambda before=before: reach(own_cluster, "target", "uncommitted") > before, "the sink to write")
        amid += reach(own_cluster, "target", "committed") < reach(own_cluster, "target", "uncommitted")
        killer.kill(own_cluster.leaders("target")[str(kill % 2)])
        query.processAllAvailable()
    query.stop()
    assert bodies(spark, own_cluster, "target") == sorted(b"e%d" % number for number in range(KILLS * EVENTS))
    print(f"{KILLS} nodes killed, {amid} of them while a batch was neither committed nor rolled back")
