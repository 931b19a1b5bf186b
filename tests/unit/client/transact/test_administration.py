"""Transactions as an operator sees and ends them, through any node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.client import AdminClient, AdminError, ProducerClient, TransactionRolledBackError
from node.transaction_coordinator.coordinator_replica import CoordinatorReplica
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies, noted
from tests.unit.listener.support.cluster import ListenerCluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def code(work: Any) -> str:
    with pytest.raises(AdminError) as refused:
        await work
    return refused.value.code


async def test_before_the_first_transaction_there_are_none(tmp_path: Path) -> None:
    async with ListenerCluster(tmp_path) as cluster, AdminClient(f"127.0.0.1:{cluster.ports[1]}") as admin:
        await cluster.create("trades")
        assert await admin.list_transactions() == []
        assert await admin.hanging_transactions() == []
        assert await code(admin.describe_transaction("nobody")) == "not-found"
        assert await code(admin.abort_transaction("nobody")) == "not-found"
        assert cluster.broker(1)._view.log("$transactions") is None, "who looks makes no coordinators"


async def test_what_an_id_has_open_is_shown_by_every_node_and_can_be_aborted(nodes: Nodes) -> None:
    log = await nodes.log(2)
    async with ProducerClient(nodes.servers, log, transactional_id="orders") as producer:
        tx = producer.transaction()
        await tx.begin()
        for partition in ("0", "1"):
            await (await tx.send(b"never", partition=partition))
        for server in nodes.servers:
            async with AdminClient(server) as admin:
                listed = await noted(admin, "orders")
                assert (listed["state"], listed["producer_id"], listed["epoch"]) == (
                    "ongoing", tx.producer_id, tx.epoch,
                )  # fmt: skip
                assert listed["open_ms"] >= 0
                assert listed["partition_count"] == 2
                described = await admin.describe_transaction("orders")
                places = [(one["log"], one["partition"]) for one in described["partitions"]]
                assert sorted(places) == [(log, "0"), (log, "1")]
                coordinator = described["coordinator"]
                multiraft = nodes.cluster.nodes[coordinator["leader"]]._multiraft
                assert multiraft.groups[coordinator["raft_group"]].is_leader
                assert coordinator["log"] == "$transactions"
                assert await admin.hanging_transactions() == []
        async with AdminClient(nodes.servers[1]) as admin:
            aborted = await admin.abort_transaction("orders")
            assert aborted["open_ms"] is None
            assert "operator" in aborted["last"]
            assert await code(admin.abort_transaction("orders")) == "not-allowed"
        with pytest.raises(TransactionRolledBackError):
            await tx.commit()
        async with producer.transaction() as tx:
            await tx.send(b"next", partition="0")
        assert await bodies(nodes, log) == [b"next"]


async def test_ids_are_listed_page_by_page(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.admin.transactions.LIST_LIMIT", 3)
    names = [f"page-{number:02}" for number in range(20)]
    log = await nodes.log(1)
    async with AdminClient(nodes.servers) as admin:
        for name in names:
            async with ProducerClient(nodes.servers, log, transactional_id=name):
                pass
        found = [one["transactional_id"] for one in await admin.list_transactions()]
        assert [name for name in found if name.startswith("page-")] == names
        assert len(set(found)) == len(found)


async def test_what_its_coordinator_does_not_end_hangs(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator has lost sight of the time; the partition has not."""
    log = await nodes.log(2)
    monkeypatch.setattr(CoordinatorReplica, "tick", lambda *_: None)
    async with (
        ProducerClient(nodes.servers, log, transactional_id="forgotten") as quick,
        AdminClient(nodes.servers) as admin,
    ):
        tx = quick.transaction()
        await tx.begin()
        await (await tx.send(b"x", partition="1"))
        assert [one for one in await admin.hanging_transactions(margin_ms=0) if one["log"] == log] == []
        leader = await nodes.cluster.settled_leader(log, "1")
        participant = nodes.cluster.broker(leader).handle(log, "1").taking_part
        own = participant._now_ms
        monkeypatch.setattr(participant, "_now_ms", lambda: own() + 100_000)
        found = await admin.hanging_transactions()
        (one,) = [one for one in found if one["log"] == log]
        assert (one["partition"], one["transactional_id"], one["coordinator_says"]) == ("1", "forgotten", "not decided")
        assert (one["producer_id"], one["epoch"], one["timeout_ms"]) == (tx.producer_id, tx.epoch, 60_000)
        assert one["open_ms"] >= 100_000
        assert one["first_offset"] == f"{0:016x}"
        assert await code(admin.hanging_transactions(margin_ms=-1)) == "invalid-argument"
        await tx.abort()
        assert [one for one in await admin.hanging_transactions(margin_ms=0) if one["log"] == log] == []
