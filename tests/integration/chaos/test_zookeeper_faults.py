"""Faults of a real ZooKeeper: each does what it says, the data plane serves on, and nodes are registered once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.checkers.all import judge_run
from chaos.checkers.verdict import Result
from chaos.cluster.links import NODES, ZOOKEEPER
from chaos.cluster.proxied import ProxiedCluster, Shape
from chaos.cluster.registrations import RegistrationWatch, unanswered
from chaos.cluster.zookeeper import Ensemble, ZooKeeperEnded, missing
from chaos.faults.catalogue import CATALOGUE
from chaos.faults.fault import Scene
from chaos.faults.zookeeper import CutFromZooKeeper, EndSessions, KillZooKeeper
from chaos.history.history import History
from chaos.proxies import ProxyServer, find_server
from holdfast.client import ProducerClient

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(missing()), reason=missing())]

LOG = "scene"
KINDS = [KillZooKeeper(), CutFromZooKeeper(), EndSessions("all")]
if os.environ.get("HOLDFAST_CHAOS_DEFECTS"):  # `make chaos`
    KINDS = [make() for make in CATALOGUE["F14"][1]]  # type: ignore[misc]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedCluster]:
    program = find_server()
    if program is None:
        pytest.skip("there is no Toxiproxy server")
    directory = tmp_path_factory.mktemp("chaos")
    with ProxyServer(program, directory / "toxiproxy.log") as server:
        cluster = ProxiedCluster(directory, server, Shape(with_zookeeper=True))
        try:
            cluster.start()
            cluster.create_log(LOG, 1)
            yield cluster
        finally:
            cluster.close()


async def test_what_happens_to_zookeeper_happens_to_nobody_else(cluster: ProxiedCluster) -> None:
    """One after the other; events are acknowledged while each is in force."""
    assert cluster.ensemble is not None
    history = History()
    watch = RegistrationWatch(cluster.ensemble.address, cluster.registry, history.registrations.extend)
    watch.start()
    try:
        async with ProducerClient(cluster.servers("producers"), LOG) as producer:
            for fault in KINDS:
                await asyncio.to_thread(everybody_is_registered, cluster)
                block = fault.strike(Scene(cluster, LOG, random.Random(7), 0.5))
                before = await asyncio.to_thread(cluster.registered)
                struck = await asyncio.to_thread(block.__enter__)
                try:
                    await producer.send_and_confirm(f"while {fault.kind}".encode(), partition="0")
                    await asyncio.to_thread(has_happened, cluster, fault, struck, before)
                finally:
                    await asyncio.to_thread(block.__exit__, None, None, None)
        await asyncio.to_thread(everybody_is_registered, cluster)
    finally:
        await asyncio.to_thread(watch.stop)
    verdict = next(one for one in judge_run(history).verdicts if one.checker == "REG")
    assert (verdict.result, verdict.anomalies) == (Result.PASSED, [])
    assert len({row.session for row in history.registrations}) > len(cluster.nodes), "sessions were lost on the way"
    assert sorted(cluster.running) == sorted(cluster.nodes)
    assert not any(link.protocol == NODES for link in cluster.links.all), "nodes reach each other past the proxies"
    for node in cluster.nodes:
        assert len({link for link in cluster.links.all if link.protocol == ZOOKEEPER and str(node) in link}) == 6


def test_a_server_that_ended_by_itself_is_started_again(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path)
    try:
        ensemble.start()
        leader = ensemble.leader()
        os.kill(leader._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        ProxiedCluster.wait_for(lambda: not leader.running, "its end to be seen")
        assert ensemble.leader() is not leader
        ensemble.start()
        assert leader.mode() in ("leader", "follower")
    finally:
        ensemble.kill()
    broken = ensemble.servers[0]
    (broken.directory / "zoo.cfg").write_text("nonsense")
    with pytest.raises(ZooKeeperEnded, match="ended with status"):
        broken.start()
    broken.kill()


def everybody_is_registered(cluster: ProxiedCluster) -> None:
    cluster.wait_for(cluster.all_registered, "every node to be registered")


def has_happened(cluster: ProxiedCluster, fault: object, struck: str, before: dict[int, int]) -> None:
    """What the fault says that it does."""
    assert cluster.ensemble is not None
    if isinstance(fault, KillZooKeeper):
        down = [server.directory.name for server in cluster.ensemble.servers if not server.running]
        assert struck == ", ".join(down)
        if fault.whom == "leader":
            assert cluster.ensemble.leader().directory.name != struck
    elif isinstance(fault, CutFromZooKeeper):
        node = int(struck.rpartition(" ")[2])
        cluster.wait_for(lambda: set(cluster.registered()) == set(before) - {node}, "its registration to go")
    else:
        assert isinstance(fault, EndSessions)
        ended = set(before) if fault.whom == "all" else {int(struck.rpartition(" ")[2])}
        now: dict[int, int] = {}

        def have_new_ones() -> bool:
            now.clear()
            with contextlib.suppress(*unanswered()):
                now.update(cluster.registered())
            return {node for node, session in now.items() if session != before[node]} == ended

        try:
            cluster.wait_for(have_new_ones, f"new sessions of {struck}, and of no other")
        except TimeoutError as error:
            error.add_note(f"registered before: {before}, and now: {now}")
            raise
