"""Consumer groups as an operator sees and sets them: from any node, on the leaders' word."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.client import AdminClient, Event
from holdfast.client.errors import AdminError
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.consuming import attached, terms
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.reading import start_at

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def filled(nodes: Nodes, partitions: int = 2, count: int = 10) -> str:
    log = await nodes.log(partitions)
    async with nodes.producer(log) as producer:
        for partition in range(partitions):
            await producer.send_batch([Event(b"%d" % number) for number in range(count)], partition=str(partition))
    return log


def offset(number: int) -> str:
    return f"{number:016x}"


async def code(work: Any) -> str:
    with pytest.raises(AdminError) as refused:
        await work
    return refused.value.code


async def test_positions_are_committed_reset_and_forgotten_and_the_lag_follows(nodes: Nodes) -> None:
    log = await filled(nodes)
    async with AdminClient(nodes.servers) as admin:
        assert await admin.list_groups(log) == []
        assert await code(admin.describe_group(log, "g")) == "not-found"
        done = await admin.commit_group(log, "g", "1", offset(3))
        assert done == {"group": "g", "partition": "1", "committed_offset": offset(3)}
        described = await admin.describe_group(log, "g")
        assert (described["lag"], described["known_lag"], described["unknown_partitions"]) == (None, 6, 1)
        (listed,) = await admin.list_groups(log)
        assert (listed["lag"], listed["known_lag"], listed["unknown_partitions"]) == (None, 6, 1)
        assert [row["committed_offset"] for row in described["partitions"]] == [None, offset(3)]
        assert [row["lag"] for row in described["partitions"]] == [None, 6]
        assert (await admin.reset_group(log, "g", "@earliest"))["lag"] == 20
        assert (await admin.reset_group(log, "g", "@latest", partition="0"))["lag"] == 10
        assert (await admin.reset_group(log, "g", offset(8), partition="1"))["lag"] == 1
        assert (await admin.reset_group(log, "g", "none", partition="0"))["lag"] is None
        (listed,) = await admin.list_groups(log)
        assert listed == {
            "group": "g", "members": 0, "active_partitions": 0, "committed_partitions": 1,
            "lag": None, "known_lag": 1, "unknown_partitions": 1,
        }  # fmt: skip
        await admin.delete_group(log, "g")
        assert await admin.list_groups(log) == []
        assert await code(admin.delete_group(log, "g")) == "not-found"


async def test_what_makes_no_sense_is_refused(nodes: Nodes) -> None:
    log = await filled(nodes, 1)
    async with AdminClient(nodes.servers) as admin:
        for work, wanted in (
            (admin.commit_group(log, "g", "0", offset(10)), "invalid-argument"),
            (admin.commit_group(log, "g", "0", "10"), "invalid-argument"),
            (admin.commit_group(log, "g", "7", offset(1)), "not-found"),
            (admin.commit_group(log, "", "0", offset(1)), "invalid-argument"),
            (admin.commit_group(log, "\x00a/b", "0", offset(1)), "invalid-argument"),
            (admin.commit_group(log, "g", "0", offset(1), claim=-4), "invalid-argument"),
            (admin.commit_group(log, "g", "0", offset(1), claim=4), "not-owner"),
            (admin.commit_group("nowhere", "g", "0", offset(1)), "not-found"),
            (admin.reset_group(log, "g", "soon"), "invalid-argument"),
        ):
            assert await code(work) == wanted
        assert await admin.list_groups(log) == []


async def test_while_somebody_reads_only_its_claim_commits(nodes: Nodes) -> None:
    log = await filled(nodes, 1)
    port = int(nodes.servers[1].rpartition(":")[2])
    async with AdminClient(nodes.servers) as admin, Peer(port, container="reader") as peer:
        link = await attached(peer, terms(epoch=3), start_at(log, "@earliest"))
        claim = link.remote_properties["holdfast:claim"]
        (row,) = (await admin.describe_group(log, "g"))["partitions"]
        assert (row["active"], row["member"], row["epoch"], row["claim"]) == (True, "reader", 3, claim)
        assert await code(admin.commit_group(log, "g", "0", offset(1))) == "group-active"
        assert await code(admin.reset_group(log, "g", "@earliest")) == "group-active"
        assert await code(admin.delete_group(log, "g")) == "group-active"
        await admin.commit_group(log, "g", "0", offset(5), claim=claim)
        assert (await admin.commit_group(log, "g", "0", offset(2), claim=claim))["committed_offset"] == offset(5)
        newer = await attached(peer, terms(epoch=4), start_at(log, "@earliest"))
        assert await code(admin.commit_group(log, "g", "0", offset(6), claim=claim)) == "not-owner"
        assert str(newer.remote_properties["holdfast:position"]) == offset(5)


async def test_a_list_longer_than_one_answer_is_complete(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.client.admin.GROUPS_PER_ANSWER", 3)
    monkeypatch.setattr("node.admin.consumer_groups.LIST_LIMIT", 3)
    log = await filled(nodes, 2, 2)
    names = [f"group-{number}" for number in range(7)]
    async with AdminClient(nodes.servers) as admin:
        await asyncio.gather(
            *(admin.commit_group(log, name, str(place % 2), offset(0)) for place, name in enumerate(names))
        )
        assert [entry["group"] for entry in await admin.list_groups(log)] == names
