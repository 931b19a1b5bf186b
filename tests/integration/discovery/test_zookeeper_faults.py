"""An ensemble of three ZooKeepers whose leader dies, and a node that is cut off from all of them: the data plane serves
on, nobody is registered twice, and nodes register again by themselves. What a single server does to its clients (hangs,
dies, loses its data) is in `test_zookeeper.py` and `tests/discovery`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.proxied import proxy_server
from tests.integration.discovery.test_zookeeper import NOTICED_S, ready, registrations
from tests.integration.faults.test_failover import judge
from tests.integration.workloads.holdfast_producer import HoldfastProducer
from tests.integration.workloads.plain import read, send
from tests.zookeeper import LoopbackEnsemble, missing

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

SESSION_S = 1.0  # of a node, see `Cluster`


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[LoopbackEnsemble]:
    servers = LoopbackEnsemble(tmp_path)
    servers.start()
    yield servers
    servers.kill()


class Load:
    """Events that are acknowledged all the while; the longest pause is the test's to judge."""

    def __init__(self, cluster: Cluster, log: str) -> None:
        self._cluster, self._log = cluster, log
        self.producer = HoldfastProducer(cluster.addresses, log, "0", "steady", per_second=1000, idempotent=True)
        self.producer.begin()
        self.producer.wait_for(200)
        self._since_s = time.monotonic()

    def go_on(self) -> None:
        self.producer.wait_for(1000)

    def judge(self) -> float:
        self.producer.wait_for(200)
        answered = [at for at, _ in self.producer.acks if at >= self._since_s]
        gap_s = max(later - earlier for earlier, later in pairwise(answered))
        judge(self._cluster, self._log, [self.producer])
        assert gap_s < NOTICED_S
        return gap_s


def all_registered(cluster: Cluster, ensemble: LoopbackEnsemble) -> dict[int, int]:
    """Node -> session, once each node has one; one name in ZooKeeper is one registration."""
    return wait_until(  # type: ignore[no-any-return]
        lambda: found if set(found := registrations(cluster, ensemble)) == set(cluster.nodes) else None,
        "all nodes to be registered",
    )


def test_the_ensembles_leader_dies_and_then_its_majority(
    make_cluster: Callable[..., Cluster], ensemble: LoopbackEnsemble, log_name: str, measured: Any
) -> None:
    cluster = make_cluster(zookeeper=ensemble.address)
    cluster.start()
    cluster.create(log_name, 1)
    aside = cluster.create(f"{log_name}-aside", 1)
    load = Load(cluster, log_name)
    before = all_registered(cluster, ensemble)

    leader = ensemble.leader()
    leader.kill()
    load.go_on()
    assert ensemble.leader() is not leader
    after = all_registered(cluster, ensemble)
    assert len(set(after.values())) == 3
    measured(f"registrations that outlived the ensemble's leader: {sum(after[node] == before[node] for node in after)}")

    ensemble.leader().kill()  # one of three is left: nobody can register, nobody can be told
    load.go_on()
    send(cluster.address(1), aside, ["without ZooKeeper"])
    assert [event.body for event in read(cluster.address(2), aside, 1)] == ["without ZooKeeper"]
    ensemble.start()
    assert len(set(all_registered(cluster, ensemble).values())) == 3
    wait_until(lambda: all(ready(cluster, node)["ok"] for node in cluster.nodes), "all nodes to be ready")
    measured(f"longest pause of acknowledgements without ZooKeeper's leader, and majority: {load.judge():.2f} s")


def test_a_node_that_is_cut_off_from_zookeeper_alone_serves_on_and_registers_again(
    make_cluster: Callable[..., Cluster], ensemble: LoopbackEnsemble, log_name: str, tmp_path: Path, measured: Any
) -> None:
    """Each of its ways to the three servers is cut: once refused, once swallowed without a word."""
    with proxy_server(tmp_path) as proxies:
        ways = [proxies.way(f"zookeeper-{place}", server.address) for place, server in enumerate(ensemble.servers)]
        hosts = {1: ensemble.address, 2: ",".join(way.address for way in ways), 3: ensemble.address}
        cluster = make_cluster(zookeeper=hosts)
        cluster.start()
        cluster.create(log_name, 1)
        aside = cluster.create(f"{log_name}-aside", 1)
        load = Load(cluster, log_name)
        session = all_registered(cluster, ensemble)[2]
        for number, cut in enumerate(("refusing", "swallowing")):
            with contextlib.ExitStack() as cuts:
                for way in ways:
                    cuts.enter_context(way.refusing() if cut == "refusing" else way.swallowing("upstream"))
                wait_until(lambda: set(registrations(cluster, ensemble)) == {1, 3}, "its registration to go")
                load.go_on()
                send(cluster.address(2, "never"), aside, [f"through the one that is cut off, {number}"])
                events = read(cluster.address(2, "never"), aside, number + 1)
                assert events[-1].body == f"through the one that is cut off, {number}"
                assert ready(cluster, 2)["ok"]
                assert "node 2 waits for" in cluster.log(2)
            found = all_registered(cluster, ensemble)
            assert found[2] != session
            assert len(set(found.values())) == 3
            session = found[2]
        measured(f"longest pause of acknowledgements while node 2 was cut off from ZooKeeper: {load.judge():.2f} s")
