"""Nodes that lost their data, were given other data, or stayed away for long: refused, let in again, brought back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from math import inf

import pytest

from holdfast.client.errors import AdminError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.repairing import (
    EXIT_STORAGE,
    empty,
    flip,
    holdfast,
    readmit,
    refused,
    wait_caught_up,
    wait_level,
)
from tests.integration.clusters.stores import kept
from tests.integration.judges.judging import judge, start_producers
from tests.integration.workloads.holdfast_producer import publish
from tests.integration.workloads.plain import Heartbeat, read, send

pytestmark = pytest.mark.cluster

NO_ELECTION_S = 3.0
"""Several election timeouts."""


def filled(cluster: Cluster, log: str, events: int = 6000, **more: int) -> str:
    cluster.create(log, 2, **more)
    for _ in range(6):  # in several batches, each of which can be trimmed
        publish([cluster.address(node) for node in cluster.running], log, events // 6)
    return log


def wait_trimmed(cluster: Cluster, log: str, beyond: int = 0) -> None:
    def starts() -> bool:
        return all(int(info.earliest_offset or "0", 16) > beyond for info in cluster.info(log).values())

    wait_until(starts, f"retention of {log} beyond {beyond}")


def test_a_node_without_its_data_is_refused_and_has_no_vote(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["acknowledged"], "0")
    cluster.kill(3)
    empty(cluster, 3)
    cluster.spawn(3)
    for node in (1, 3):
        wait_until(lambda node=node: "holdfast node readmit 3" in cluster.log(node), "what is wrong, and what to do")
    assert "empty or a wrong data_dir" in cluster.log(3)
    send(cluster.address(1), log_name, ["the others go on"], "0")

    cluster.kill(2)

    def leaderless() -> bool:
        status = cluster.call(lambda admin: admin.cluster_status(), [cluster.address(1)])
        return status["metadata"]["leader"] is None and status["partitions_without_leader"] == 1

    wait_until(leaderless, "the last node with a memory to give up")
    time.sleep(NO_ELECTION_S)
    assert leaderless(), "a node without a memory has helped to elect a leader"
    cluster.start(2)
    cluster.leaders(log_name, [cluster.address(1)])
    readmit(cluster, 3)
    wait_caught_up(cluster, 3)
    cluster.kill(1)
    send(cluster.address(3), log_name, ["with its vote"], "0")
    assert [event.body for event in read(cluster.address(2), log_name, 3, "0")] == [
        "acknowledged", "the others go on", "with its vote",
    ]  # fmt: skip


@pytest.mark.timeout(480)
def test_a_node_is_replaced_under_load_and_nothing_is_lost(own_cluster: Cluster, log_name: str) -> None:
    """Killed, emptied, let in: trimmed logs come as snapshots, and after it another node may die."""
    cluster = own_cluster
    trimmed = filled(cluster, f"{log_name}-trimmed", retention_bytes=200_000)
    wait_trimmed(cluster, trimmed)
    cluster.create(log_name, 3)
    producers = start_producers(cluster, log_name)
    for producer in producers:
        producer.wait_for(300)
    cluster.kill(3)
    empty(cluster, 3)
    for producer in producers:
        producer.wait_for(300)
    cluster.spawn(3)
    readmit(cluster, 3)
    wait_caught_up(cluster, 3)
    assert "installed a snapshot" in cluster.log(3)
    for producer in producers:
        producer.wait_for(300)
    cluster.kill(1)
    for producer in producers:
        producer.wait_for(300)
    cluster.start(1)
    judge(cluster, log_name, producers)
    cluster.wait_led(trimmed)
    wait_level(cluster, trimmed)
    described = cluster.describe(trimmed)["partitions"]
    cluster.stop()
    for entry in described:
        assert kept(cluster, 3, entry["group"]) == kept(cluster, 2, entry["group"])


def test_a_damaged_node_says_what_to_do_and_that_works(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, [b"%d " % number + bytes(3000) for number in range(200)], "0")
    cluster.kill(3)
    largest = max((cluster.nodes[3].data_dir / "journal").iterdir(), key=lambda path: path.stat().st_size)
    flip(largest)
    said = refused(cluster, 3, EXIT_STORAGE)
    for word in ("damaged", str(largest), "move the directory away", "holdfast node readmit"):
        assert word in said
    cluster.nodes[3].data_dir.rename(cluster.nodes[3].data_dir.with_name("damaged"))
    cluster.spawn(3)
    readmit(cluster, 3)
    wait_level(cluster, log_name)
    cluster.kill(1)
    send(cluster.address(3), log_name, ["with its vote"], "0")
    assert len(read(cluster.address(2), log_name, 201, "0")) == 201


def test_the_old_data_are_refused_after_the_replacement(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["a"], "0")
    cluster.kill(3)
    data = cluster.nodes[3].data_dir
    aside = data.with_name("aside")
    data.rename(aside)
    cluster.spawn(3)
    readmit(cluster, 3)
    wait_caught_up(cluster, 3)
    cluster.kill(3)
    shutil.rmtree(data)
    aside.rename(data)
    before = len(cluster.log(1))
    cluster.spawn(3)
    wait_until(lambda: "comes with other data" in cluster.log(1)[before:], "the refusal of the old data")
    assert 3 not in [n["node"] for n in cluster.call(lambda admin: admin.list_nodes()) if n["up"]]
    send(cluster.address(1), log_name, ["b"], "0")


def test_a_node_that_stays_away_does_not_hold_retention_back(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(storage={"retention_waits_s": 2.0})
    cluster.start()
    filled(cluster, log_name, 2000, retention_bytes=100_000)
    wait_trimmed(cluster, log_name)
    cluster.kill(3)
    highest = max(int(info.latest_offset or "0", 16) for info in cluster.info(log_name).values())
    publish([cluster.address(node) for node in cluster.running], log_name, 8000)
    wait_trimmed(cluster, log_name, beyond=highest)
    described = cluster.describe(log_name)["partitions"]
    with Heartbeat(cluster.address(1), cluster.address(2), cluster.create(f"{log_name}-others", 1)):
        cluster.start(3)
        wait_level(cluster, log_name)
    assert "installed a snapshot" in cluster.log(3)
    cluster.stop()
    for entry in described:
        mine, theirs = kept(cluster, 3, entry["group"]), kept(cluster, 2, entry["group"])
        assert mine.first_offset == theirs.first_offset > highest
        assert mine.records == theirs.records


@pytest.mark.timeout(480)
def test_catching_up_is_shown_and_goes_on_after_a_kill(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster = make_cluster(storage={"catch_up_bytes_per_s": 256 * 1024})
    cluster.start()
    filled(cluster, log_name, 12_000, retention_bytes=1_500_000)
    publish([cluster.address(node) for node in cluster.running], log_name, 8000)
    wait_trimmed(cluster, log_name)
    cluster.kill(3)
    empty(cluster, 3)
    cluster.spawn(3)
    readmit(cluster, 3)

    def shown() -> dict[str, float]:
        """How far each partition's replica is; all the way if it votes again."""
        description = holdfast(cluster, "log", "describe", log_name)
        states = {p["partition"]: s for p in description["partitions"] for s in p["replica_states"] if s["node"] == 3}
        return {
            partition: inf if state["state"] == "follows" else state.get("entries_fetched", 0)
            for partition, state in states.items()
        }

    def progress(what: str) -> dict[str, float]:
        return wait_until(lambda: (found := shown()) and min(found.values()) > 0 and found, what)

    before = progress("progress that is shown")
    assert min(before.values()) < inf, "no snapshot was needed"
    listed = {entry["node"]: entry for entry in cluster.call(lambda admin: admin.list_nodes())}
    assert listed[3]["catching_up"] >= 1
    cluster.kill(3)
    cluster.spawn(3)
    cluster.wait_ready(3)
    after = progress("progress after the kill")
    for partition, entries in before.items():
        assert after[partition] >= entries or entries == inf, f"it began anew: {before}, then {after}"
    wait_level(cluster, log_name)
    groups = [entry["group"] for entry in cluster.describe(log_name)["partitions"]]
    cluster.stop()
    for group in groups:
        assert kept(cluster, 3, group).records == kept(cluster, 1, group).records


