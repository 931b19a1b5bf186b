"""Members of a group, as programs use them: partitions come and go, events come once for each owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.client import (
    AdminClient,
    AdminError,
    ConfigurationError,
    ConnectionLostError,
    ConsumerClient,
    ConsumerOptions,
    OwnershipLostError,
    PartitionOwnedError,
    Start,
)
from holdfast.client import sync as threaded
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.management_requests import Exchange
from tests.unit.client.support.members import TinyMember, filled, share
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

IMPATIENT = ConsumerOptions(reconnect_timeout_s=3.0)


async def test_one_member_reads_everything_and_the_group_remembers(nodes: Nodes) -> None:
    log = await filled(nodes)
    async with TinyMember(nodes, log) as first:
        await eventually(lambda: first.count == 400)
        assert all(offsets == list(range(100)) for offsets in first.got.values())
        assert set(first.consumer.assignment) == set("0123")
        assert await first.consumer.lag() == dict.fromkeys("0123", 0)
        assert await first.consumer.commit() == dict.fromkeys("0123", f"{99:016x}")
    assert sorted(first.heard) == sorted(
        [("assigned", partition) for partition in "0123"] + [("revoked", partition) for partition in "0123"]
    )
    await filled(nodes, 4, 10, log)
    async with TinyMember(nodes, log) as second, AdminClient(nodes.servers) as admin:
        await eventually(lambda: second.count == 40)
        assert all(offsets == list(range(100, 110)) for offsets in second.got.values())
        assert (await admin.describe_group(log, "g"))["lag"] == 40


async def test_members_share_and_a_partition_that_moves_goes_on_where_it_was_committed(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    log = await filled(nodes)
    async with TinyMember(nodes, log) as first:
        await eventually(lambda: first.count == 400)
        await first.consumer.commit()
        async with TinyMember(nodes, log) as second:
            await share([first, second], 2, 2)
            revoked = {partition for what, partition in first.heard if what == "revoked"}
            assert revoked == second.partitions
            await filled(nodes, 4, 10, log)
            await eventually(lambda: first.count == 420 and second.count == 20)
            assert {partition: offsets[0] for partition, offsets in second.got.items()} == dict.fromkeys(revoked, 100)
        await share([first], 4)
        await filled(nodes, 4, 10, log)
        await eventually(lambda: {offsets[-1] for offsets in first.got.values()} == {119})
    assert not [message for message in caplog.messages if "lost for group" in message], "it was handed over"


async def test_a_member_that_waits_for_a_partition_keeps_its_connections(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(nodes, 1, 10)
    attaches: list[str | None] = []
    ended: list[Exception | None] = []
    attach, lost = ClientConnection.attach_receiver, ClientConnection.connection_lost

    async def counted(self: ClientConnection, address: str, *rest: Any, name: str | None = None, **others: Any) -> Any:
        if address != protocol.NODES_ADDRESS:  # either client may begin to watch the nodes meanwhile
            attaches.append(name)
        return await attach(self, address, *rest, name=name, **others)

    def noted(self: ClientConnection, error: Exception | None) -> None:
        ended.append(error)
        lost(self, error)

    async with TinyMember(nodes, log) as first:
        await eventually(lambda: first.count == 10)
        monkeypatch.setattr(ClientConnection, "attach_receiver", counted)
        monkeypatch.setattr(ClientConnection, "connection_lost", noted)
        options = ConsumerOptions(reconnect_timeout_s=0.2)
        async with ConsumerClient(nodes.servers[:1], log, group="g", options=options):
            await eventually(lambda: len(attaches) > 5)
            assert len(set(attaches)) == 1, "each attach has the name of the one that was given up"
            assert ended == []
        monkeypatch.undo()


async def test_what_was_revoked_can_be_committed_in_the_callback_and_not_afterwards(nodes: Nodes) -> None:
    log = await filled(nodes, 2, 10)
    committed: dict[str, str] = {}

    async def revoked(partition: str) -> None:
        committed.update(await consumer.commit())

    async with ConsumerClient(nodes.servers, log, group="g", start=Start.earliest(), on_revoked=revoked) as consumer:
        events = []
        while len(events) < 20:
            events += await consumer.receive(timeout_s=20)
        async with TinyMember(nodes, log) as other:
            await share([other], 1)
            await eventually(lambda: len(committed) == 2)
            (lost,) = other.partitions
            event = next(event for event in events if event.partition == lost)
            with pytest.raises(OwnershipLostError):
                await consumer.commit(event)
            assert other.count == 0 or min(other.got[lost]) >= 0


async def test_a_group_that_begins_at_the_end_skips_nothing_that_comes_while_nobody_reads(nodes: Nodes) -> None:
    log = await filled(nodes, 1, 5)
    async with TinyMember(nodes, log, start=None) as first:
        await share([first], 1)
        async with AdminClient(nodes.servers) as admin:
            async with asyncio.timeout(40):
                while (await admin.describe_group(log, "g"))["lag"] != 0:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
        assert first.count == 0
    await filled(nodes, 1, 5, log)
    async with TinyMember(nodes, log, start=None) as second:
        await eventually(lambda: second.got["0"] == [5, 6, 7, 8, 9])


async def test_named_partitions_are_claimed_and_only_a_greater_epoch_takes_them(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    log = await filled(nodes, 2, 10)
    async with TinyMember(nodes, log, partitions=["0", "1"], epoch=1) as first:
        await eventually(lambda: first.count == 20)
        for epoch in (None, 1):
            async with TinyMember(nodes, log, partitions=["0"], epoch=epoch, options=IMPATIENT) as late:
                await eventually(lambda late=late: late.error)
                assert isinstance(late.error, PartitionOwnedError)
                assert late.error.retriable
        async with TinyMember(nodes, log, partitions=["0"], epoch=2) as second:
            await eventually(lambda: second.count == 10)
            await eventually(lambda: first.error)
            assert isinstance(first.error, OwnershipLostError)
            assert not first.error.retriable
            assert "epoch 2" in str(first.error)
            assert ("revoked", "0") in first.heard
            assert ("revoked", "1") not in first.heard
    (lost,) = [message for message in caplog.messages if "lost for group" in message]
    assert lost.startswith(f"{log}, partition 0: lost for group g, and what was not committed is delivered again")


async def test_a_refused_commit_says_whether_an_earlier_try_may_have_counted(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(nodes, 1, 10)
    run, lost = Exchange.run, list[dict[str, Any]]()
    async with TinyMember(nodes, log, partitions=["0"], epoch=1) as first, AdminClient(nodes.servers) as admin:
        await eventually(lambda: first.count == 10)
        claim = first.consumer.assignment["0"]
        second = TinyMember(nodes, log, partitions=["0"], epoch=2)

        async def losing_an_answer(exchange: Exchange, kind: str, operation: str, *rest: Any) -> dict[str, Any]:
            answer = await run(exchange, kind, operation, *rest)
            if lost or operation != "commit":
                return answer
            lost.append(answer)
            await second.__aenter__()
            await eventually(lambda: second.consumer.assignment)
            raise ConnectionLostError("the node is gone, and its answer with it")

        monkeypatch.setattr(Exchange, "run", losing_an_answer)
        with pytest.raises(OwnershipLostError, match="may have counted") as refused:
            await first.consumer.commit()
        assert refused.value.in_doubt
        await second.__aexit__(None, None, None)
        assert second.count == 0, "it counted"
        with pytest.raises(AdminError) as refused_at_once:
            await admin.commit_group(log, "g", "0", f"{9:016x}", claim=claim)
        assert (refused_at_once.value.code, refused_at_once.value.in_doubt) == ("not-owner", False)


async def test_pausing_a_partition_holds_its_events_back(nodes: Nodes) -> None:
    log = await filled(nodes, 2, 10)
    async with TinyMember(nodes, log) as member:
        await eventually(lambda: member.count == 20)
        member.consumer.pause("0")
        assert member.consumer.paused == {"0"}
        await filled(nodes, 2, 10, log)
        await eventually(lambda: len(member.got["1"]) == 20)
        assert len(member.got["0"]) == 10
        member.consumer.resume("0")
        await eventually(lambda: len(member.got["0"]) == 20)


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": ""},
        {"group": "g", "epoch": 1},
        {"group": "g", "epoch": -1, "partitions": ["0"]},
        {"epoch": 1},
        {"on_revoked": print},
        {"group": "g", "start": {"0": Start.earliest()}},
        {"group": "g", "options": ConsumerOptions(until_end=True)},
    ],
)
async def test_what_can_never_work_is_refused_before_anything_is_sent(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ConsumerClient("127.0.0.1:1", "nowhere", **wrong)
    with pytest.raises(ConfigurationError):
        await ConsumerClient("127.0.0.1:1", "nowhere").commit()


async def test_a_program_without_a_loop_has_the_same(nodes: Nodes) -> None:
    log = await filled(nodes, 2, 10)
    heard: list[str] = []

    def work() -> int:
        with threaded.ConsumerClient(
            nodes.servers, log, group="g", start=Start.earliest(), on_assigned=heard.append
        ) as consumer:
            got = 0
            while got < 20:
                got += len(consumer.receive(timeout_s=20))
            assert set(consumer.assignment) == {"0", "1"}
            assert set(consumer.commit()) == {"0", "1"}
            return got

    assert await asyncio.to_thread(work) == 20
    assert sorted(heard) == ["0", "1"]


@pytest.mark.parametrize("which", ["leader", "own"])
async def test_a_lost_node_repeats_and_skips_nothing_while_the_owner_stays(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the death of a partition's leader nor that of the node that a member is connected to."""
    async with ListenerCluster(tmp_path) as cluster:
        nodes = Nodes(cluster)
        await cluster.create("kept", 2)
        await filled(nodes, 2, 50, "kept")
        async with TinyMember(nodes, "kept") as member:
            await eventually(lambda: member.count == 100)
            entry = next(number for number, port in cluster.ports.items() if _serves(cluster, number))
            victim = cluster.leader("kept", "1") if which == "leader" else entry
            if which == "leader" and victim == entry:
                await cluster.move("kept", "1", cluster.other_than(entry))
                victim = cluster.leader("kept", "1")
            await cluster.lose(victim)
            await eventually(lambda: all(len(cluster.leaders("kept", one)) == 1 for one in "01"))
            await filled(nodes, 2, 50, "kept")
            await eventually(lambda: member.count >= 200)
            assert dict(member.got) == {"0": list(range(100)), "1": list(range(100))}
            assert [what for what, _ in member.heard] == ["assigned", "assigned"]
            assert member.error is None


def _serves(cluster: ListenerCluster, number: int) -> bool:
    """The node has links of a group."""
    find: Callable[[Any], bool] = lambda endpoint: getattr(endpoint, "_held", None) is not None  # noqa: E731
    connections = cluster.nodes[number]._listeners[0]._connections
    return any(find(endpoint) for connection in connections for endpoint in connection.endpoints.values())
