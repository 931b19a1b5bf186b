"""A cluster whose nodes find each other in ZooKeeper, and go on without it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import find_servers
from holdfast.client.errors import ConfigurationError, UnreachableError
from tests.integration.clusters.cluster import Cluster, ClusterSettings, wait_until
from tests.integration.faults.test_failover import judge
from tests.integration.membership.growing import GrowingCluster
from tests.integration.workloads.holdfast_producer import HoldfastProducer
from tests.integration.workloads.plain import read, send
from tests.zookeeper import LoopbackEnsemble, LoopbackZooKeeper, missing

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(missing()), reason=missing())]

NOTICED_S = 20.0
"""A pause of acknowledgements that no busy machine makes; what ZooKeeper does must cause none."""


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[LoopbackZooKeeper]:
    server = LoopbackZooKeeper(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def found_cluster(make_cluster: Callable[..., Cluster], zookeeper: LoopbackZooKeeper) -> Cluster:
    cluster = make_cluster(zookeeper=zookeeper.address)
    cluster.start()
    return cluster


def registrations(cluster: Cluster, zookeeper: LoopbackZooKeeper | LoopbackEnsemble) -> dict[int, int]:
    """Node -> the session that its registration belongs to."""
    with zookeeper.client() as client:
        path = f"/holdfast/{cluster.name}/nodes"
        found = {}
        for name in client.get_children(path):
            if (stat := client.exists(f"{path}/{name}")) is not None:
                found[int(name)] = stat.ephemeralOwner
        return found


def ready(cluster: Cluster, node: int) -> dict[str, Any]:
    """The body of /health/ready."""
    try:
        with urllib.request.urlopen(f"http://{cluster.monitoring[node]}/health/ready", timeout=10) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_clients_notice_nothing_of_what_happens_to_zookeeper(
    found_cluster: Cluster, zookeeper: LoopbackZooKeeper, log_name: str, measured: Any
) -> None:
    """Its sessions are ended, it hangs, it is killed, under load; nodes register again by themselves, once each."""
    cluster = found_cluster
    cluster.create(log_name, 1)
    producer = HoldfastProducer(cluster.addresses, log_name, "0", "steady", per_second=1000, idempotent=True).begin()
    producer.wait_for(200)
    started_s = time.monotonic()

    def all_registered() -> bool:
        """Once each, under a session of its own. What an ended session leaves may still go, and be there at a look."""
        found = registrations(cluster, zookeeper)
        return set(found) == {1, 2, 3} and len(set(found.values())) == 3

    assert all_registered()
    with zookeeper.silent():
        producer.wait_for(3000)  # three seconds of events: three times the sessions' length
    wait_until(all_registered, "all nodes to register again")
    zookeeper.kill()
    producer.wait_for(2000)
    zookeeper.start()
    wait_until(all_registered, "all nodes to register again")
    producer.wait_for(200)
    answered = [at for at, _ in producer.acks if at >= started_s]
    gap_s = max(later - earlier for earlier, later in pairwise(answered))
    measured(f"longest pause of acknowledgements while ZooKeeper hung, died and came back: {gap_s:.2f} s")
    assert gap_s < NOTICED_S
    judge(cluster, log_name, [producer])


def test_a_node_started_while_zookeeper_is_away_waits_and_says_so(
    found_cluster: Cluster, zookeeper: LoopbackZooKeeper, log_name: str
) -> None:
    cluster = found_cluster
    cluster.create(log_name, 1)
    zookeeper.kill()
    cluster.kill(2)
    told = len(cluster.log(2))
    process = cluster.spawn(2)

    def says_so() -> bool:
        assert process.poll() is None
        return "waits for a connection to ZooKeeper" in cluster.log(2)[told:]

    wait_until(says_so, "the node's word in its log")
    answer = ready(cluster, 2)
    assert not answer["ok"]
    assert any("a connection to ZooKeeper" in check["detail"] for check in answer["checks"])
    send(cluster.address(1), log_name, ["meanwhile"])  # the others have their majority
    zookeeper.start()
    cluster.wait_ready(2)
    assert [event.body for event in read(cluster.address(2), log_name, 1)] == ["meanwhile"]


def test_a_second_process_of_a_node_is_refused_and_the_first_goes_on(
    found_cluster: Cluster, zookeeper: LoopbackZooKeeper, tmp_path: Path
) -> None:
    """Once on the same data, once with a copy of the configuration and data of its own."""
    before = registrations(found_cluster, zookeeper)
    node = found_cluster.nodes[3]
    text = node.config_path.read_text().replace(f'[monitoring]\nbind = "{found_cluster.monitoring[3]}"', "")
    same, copied = tmp_path / "same.toml", tmp_path / "copied.toml"
    same.write_text(text)
    copied.write_text(text.replace(json.dumps(str(node.data_dir)), json.dumps(str(tmp_path / "other-data"))))
    for config, status, said in ((same, 3, "in use"), (copied, 2, "an id of its own")):
        done = subprocess.run(
            [sys.executable, "-m", "node", "--config", str(config)], capture_output=True, timeout=240, check=False
        )
        assert done.returncode == status, done.stderr.decode()
        assert said in done.stderr.decode()
    assert registrations(found_cluster, zookeeper) == before


def test_clients_find_the_nodes_in_zookeeper(
    found_cluster: Cluster, zookeeper: LoopbackZooKeeper, log_name: str
) -> None:
    cluster = found_cluster
    url = f"zk://{zookeeper.address}/holdfast/{cluster.name}"
    assert sorted(asyncio.run(find_servers(url))) == sorted(cluster.addresses)
    gateways = asyncio.run(find_servers(url + "?listener=never"))
    assert sorted(gateways) == sorted(cluster.address(node, "never") for node in cluster.nodes)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "log", "create", log_name, "--server", url], check=False, timeout=60
    )
    assert done.returncode == 0
    with pytest.raises(ConfigurationError, match=r"no node of .* has a listener"):
        asyncio.run(find_servers(url + "?listener=moon"))
    with pytest.raises(ConfigurationError, match="knows no cluster"):
        asyncio.run(find_servers(f"zk://{zookeeper.address}/holdfast/nobody"))
    with pytest.raises(ConfigurationError, match="names no cluster"):
        asyncio.run(find_servers("zk://"))
    zookeeper.kill()
    with pytest.raises(UnreachableError, match="does not answer"):
        asyncio.run(find_servers(url, timeout_s=1.0))
    send(cluster.address(1), log_name, ["without it"])


def test_the_command_line_reads_for_a_group_that_shares_through_zookeeper(
    found_cluster: Cluster, zookeeper: LoopbackZooKeeper, log_name: str
) -> None:
    """Found through ZooKeeper, shared through ZooKeeper, and only what passes a filter."""
    found_cluster.create(log_name, 2)
    send(found_cluster.address(1), log_name, [f"event {number}" for number in range(10)])

    def consume(*more: str) -> subprocess.CompletedProcess[str]:
        url = f"zk://{zookeeper.address}/holdfast/{found_cluster.name}"
        command = [sys.executable, "-m", "holdfast.cli", "consume", log_name, "--server", url, "--from", "earliest"]
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=240, check=False)

    shared = ("--group", "g", "--ownership", f"zk://{zookeeper.address}/owners", "--max", "10")
    done = consume(*shared)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")[:-1]) == [f"event {number}" for number in range(10)]
    described = found_cluster.call(lambda admin: admin.describe_group(log_name, "g"))
    assert [row["epoch"] for row in described["partitions"]] == [1, 1]
    assert described["lag"] == 0

    done = consume("--until-end", "--where", "d.event-streams-source-partition = '1'")
    stored = int(found_cluster.info(log_name)["1"].details["events"])
    assert (done.returncode, len(done.stdout.splitlines())) == (0, stored), done.stderr
    done = consume("--until-end", "--where", "a.price >")
    assert done.returncode == 2
    assert "the filter 'a.price >' is refused" in done.stderr
    assert "what to do: correct it" in done.stderr
    done = consume("--ownership", "zk://127.0.0.1:1/owners")
    assert done.returncode == 2
    assert "share all partitions out" in done.stderr


def test_registrations_that_vanish_are_made_anew(found_cluster: Cluster, zookeeper: LoopbackZooKeeper) -> None:
    before = registrations(found_cluster, zookeeper)
    with zookeeper.client() as client:
        for node in before:
            client.delete(f"/holdfast/{found_cluster.name}/nodes/{node}")
    wait_until(lambda: set(registrations(found_cluster, zookeeper)) == set(before), "all nodes to register again")


def test_a_node_joins_a_cluster_that_uses_zookeeper_by_a_list(
    tmp_path: Path, zookeeper: LoopbackZooKeeper, log_name: str
) -> None:
    cluster = GrowingCluster(tmp_path, ClusterSettings(zookeeper=zookeeper.address))
    try:
        cluster.start()
        cluster.join(4, seeds=[2])
        cluster.wait_nodes(1, 2, 3, 4)
        cluster.create(log_name, 8, 3)
        assert {node for one in cluster.describe(log_name)["partitions"] for node in one["replicas"]} == {1, 2, 3, 4}
        assert set(registrations(cluster, zookeeper)) == {1, 2, 3}
        zookeeper.kill()
        cluster.kill(4)
        cluster.start(4)
        cluster.wait_nodes(1, 2, 3, 4)
    finally:
        cluster.close()