def test_a_list_that_is_out_of_date_says_only_where_to_begin(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.stop()
    path = cluster.nodes[1].config_path
    present = path.read_text()
    third = cluster.nodes[3].rpc
    path.write_text(present.replace(f', {{ id = 3, address = "{third}" }}', ""))
    assert path.read_text() != present
    cluster.start()
    cluster.kill(2)
    cluster.call(lambda admin: admin.add_node(9))  # by 1 and 3
    cluster.call(lambda admin: admin.cancel_node(9))
    cluster.start(2)


def test_a_cluster_begins_when_all_its_nodes_have_met(make_cluster: Callable[..., Cluster]) -> None:
    """Two empty nodes of three may be all that is left of a cluster; they do not begin another one."""
    cluster = make_cluster()
    cluster.spawn(1)
    cluster.spawn(2)
    wait_until(lambda: "all nodes have met; not heard of as new: [3]" in cluster.log(1), "what the node waits for")
    time.sleep(NO_ELECTION_S)
    assert "leads term" not in cluster.log(1) + cluster.log(2)
    cluster.spawn(3)
    for node in (1, 2, 3):
        cluster.wait_ready(node)


def test_reading_what_a_node_that_was_never_seen_could_not_say(cluster: Cluster) -> None:
    for number, word in ((2, "other data"), (9, "node 9 is not registered")):
        with pytest.raises(AdminError, match=word):
            cluster.call(lambda admin, number=number: admin.readmit_node(number))
    with pytest.raises(AdminError, match="not registered"):
        cluster.call(lambda admin: admin.readmit_node(9, incarnation=77))
    with pytest.raises(AdminError, match="not registered"):
        cluster.call(lambda admin: admin.describe_node(9))
