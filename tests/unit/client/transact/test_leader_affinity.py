"""Transactions that write to one partition go to its leader, between two of them; others stay where they are."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.client import NetworkOptions, ProducerClient, ProducerOptions
from holdfast.client.transact import leader_affinity
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies, cut

pytestmark = pytest.mark.asyncio(loop_scope="module")

MORE = 2  # transactions than it takes


def server(producer: ProducerClient) -> str:
    """That its transactions are begun at."""
    assert producer._transactor is not None
    address = producer._transactor.connection.address
    return f"{address.host}:{int(address.port)}"


async def looked(nodes: Nodes, producer: ProducerClient) -> bool:
    """Whether it has looked for a leader, when that is over."""
    transactor: Any = producer._transactor
    await nodes.until(lambda: transactor._home._looking is None)
    return bool(transactor._home._looked_at_s > 0)


async def away(nodes: Nodes, log: str, partition: str = "0") -> tuple[list[str], str]:
    """All servers, one that does not lead the partition in front; and the leader's."""
    leader = nodes.servers[await nodes.cluster.settled_leader(log, partition) - 1]
    return sorted(nodes.servers, key=lambda one: one == leader), leader


async def write(nodes: Nodes, one: ProducerClient, count: int, *partitions: str) -> None:
    for number in range(count):
        async with one.transaction() as tx:
            for partition in partitions:
                await tx.send(b"%d" % number, partition=partition)
        if one._transactor is not None:
            await looked(nodes, one)


@pytest.mark.parametrize("name", [None, "at home"])
async def test_who_writes_to_one_partition_goes_to_its_leader(nodes: Nodes, name: str | None) -> None:
    log = await nodes.log(2)
    servers, leader = await away(nodes, log)
    async with ProducerClient(servers, log, ProducerOptions(transactional_id=name)) as one:
        await write(nodes, one, leader_affinity.LOOKED_FOR_AFTER, "0")
        assert server(one) != leader, "it moves between two transactions only"
        await write(nodes, one, MORE, "0")
        assert server(one) == leader
        cut(one)
        await write(nodes, one, 1, "0")
        await write(nodes, one, MORE, "0", "1")
        numbers = [*range(leader_affinity.LOOKED_FOR_AFTER), *range(MORE), 0, *range(MORE)]
    expected = [b"%d" % number for number in numbers]
    assert await bodies(nodes, log) == [*expected, *(b"%d" % number for number in range(MORE))]


async def test_who_writes_to_several_stays(nodes: Nodes) -> None:
    log = await nodes.log(2)
    servers, _ = await away(nodes, log)
    async with ProducerClient(servers, log, ProducerOptions(transactional_id="several")) as one:
        await write(nodes, one, leader_affinity.LOOKED_FOR_AFTER + MORE, "0", "1")
        for _ in range(leader_affinity.LOOKED_FOR_AFTER):
            await write(nodes, one, 1, "0")
            await write(nodes, one, 1, "1")
        assert not await looked(nodes, one)
        assert server(one) == servers[0]


async def test_who_follows_no_redirects_stays(nodes: Nodes) -> None:
    log = await nodes.log(1)
    servers, _ = await away(nodes, log)
    options = ProducerOptions(transactional_id="stays", network=NetworkOptions(follow_redirects=False))
    async with ProducerClient(servers, log, options) as one:
        await write(nodes, one, leader_affinity.LOOKED_FOR_AFTER + MORE, "0")
        assert not await looked(nodes, one)
        assert server(one) == servers[0]


async def test_who_is_at_the_leader_stays_and_does_not_look_again_soon(nodes: Nodes) -> None:
    log = await nodes.log(1)
    servers, leader = await away(nodes, log)
    async with ProducerClient([leader, *servers], log, ProducerOptions(transactional_id="there")) as one:
        await write(nodes, one, leader_affinity.LOOKED_FOR_AFTER, "0")
        assert await looked(nodes, one)
        assert one._transactor is not None
        connection, before_s = one._transactor.connection, one._transactor._home._looked_at_s
        await write(nodes, one, MORE, "0")
        assert one._transactor.connection is connection
        assert one._transactor._home._looked_at_s == before_s


async def test_a_leader_that_is_not_found_stands_in_nobodys_way(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await nodes.log(1)
    servers, _ = await away(nodes, log)
    monkeypatch.setattr(leader_affinity, "LOOK_WITHIN_S", 0.0)
    async with ProducerClient(servers, log, ProducerOptions(transactional_id="not found")) as one:
        await write(nodes, one, leader_affinity.LOOKED_FOR_AFTER + MORE, "0")
        assert await looked(nodes, one)
        assert server(one) == servers[0]
    assert len(await bodies(nodes, log)) == leader_affinity.LOOKED_FOR_AFTER + MORE
