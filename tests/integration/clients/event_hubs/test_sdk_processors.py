"""Processors of every SDK of Event Hubs with its own Blob store: they share partitions, stop, and go on.

Leaders die under them, too: no exception reaches the application, and nothing that was acknowledged is missing. In
`make test` a few die, one after the other. With HOLDFAST_SDK_KILL_SECONDS one dies every five seconds for that long,
or, on a slower machine, as soon as both have gone on after the last. No event may then wait for more than 15 s after
its acknowledgement.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from holdfast.client.sync import ProducerClient
from tests.integration.clients.event_hubs.floating_address import FloatingAddress
from tests.integration.clients.event_hubs.hub_cluster import PARTITIONS, HubCluster
from tests.integration.clients.event_hubs.programs import Sdk, each_sdk
from tests.integration.clusters.cluster import wait_until

pytestmark = pytest.mark.cluster

KILL_SECONDS = int(os.environ.get("HOLDFAST_SDK_KILL_SECONDS", "0"))
KILL_EVERY_S = 5.0
KILLS = 2
"""Leaders that die where no time is given."""

MOST_WAITED_S = 15.0
SLOW = {"python-sync"}
"""SDKs that break that bound by themselves: its loop reconnects the partitions one after the other."""

FRAGILE = {"rust"}
"""SDKs that tell the application of a lost connection, or hang."""

KILLED = Path(__file__).parent / "kills"
"""What was measured, for the page of the SDKs."""


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubCluster]:
    yield from _stored(tmp_path_factory.mktemp("one"), nodes=1)


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubCluster]:
    yield from _stored(tmp_path_factory.mktemp("three"), nodes=3)


def _stored(directory: Path, nodes: int) -> Iterator[HubCluster]:
    made = HubCluster(directory, nodes=nodes)
    yield made
    complaints = made.cluster.complaints()
    made.cluster.close()
    assert not complaints


def _store(stored: HubCluster, hub: str, *bodies: str) -> None:
    """Send to every partition, by our own client."""
    with ProducerClient(stored.cluster.addresses, hub) as producer:
        for partition in range(PARTITIONS):
            for body in bodies:
                producer.send(f"{partition} {body}".encode(), partition=str(partition))


@each_sdk("python", "python-sync")  # of these, more is in test_processors.py
def test_two_processors_share_and_a_third_goes_on_where_they_stopped(one_node: HubCluster, sdk: Sdk) -> None:
    hub, group = f"Shared-{sdk.name}", "Billing"
    one_node.make(hub)

    def rows(key: str) -> list[object]:
        return [row[key] for row in one_node.describe(group.lower(), hub)]

    _store(one_node, hub, *map(str, range(5)))
    first = sdk.processor(one_node, hub, group)
    first.until(lambda: len(first.seen) == 5 * PARTITIONS, "one processor reads all")
    wait_until(lambda: rows("lag") == [0] * PARTITIONS, "its checkpoints")
    assert len(set(rows("owner"))) == 1
    second = sdk.processor(one_node, hub, group)
    second.until(lambda: sorted(map(rows("owner").count, set(rows("owner")))) == [2, 2], "each has its half")
    first.finish()
    _store(one_node, hub, "later")
    second.until(lambda: len(second.seen) >= PARTITIONS, "the second has all")
    wait_until(lambda: rows("lag") == [0] * PARTITIONS, "its checkpoints")
    assert {body for body in second.seen if body.endswith("later")} == {f"{at} later" for at in range(PARTITIONS)}
    second.kill()
    third = sdk.processor(one_node, hub, group)
    _store(one_node, hub, "last")
    third.until(lambda: len(third.seen) == PARTITIONS, "the third has the partitions of the one that died")
    third.finish()
    assert set(third.seen) == {f"{at} last" for at in range(PARTITIONS)}, "it began behind the checkpoints"
    assert rows("committed_position") == [7] * PARTITIONS


@each_sdk(*FRAGILE, *(() if KILL_SECONDS else SLOW))
def test_leaders_die_under_a_producer_and_a_processor(three_nodes: HubCluster, sdk: Sdk) -> None:
    hub, cluster = f"Killed-{sdk.name}", three_nodes.cluster
    three_nodes.make(hub)

    def doors() -> list[str]:
        return [three_nodes.doors[node - 1] for node in cluster.running]

    with (
        FloatingAddress(lambda: [cluster.address(node) for node in cluster.running]) as name,
        FloatingAddress(doors) as store,
    ):
        processor = sdk.processor(three_nodes, hub, "Billing", address=name.address, store=store.address)
        producer = sdk.producer(three_nodes, hub, name.address)

        def both_go_on() -> None:
            """Until an event of every partition was acknowledged from now on, and all that were have been read."""
            before = len(producer.acknowledged)
            producer.until(lambda: _partitions(list(producer.acknowledged)[before:]) == PARTITIONS, "it sends on")
            stored = set(producer.acknowledged)
            processor.until(lambda: stored <= processor.seen.keys(), "it reads on")

        both_go_on()
        end, kills = time.monotonic() + KILL_SECONDS, 0
        while kills < KILLS or time.monotonic() < end:
            next_s = time.monotonic() + (KILL_EVERY_S if KILL_SECONDS else 0)
            _kill_leader(three_nodes, hub, str(kills % PARTITIONS))
            kills += 1
            both_go_on()
            threading.Event().wait(max(0.0, next_s - time.monotonic()))  # the schedule is what is asked for
        both_go_on()
        producer.finish()
        acknowledged = dict(producer.acknowledged)
        processor.until(lambda: acknowledged.keys() <= processor.seen.keys(), "nothing is missing")
        lags = lambda: [row["lag"] for row in three_nodes.describe("billing", hub)]  # noqa: E731
        wait_until(lambda: lags() == [0] * PARTITIONS, "checkpoints")
        processor.finish()
    for partition in range(PARTITIONS):
        mine = [body for body in acknowledged if body.startswith(f"{partition} ")]
        assert [body for body in processor.seen if body in set(mine)] == mine, "in the order of their sending"
    if KILL_SECONDS:
        _write_down(sdk, kills, acknowledged, processor.seen)


def _write_down(sdk: Sdk, kills: int, acknowledged: Mapping[str, float], seen: Mapping[str, float]) -> None:
    """Note for the page of the SDKs what was measured, if it is within the bound."""
    times = list(acknowledged.values())
    waited_s = max(seen[body] - at for body, at in acknowledged.items())
    paused_s = max(later - earlier for earlier, later in itertools.pairwise(times))
    said = {
        "seconds": KILL_SECONDS, "kills": kills, "events": len(times), "waited_s": round(waited_s, 1),
        "paused_s": round(paused_s, 1),
    }  # fmt: skip
    print(sdk.name, said)
    assert waited_s <= MOST_WAITED_S or sdk.name in SLOW, said
    (KILLED / f"{sdk.name}.json").write_text(json.dumps(said, indent=1) + "\n")


def _partitions(bodies: list[str]) -> int:
    return len({body.split()[0] for body in bodies})


def _kill_leader(stored: HubCluster, hub: str, partition: str) -> None:
    """Kill the node that leads the partition, and start it again once the others lead."""
    cluster = stored.cluster
    victim = cluster.leaders(hub)[partition]
    cluster.kill(victim)
    cluster.wait_led(hub)
    cluster.start(victim)
