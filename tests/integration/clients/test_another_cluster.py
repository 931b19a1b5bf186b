"""Another cluster answers at the addresses of the one that clients knew, with a log of the same name.

Its log ids, offsets and producers begin anew, so nothing but the cluster's identity tells the two apart. No client
writes on into it, none skips or takes what it has; each is told, with a sentence.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.client import (
    AdminClient,
    AdminError,
    ConsumerClient,
    LogDeletedError,
    OwnershipLostError,
    ProducerClient,
    RangeClient,
    Start,
    TransactionOutcomeUnknownError,
    sync,
)
from holdfast.client.transport.management_requests import request
from tests.integration.clusters.cluster import Cluster
from tests.unit.listener.support.peer import eventually

pytestmark = pytest.mark.cluster

SAID = "another cluster answers at this address"
WAIT_S = 60.0
OLD, NEW = 3, 27  # events in the logs of the two clusters


@dataclass
class Replaceable:
    """A cluster, and how its clients reach it."""

    cluster: Cluster
    log: str
    servers: list[str]

    def found(self) -> None:
        """The log is made, and has events that say of which cluster they are."""
        self.cluster.start()
        self.cluster.create(self.log)

    def fill(self, what: str, count: int) -> None:
        with sync.ProducerClient(self.servers, self.log) as producer:
            producer.send_many([f"{what}-{number}".encode() for number in range(count)], partition="0")
            producer.flush()

    def replace(self, *, with_the_log: bool = True) -> None:
        """All that the nodes know is gone; the same configuration starts another cluster."""
        self.cluster.kill()
        for node in self.cluster.nodes.values():
            shutil.rmtree(node.data_dir)
        if with_the_log:
            self.found()
        else:
            self.cluster.start()

    def cluster_id(self) -> str:
        return str(self.cluster.call(lambda admin: admin.cluster_status())["cluster_id"])

    def bodies(self) -> list[bytes]:
        (extent,) = self._extents()
        with sync.RangeClient(self.servers, isolation="uncommitted") as client:
            blocks = client.read(self.log, extent.partition, extent.start, extent.end)
            return [event.body for block in blocks for event in block.events()]

    def _extents(self) -> list[Any]:
        with sync.RangeClient(self.servers, isolation="uncommitted") as client:
            return client.extents(self.log)


@pytest.fixture(params=["one node", "gateway"])
def replaceable(request: pytest.FixtureRequest, make_cluster: Callable[..., Cluster], log_name: str) -> Replaceable:
    """`gateway`: clients are at the two of three nodes that do not lead the log's partition."""
    cluster = make_cluster(nodes=1 if request.param == "one node" else 3)
    found = Replaceable(cluster, log_name, [])
    found.found()
    if request.param == "one node":
        found.servers = [cluster.address(1)]
    else:
        leader = cluster.leaders(log_name)["0"]
        found.servers = [cluster.address(node, "never") for node in cluster.nodes if node != leader]
    return found


