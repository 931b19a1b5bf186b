"""`send_many` while leaders are killed: every acknowledged event is there, in order; of an idempotent producer, once.

Chunks and single events in turn, some ten thousand events a second, with many of both under way when a leader dies.
"""

from __future__ import annotations

import time

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.conftest import number_from
from tests.integration.judges.history import check
from tests.integration.judges.judging import read_partition, wait_resumed
from tests.integration.workloads.holdfast_producer import ChunkProducer

pytestmark = pytest.mark.cluster

KILLS = number_from("HOLDFAST_KILLS", 3)
PER_SECOND = 10_000
KINDS = (("default", False), ("default", True), ("never", True))
"""Of each partition's producer: the listener that it comes to (`never` redirects), and whether it is idempotent."""


@pytest.mark.timeout(300 + 60 * KILLS)
def test_killing_leaders_loses_no_event_of_a_chunk(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, len(KINDS))
    producers = [
        ChunkProducer(
            [cluster.address(node, listener) for node in cluster.nodes],
            log_name, str(partition), f"chunks-{partition}", per_second=PER_SECOND, idempotent=idempotent,
        )
        for partition, (listener, idempotent) in enumerate(KINDS)
    ]  # fmt: skip
    for producer in producers:
        producer.begin()
    for producer in producers:
        producer.wait_for(2000)
    for kill in range(KILLS):
        victim = cluster.leaders(log_name)[str(kill % len(KINDS))]
        cluster.kill(victim)
        killed_s = time.monotonic()
        for producer in producers:
            wait_resumed(producer, killed_s)
        cluster.start(victim)
        for producer in producers:
            producer.wait_for(2000)
    for partition, producer in enumerate(producers):
        sent = producer.finish()
        bodies = [event.body for event in read_partition(cluster, log_name, str(partition))]
        if producer.idempotent:
            assert check(sent, bodies, copies_allowed=()) == 0
            assert bodies == [sent.body(number) for number in range(sent.numbers)], "all of them, in order, once"
        else:
            copies = check(sent, bodies, copies_allowed=range(sent.numbers) if producer.resent else ())
            assert copies <= producer.resent
            assert len(sent.acknowledged) == sent.numbers
