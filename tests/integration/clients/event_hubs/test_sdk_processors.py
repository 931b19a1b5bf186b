"""Processors of every SDK of Event Hubs with its own Blob store: they share partitions, stop, and go on.

Leaders die under them, too: no exception reaches the application, and nothing that was acknowledged is missing. In
`make test` a few die, one after the other. With HOLDFAST_SDK_KILL_SECONDS one dies every five seconds for that long,
and no event may then wait for more than 15 s after its acknowledgement.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.sync import ProducerClient
from tests.integration.clients.event_hubs.floating_address import FloatingAddress
from tests.integration.clients.event_hubs.programs import Program, Sdk, each_sdk
from tests.integration.clients.event_hubs.stored import PARTITIONS, Stored
from tests.integration.clusters.cluster import wait_until

pytestmark = pytest.mark.cluster

KILL_SECONDS = int(os.environ.get("HOLDFAST_SDK_KILL_SECONDS", "0"))
KILL_EVERY_S = 5.0
KILLS = 2
"""Leaders that die where no time is given."""

MOST_WAITED_S = 15.0


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    yield from _stored(tmp_path_factory.mktemp("one"), nodes=1)


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    yield from _stored(tmp_path_factory.mktemp("three"), nodes=3)


def _stored(directory: Path, nodes: int) -> Iterator[Stored]:
    made = Stored(directory, nodes=nodes)
    yield made
    complaints = made.cluster.complaints()
    made.cluster.close()
    assert not complaints


def _store(stored: Stored, hub: str, *bodies: str) -> None:
    """Send to every partition, by our own client."""
    with ProducerClient(stored.cluster.addresses, hub) as producer:
        for partition in range(PARTITIONS):
            for body in bodies:
                producer.send(f"{partition} {body}".encode(), partition=str(partition))


@each_sdk("python", "python-sync")  # of these, more is in test_processors.py
def test_two_processors_share_and_a_third_goes_on_where_they_stopped(one_node: Stored, sdk: Sdk) -> None:
    launch, hub, group = sdk.launch(), f"Shared-{sdk.name}", "Billing"
    one_node.make(hub)
    words = (sdk.process, one_node.text(hub=hub), one_node.store_text(), group)

    def rows(key: str) -> list[object]:
        return [row[key] for row in one_node.describe(group.lower(), hub)]

    _store(one_node, hub, *map(str, range(5)))
    first = Program(launch, *words)
    first.until(lambda: len(first.seen) == 5 * PARTITIONS, "one processor reads all")
    wait_until(lambda: rows("lag") == [0] * PARTITIONS, "its checkpoints")
    assert len(set(rows("owner"))) == 1
    second = Program(launch, *words)
    second.until(lambda: sorted(map(rows("owner").count, set(rows("owner")))) == [2, 2], "each has its half")
    first.finish()
    _store(one_node, hub, "later")
    second.until(lambda: len(second.seen) >= PARTITIONS, "the second has all")
    wait_until(lambda: rows("lag") == [0] * PARTITIONS, "its checkpoints")
    assert {body for body in second.seen if body.endswith("later")} == {f"{at} later" for at in range(PARTITIONS)}
    second.kill()
    third = Program(launch, *words)
    _store(one_node, hub, "last")
    third.until(lambda: len(third.seen) == PARTITIONS, "the third has the partitions of the one that died")
    third.finish()
    assert set(third.seen) == {f"{at} last" for at in range(PARTITIONS)}, "it began behind the checkpoints"
    assert rows("committed_position") == [7] * PARTITIONS


@each_sdk()
def test_leaders_die_under_a_producer_and_a_processor(three_nodes: Stored, sdk: Sdk) -> None:
    launch, hub, cluster = sdk.launch(), f"Killed-{sdk.name}", three_nodes.cluster
    three_nodes.make(hub)

    def doors() -> list[str]:
        return [three_nodes.doors[node - 1] for node in cluster.running]

    with (
        FloatingAddress(lambda: [cluster.address(node) for node in cluster.running]) as name,
        FloatingAddress(doors) as store,
    ):
        text = three_nodes.text(hub=hub, address=name.address)
        processor = Program(launch, sdk.process, text, three_nodes.store_text(store.address), "Billing")
        producer = Program(launch, "send", text)

        def both_go_on() -> None:
            """Until an event of every partition was acknowledged from now on, and all that were have been read."""
            before = len(producer.acknowledged)
            producer.until(lambda: _partitions(list(producer.acknowledged)[before:]) == PARTITIONS, "it sends on")
            stored = set(producer.acknowledged)
            processor.until(lambda: stored <= processor.seen.keys(), "it reads on")

        both_go_on()
        if KILL_SECONDS:
            _kill_on_schedule(three_nodes, hub)
        else:
            for number in range(KILLS):
                _kill_leader(three_nodes, hub, str(number % PARTITIONS))
                both_go_on()
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
    waited_s = max(processor.seen[body] - at for body, at in acknowledged.items())
    paused_s = max(b - a for a, b in zip(list(acknowledged.values()), list(acknowledged.values())[1:], strict=False))
    print(json.dumps({"sdk": sdk.name, "waited_s": round(waited_s, 1), "paused_s": round(paused_s, 1)}))
    if KILL_SECONDS:
        assert waited_s <= MOST_WAITED_S


def _partitions(bodies: list[str]) -> int:
    return len({body.split()[0] for body in bodies})


def _kill_leader(stored: Stored, hub: str, partition: str) -> None:
    """Kill the node that leads the partition, and start it again once the others lead."""
    cluster = stored.cluster
    victim = cluster.leaders(hub)[partition]
    cluster.kill(victim)
    cluster.wait_led(hub)
    cluster.start(victim)


def _kill_on_schedule(stored: Stored, hub: str) -> None:
    end, kills = time.monotonic() + KILL_SECONDS, 0
    while (now := time.monotonic()) < end:
        _kill_leader(stored, hub, str(kills % PARTITIONS))
        kills += 1
        threading.Event().wait(max(0.0, now + KILL_EVERY_S - time.monotonic()))  # the schedule is what is asked for
