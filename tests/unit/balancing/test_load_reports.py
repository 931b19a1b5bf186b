"""What a plan is made from: the metadata, and the words of the nodes."""

from __future__ import annotations

from cluster.metadata import reassign
from cluster.metadata.planning import NodeLoad
from cluster.rpc import LoadReport
from tests.unit.balancing.seen_cluster import GIB, SeenCluster


async def test_nodes_and_partitions_are_as_the_metadata_and_the_reports_say() -> None:
    cluster = SeenCluster(nodes=3)
    cluster.create("trades", partitions=2, replicas=2)
    load = await cluster.load_reports.gather()
    assert list(load.nodes) == [NodeLoad(node, "", False, 100 * GIB, 50 * GIB, 0.0, 0.0, GIB) for node in (1, 2, 3)]
    first = load.partitions[0]
    assert (first.name, first.size_bytes, first.leader) == ("trades/0", 1 << 20, first.replicas[0])
    assert (first.configuration_version, first.target, first.is_movable) == (1, (), True)
    assert sorted(cluster.asked) == [2, 3]


async def test_a_group_that_no_node_says_it_leads_has_no_leader() -> None:
    cluster = SeenCluster(nodes=3)
    cluster.create("trades", partitions=1, replicas=1)
    leader = cluster.view.logs["trades"].partitions[0].replicas[0]
    cluster.reports = {node: LoadReport(100 * GIB, 0, {99: 1}) for node in (1, 2, 3)}
    assert (await cluster.load_reports.gather()).partitions[0].leader is None
    cluster.reports = {}
    assert (await cluster.load_reports.gather()).partitions[0].leader == leader


async def test_the_word_of_a_node_that_falls_silent_is_good_for_half_a_minute() -> None:
    cluster = SeenCluster(nodes=2)
    cluster.create("trades", partitions=2, replicas=2)
    await cluster.load_reports.gather()
    cluster.silent = {2}
    cluster.now_s += 30
    load = await cluster.load_reports.gather()
    assert (load.nodes[1].report_age_s, {one.leader for one in load.partitions}) == (30.0, {1, 2})
    cluster.now_s += 0.1
    load = await cluster.load_reports.gather()
    assert {one.leader for one in load.partitions} == {1, None}
    assert load.nodes[1].capacity_bytes == 100 * GIB


async def test_a_node_that_is_lost_is_not_asked_and_leads_nothing() -> None:
    cluster = SeenCluster(nodes=2)
    cluster.create("trades", partitions=2, replicas=1)
    await cluster.load_reports.gather()
    cluster.asked.clear()
    cluster.lost = {2: 7.0}
    load = await cluster.load_reports.gather()
    assert cluster.asked == []
    assert load.nodes[1].away_s == 7.0
    assert {one.leader for one in load.partitions} == {1, None}


async def test_a_node_that_never_reported_is_not_planned_for() -> None:
    cluster = SeenCluster(nodes=2)
    cluster.silent = {2}
    assert (await cluster.load_reports.gather()).nodes[1].report_age_s > 30


async def test_what_is_under_way_counts_as_it_will_be() -> None:
    cluster = SeenCluster(nodes=4)
    record = cluster.create("trades", partitions=1, replicas=2).partitions[0]
    old, new = record.replicas, tuple({1, 2, 3, 4} - set(record.replicas))
    cluster.do(reassign([(record.group, 1, new)]))
    (one,) = (await cluster.load_reports.gather()).partitions
    assert (set(one.target), set(one.replicas), one.is_movable) == (set(new), set(old), False)


async def test_a_partition_of_another_size_than_its_log_wants_is_left_alone() -> None:
    cluster = SeenCluster(nodes=3)
    cluster.create("trades", partitions=1, replicas=2)
    (one,) = (await cluster.load_reports.gather()).partitions
    assert one.wanted_replicas == 2
