"""The node that a transaction belongs to dies: nothing of it counts, and the next one is another node's."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.client import ConsumerClient, ConsumerOptions, ProducerClient, Start, TransactionRolledBackError
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.cluster import Cluster


@pytest.mark.parametrize("name", [None, "survivor"])
async def test_a_transaction_dies_with_its_node_and_the_next_one_is_begun_at_another(
    tmp_path: Path, name: str | None
) -> None:
    async with Cluster(tmp_path) as cluster:
        nodes = Nodes(cluster)
        log, servers = await nodes.log(4), nodes.servers
        async with ProducerClient(servers, log, transactional_id=name) as producer:
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
            if name is None:  # nobody but its timeout ends what the dead node had open
                return
            options = ConsumerOptions(until_end=True)
            async with ConsumerClient(servers, log, start=Start.earliest(), options=options) as consumer:
                assert sorted([event.body async for event in consumer]) == [b"first"] * 4 + [b"second"] * 4