async def told(what: str, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """`act` fails for good, since another cluster is there."""
    with pytest.raises(LogDeletedError, match=SAID) as error:
        async with asyncio.timeout(WAIT_S):
            await act()
    assert not error.value.retriable, what


async def test_no_client_goes_on_in_another_cluster(replaceable: Replaceable) -> None:
    await asyncio.to_thread(replaceable.fill, "old", OLD)
    servers, log, first = replaceable.servers, replaceable.log, replaceable.cluster_id()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        plain = await enter(ProducerClient(servers, log))
        numbered = await enter(ProducerClient(servers, log, idempotent=True))
        named = await enter(ProducerClient(servers, log, transactional_id="t"))
        nameless = await enter(ProducerClient(servers, log))
        reader = await enter(ConsumerClient(servers, log, start=Start.earliest()))
        at_the_end = await enter(ConsumerClient(servers, log, start=Start.latest()))
        member = await enter(ConsumerClient(servers, log, start=Start.earliest(), group="g"))
        ranges = await enter(RangeClient(servers))

        async def send(producer: ProducerClient) -> None:
            await (await producer.send(b"written on", partition="0"))

        async def in_transaction(producer: ProducerClient) -> None:
            async with producer.transaction() as txn:
                await txn.send(b"written on")

        async def read_on(consumer: ConsumerClient) -> None:
            """What has arrived from the first cluster is handed out; then comes the error."""
            while events := await consumer.receive(timeout_s=WAIT_S):
                assert not [event for event in events if event.body.startswith(b"new")]

        async def read_range() -> None:
            async for _ in ranges.read(log, "0", 0, OLD):
                pass

        for producer in (plain, numbered):
            await send(producer)
        for producer in (named, nameless):
            await in_transaction(producer)
        events: list[Any] = []
        for consumer in (reader, at_the_end, member):
            events = await consumer.receive(timeout_s=WAIT_S)
            assert events
        while len(events) < 2:
            events += await member.receive(timeout_s=WAIT_S)
        await member.commit(events[0])
        await ranges.extents(log)
        await read_range()
        claim = {"group": "g", "partition": 0, "offset": events[-1].offset, "claim": member.assignment["0"]}
        claim["log"] = str(ranges.identity(log))
        assert claim["log"].startswith(first)

        await asyncio.to_thread(replaceable.replace)
        await asyncio.to_thread(replaceable.fill, "new", NEW)
        assert await asyncio.to_thread(replaceable.cluster_id) != first

        for name, producer in {"plain": plain, "numbered": numbered}.items():
            await told(name, lambda producer=producer: send(producer))
        for name, producer in {"named": named, "nameless": nameless}.items():
            await told(name, lambda producer=producer: in_transaction(producer))
        for name, consumer in {"reader": reader, "at the end": at_the_end, "member": member}.items():
            await told(name, lambda consumer=consumer: read_on(consumer))
        await told("extents", lambda: ranges.extents(log))
        await told("range", read_range)
        with pytest.raises(OwnershipLostError):
            await member.commit(events[-1])
    async with AdminClient(servers) as admin:
        with pytest.raises(AdminError, match=SAID) as refused:
            await request(admin._network, "group", "commit", log, claim, changes=False, timeout_s=WAIT_S)
    assert refused.value.code == "not-owner"
    found = await asyncio.to_thread(replaceable.bodies)
    assert found == [f"new-{number}".encode() for number in range(NEW)], "nothing of an old client"
    async with ConsumerClient(servers, log, start=Start.earliest(), group="g") as newcomer:
        (event, *_) = await newcomer.receive(timeout_s=WAIT_S)
        assert event.body == b"new-0", "the group of the same name has no position here"


async def test_a_commit_whose_answer_got_lost_with_its_cluster_is_of_unknown_outcome(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    """The other cluster remembers no transaction of the id, which says nothing of this one."""
    cluster = make_cluster(nodes=1)
    replaceable = Replaceable(cluster, log_name, [cluster.address(1)])
    await asyncio.to_thread(replaceable.found)
    async with ProducerClient(replaceable.servers, log_name, transactional_id="t") as producer:
        txn = producer.transaction()
        await txn.begin()
        await (await txn.send(b"one"))
        with cluster.paused(1):
            committing = asyncio.ensure_future(txn.commit())
            await eventually(lambda: txn._transactor._answer is not None and not txn._transactor._answer.done())
            await asyncio.to_thread(cluster.kill)
        await asyncio.to_thread(replaceable.replace)
        with pytest.raises(TransactionOutcomeUnknownError, match=SAID):
            await committing


async def test_without_a_log_of_the_name_it_is_another_cluster_too(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(nodes=1)
    replaceable = Replaceable(cluster, log_name, [cluster.address(1)])
    await asyncio.to_thread(replaceable.found)
    async with ProducerClient(replaceable.servers, log_name) as producer:
        await (await producer.send(b"one"))
        await asyncio.to_thread(replaceable.replace, with_the_log=False)

        async def send() -> None:
            await (await producer.send(b"two"))

        await told("a producer", send)


def test_a_synchronous_client_is_told(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster = make_cluster(nodes=1)
    replaceable = Replaceable(cluster, log_name, [cluster.address(1)])
    replaceable.found()
    servers = replaceable.servers
    with ExitStack() as stack:
        producer = stack.enter_context(sync.ProducerClient(servers, log_name, idempotent=True))
        named = stack.enter_context(sync.ProducerClient(servers, log_name, transactional_id="t"))
        consumer = stack.enter_context(sync.ConsumerClient(servers, log_name, start=Start.earliest()))
        producer.send(b"one", partition="0").result()
        with named.transaction() as txn:
            txn.send(b"two")
        assert consumer.receive(timeout_s=WAIT_S)
        replaceable.replace()
        with pytest.raises(LogDeletedError, match=SAID):
            producer.send(b"three", partition="0").result()
        with pytest.raises(LogDeletedError, match=SAID), named.transaction() as txn:
            txn.send(b"four")
        with pytest.raises(LogDeletedError, match=SAID):
            assert {event.body for event in consumer} == set(), "it ends with the error"
    assert replaceable.bodies() == []


def test_a_cluster_keeps_its_identity(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    """Over the death of its nodes, one by one and all at once; and all of its nodes tell the same."""
    cluster = make_cluster()
    cluster.start()
    cluster.create(log_name)

    def told_by(node: int) -> str:
        status = cluster.call(lambda admin: admin.cluster_status(), [cluster.address(node)])
        return str(status["cluster_id"])

    (first,) = {told_by(node) for node in cluster.nodes}
    assert len(first) == 16
    with sync.ProducerClient(cluster.addresses, log_name) as producer:
        for node in cluster.nodes:
            cluster.kill(node)
            producer.send(b"one", partition="0").result()
            cluster.start(node)
        cluster.kill()
        cluster.start()
        producer.send(b"two").result()
    assert {told_by(node) for node in cluster.nodes} == {first}
