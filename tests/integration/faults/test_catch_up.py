"""A node that was away catches up by itself, and then has what the others have.

That it has is first shown by what only Raft can give: with another node dead, a majority needs the returned one, and it
can confirm a new event only when it has every earlier one. Then the stopped stores are compared, event by event.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.clusters.stores import Kept, kept
from tests.integration.conftest import number_from
from tests.integration.workloads.holdfast_producer import BODY, publish
from tests.integration.workloads.plain import send

pytestmark = pytest.mark.cluster

AWAY_EVENTS = number_from("HOLDFAST_AWAY_EVENTS", 20_000)
PARTITIONS = 2


def groups_of(cluster: Cluster, log: str) -> dict[str, int]:
    return {entry["partition"]: entry["group"] for entry in cluster.describe(log)["partitions"]}


@pytest.mark.timeout(400 + AWAY_EVENTS // 200)
def test_a_node_that_was_away_has_everything_afterwards(own_cluster: Cluster, log_name: str, measured: Any) -> None:
    cluster = own_cluster
    cluster.create(log_name, PARTITIONS)
    groups = groups_of(cluster, log_name)
    send(cluster.address(1), log_name, ["before"] * PARTITIONS)
    away, lost = 3, 1
    cluster.kill(away)
    publish([cluster.address(node) for node in cluster.running], log_name, AWAY_EVENTS)
    started_s = time.monotonic()
    cluster.start(away)
    cluster.kill(lost)
    for partition in range(PARTITIONS):  # needs the returned node, with all of its past
        send(cluster.address(2), log_name, ["marker"], str(partition))
    measured(f"away for {AWAY_EVENTS} events, caught up {time.monotonic() - started_s:.1f} s after its start began")
    assert _count(cluster, log_name) == AWAY_EVENTS + 2 * PARTITIONS

    cluster.start(lost)
    cluster.wait_led(log_name)
    cluster.stop()
    for partition, group in groups.items():
        copies = {node: kept(cluster, node, group) for node in (2, away)}
        _same_until_marker(copies[2], copies[away], f"partition {partition}: nodes 2 and {away}")
        expected = [number for number in range(AWAY_EVENTS) if number % PARTITIONS == int(partition)]
        assert [_number(record) for record in copies[away].records if BODY in record] == expected


def _number(record: bytes) -> int:
    before = record[: record.index(BODY)].rstrip(b" ")
    return int(before[len(before.rstrip(b"0123456789")) :])


def _same_until_marker(reference: Kept, copy: Kept, what: str) -> None:
    """A node applies an event when it hears that it is committed: with the marker it heard of everything before it."""
    assert copy.first_offset == reference.first_offset, what
    end = max(place for place, record in enumerate(reference.records) if b"marker" in record)
    assert len(copy.records) >= end, f"{what}: {len(copy.records)} events, at least {end} were confirmed"
    shared = min(len(copy.records), len(reference.records))
    assert copy.records[:shared] == reference.records[:shared], what


def _count(cluster: Cluster, log: str) -> int:
    return sum(int(entry.details["events"]) for entry in cluster.info(log).values())
