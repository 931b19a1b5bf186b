"""The node that a transaction belongs to dies: nothing of it counts, and the next one is another node's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.client import (
    ConsumerClient,
    ProducerClient,
    ProducerOptions,
    Start,
    TransactionRolledBackError,
)
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import WAIT_S


@pytest.mark.parametrize("name", [None, "survivor"])
async def test_a_transaction_dies_with_its_node_and_the_next_one_is_begun_at_another(
    tmp_path: Path, name: str | None
) -> None:
    async with ListenerCluster(tmp_path) as cluster:
        nodes = Nodes(cluster)
        log, servers = await nodes.log(4), nodes.servers
        options = ProducerOptions(transactional_id=name, transaction_timeout_s=900.0)
        async with ProducerClient(servers, log, options=options) as producer:
            async with producer.transaction() as tx:
                for partition in range(4):
                    await tx.send(b"first", partition=str(partition))
            tx = producer.transaction()
            await tx.begin()
            for partition in range(4):
                await (await tx.send(b"lost", partition=str(partition)))
            await cluster.lose(1)
            with pytest.raises(TransactionRolledBackError):
                await tx.commit()
            async with producer.transaction() as tx:
                for partition in range(4):
                    await tx.send(b"second", partition=str(partition))
        async with asyncio.timeout(WAIT_S), ConsumerClient(servers, log, start=Start.earliest()) as consumer:
            events = aiter(consumer)
            found = [await anext(events) for _ in range(8)]  # the second ones come when the lost ones are aborted
        assert sorted(event.body for event in found) == [b"first"] * 4 + [b"second"] * 4
