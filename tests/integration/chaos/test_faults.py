"""The cluster behind proxies: each directed link can be harmed alone, nothing goes round it, and everything heals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from chaos.cluster.links import NODES, NetworkLink
from chaos.cluster.proxied import CLASSES, ProxiedCluster, Shape
from chaos.faults import schedule
from chaos.faults.catalogue import CATALOGUE, NEED_CLOCKS, NEED_DISKS
from chaos.faults.fault import Aborted, Scene
from chaos.faults.network import OneWay
from chaos.faults.processes import Kill, Pause
from chaos.faults.schedule import Period
from chaos.history.recorder import Recorder
from chaos.proxies import ProxyServer, find_server
from holdfast.client import ConsumerClient, ProducerClient, ProducerOptions, Start

pytestmark = pytest.mark.cluster

LOG = "scene"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedCluster]:
    program = find_server()
    if program is None:
        pytest.skip("there is no Toxiproxy server")
    directory = tmp_path_factory.mktemp("chaos")
    with ProxyServer(program, directory / "toxiproxy.log") as server:
        cluster = ProxiedCluster(directory, server, Shape())
        try:
            cluster.start()
            cluster.create_log(LOG, 2)
            yield cluster
        finally:
            cluster.close()


def scene(cluster: ProxiedCluster) -> Scene:
    return Scene(cluster, LOG, random.Random(7), 0.5)


def test_every_pair_of_nodes_and_every_class_of_clients_has_links_of_its_own(cluster: ProxiedCluster) -> None:
    nodes = [str(node) for node in cluster.nodes]
    pairs = {(a, b) for a in nodes for b in nodes if a != b}
    assert {link[:2] for link in cluster.links.all if link.protocol == NODES} == pairs
    for pair in pairs:
        parts = cluster.links.parts(NetworkLink(*pair, NODES))
        assert sorted(direction for _, direction in parts) == ["downstream", "upstream"]
        assert len({way.name for way, _ in parts}) == 2, "what A says travels on A's way, and as answers on B's"
    clients = {link[:2] for link in cluster.links.all if link.protocol != NODES}
    assert clients == {(who, node) for who in CLASSES for node in nodes} | {(n, w) for n in nodes for w in CLASSES}


async def test_clients_go_through_their_proxies_and_nowhere_else(cluster: ProxiedCluster) -> None:
    """While all links of the consumers are refused, a producer is redirected and served; a consumer is not."""
    links = [link for link in cluster.links.all if "consumers" in link[:2]]
    with cluster.links.refused(links):
        async with ProducerClient(cluster.servers("producers"), LOG) as producer:
            for partition in ("0", "1"):
                await producer.send_and_confirm(b"through", partition=partition)
        with pytest.raises(Exception, match=r"reach|connect|answer"):
            async with ConsumerClient(cluster.servers("consumers")[0], LOG, start=Start.earliest()) as consumer:
                consumer.options  # noqa: B018 - never reached
    async with ConsumerClient(cluster.servers("consumers"), LOG, start=Start.earliest()) as consumer:
        seen: set[bytes] = set()  # of other tests' events, too
        async with asyncio.timeout(60):
            while b"through" not in seen:
                seen |= {event.body for event in await consumer.receive(timeout_s=30)}


def test_a_leader_that_hears_nobody_is_replaced_while_it_is_deaf(cluster: ProxiedCluster) -> None:
    before = cluster.leaders(LOG)
    stage = scene(cluster)
    with OneWay("leader", "deaf").strike(stage) as struck:
        node = int(struck.rpartition(" ")[2])
        others = [one for one in cluster.nodes if one != node]

        def replaced() -> bool:
            described = cluster.call(lambda admin: admin.describe_log(LOG), others)
            return all(one["leader"] not in (node, None) for one in described["partitions"])

        cluster.wait_for(replaced, f"other leaders than node {node}")
    assert node in before.values()
    cluster.wait_level(LOG)


@pytest.mark.parametrize("fault", [Kill("leader"), Pause("leader")], ids=["kill", "pause"])
def test_what_was_struck_runs_again_also_when_the_run_is_broken_off(
    cluster: ProxiedCluster, fault: Kill | Pause
) -> None:
    with pytest.raises(Aborted), fault.strike(scene(cluster)):
        raise Aborted
    assert sorted(cluster.running) == sorted(cluster.nodes)
    assert not any(node.is_paused for node in cluster.nodes.values())
    cluster.wait_level(LOG)


async def test_the_coordinators_leader_is_found_by_asking_and_struck(cluster: ProxiedCluster) -> None:
    """By the word of the cluster, which the log of the node confirms; a commit that was under way is carried out."""
    options = ProducerOptions(transactional_id="decided", transaction_timeout_s=60.0, delivery_timeout_s=60.0)
    async with ProducerClient(cluster.servers("producers"), LOG, options) as producer:
        transaction = producer.transaction()
        await transaction.begin()
        await transaction.send_batch([b"whole"], partition="0")
        stage = replace(scene(cluster), transactional_ids=["decided", "unheard of"])
        found = await asyncio.to_thread(cluster.coordinators, stage.transactional_ids)
        described = await asyncio.to_thread(cluster.call, lambda admin: admin.describe_transaction("decided"))
        group, leader = described["coordinator"]["raft_group"], described["coordinator"]["leader"]
        assert found == {"decided": leader}
        assert group in {one for one, _, _ in cluster.nodes[leader].leaderships(0)}
        with Kill("coordinator", id="F1C").strike(stage) as struck:
            assert struck == f"node {leader}"
            assert leader not in cluster.running
            await transaction.commit()
            after = await asyncio.to_thread(cluster.coordinators, stage.transactional_ids)
            assert after["decided"] != leader
    async with ConsumerClient(cluster.servers("consumers"), LOG, start=Start.earliest()) as consumer:
        seen = []
        while b"whole" not in seen:
            seen += [event.body for event in await consumer.receive(timeout_s=60)]
    assert sorted(cluster.running) == sorted(cluster.nodes)
    await asyncio.to_thread(cluster.wait_level, LOG)


def test_what_finds_nobody_to_strike_does_nothing_and_is_told(cluster: ProxiedCluster) -> None:
    stage = replace(scene(cluster), transactional_ids=["unheard of"])
    recorder = Recorder()
    schedule.play([Period(0.1, (Kill("coordinator", id="F1C"),), 7)], stage, recorder, print)
    (told,) = recorder.history.faults
    assert (told.kind, told.t_injected_ns, told.t_healed_ns) == ("F1C kill coordinator", None, None)
    assert told.target == "nobody could say who decides for unheard of"
    assert sorted(cluster.running) == sorted(cluster.nodes)


def test_every_fault_has_a_word_for_people_and_says_what_it_needs() -> None:
    for number, (title, makes) in CATALOGUE.items():
        assert title
        assert number == "F0" or makes
        for make in makes:
            fault = make()
            assert fault.kind
            assert fault.id == number or number == "F1"
    assert set(CATALOGUE) >= NEED_DISKS | NEED_CLOCKS
