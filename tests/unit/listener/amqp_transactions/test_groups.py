"""Members of transaction groups from any client: attach properties, what a discharge means, what ends a member."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Accepted, Coordinator, Rejected, Transactional, decode_message
from holdfast.amqp.errors import LINK_STOLEN, NOT_ALLOWED, TRANSACTION_ROLLBACK, TRANSACTION_TIMEOUT
from holdfast.amqp.transactions import encode_declare
from node.admin.errors import AdminRequestFailed
from node.transaction_coordinator.transaction_groups import member_leases
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.transacting import Control, accept_under, send_under, why

WRITER = "orders"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades", partitions=2)
        yield three


def terms(part: str = "0", batch: int = 0, run: str = "r", **more: Any) -> dict[str, Any]:
    return {
        protocol.GROUP_WRITER: WRITER,
        protocol.GROUP_BATCH: batch,
        protocol.GROUP_RUN: run,
        protocol.GROUP_PART: part,
    } | more


async def ask(cluster: ListenerCluster, operation: str, node: int = 2, **args: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await cluster.broker(node).admin(f"transaction-group.{operation}", {"name": WRITER} | args)
    return answer


async def opened(cluster: ListenerCluster, batch: int = 0, run: str = "r") -> None:
    assert not (await ask(cluster, "open", batch=batch, run=run))["already_done"]


async def member(peer: Peer, part: str = "0", **more: Any) -> tuple[Control, str]:
    link = peer.engine.open_sender(Coordinator(), properties=terms(part, **more))
    await peer._opened(link)
    await peer.until(lambda: link.credit > 0)
    return Control(peer, link), str(link.remote_properties[protocol.GROUP_MEMBER])


async def refused(peer: Peer, properties: dict[str, Any]) -> Any:
    return await peer.refused(peer.engine.open_sender(Coordinator(), properties=properties))


async def states(cluster: ListenerCluster) -> list[str]:
    return [one["state"] for one in (await ask(cluster, "describe", node=3))["group_members"]]


async def read(cluster: ListenerCluster, partition: str = "0") -> list[bytes]:
    async with Peer(cluster.ports[1]) as peer:
        link = await peer.receiver(start_at("trades", "@earliest"), partition)
        link.drain(1000)
        await peer.flush()
        await peer.until(lambda: link.credit == 0)
        return [bytes(decode_message(payload).body) for payload in peer.received.get(link, [])]  # type: ignore[arg-type]


async def test_a_discharge_prepares_and_the_end_of_the_connection_changes_nothing_then(
    cluster: ListenerCluster,
) -> None:
    await opened(cluster)
    async with Peer(cluster.ports[1]) as peer:
        control, name = await member(peer)
        told = control.link.remote_properties
        assert protocol.TRANSACTIONAL_ID not in told
        assert told[protocol.GROUP_LEASE] == 45_000
        assert told[protocol.TRANSACTION_TIMEOUT] == 15 * 60 * 1000
        txn = await control.declare()
        assert await send_under(peer, await peer.sender("trades", "0"), txn, [b"a", b"b"]) == [Accepted()] * 2
        await control.committed(txn)
        again = await control.answer(await control.ask(encode_declare()))
        assert why(again) == TRANSACTION_ROLLBACK, "a member has one transaction"
    assert await states(cluster) == ["prepared"]
    assert await read(cluster) == []
    assert await ask(cluster, "commit", batch=0, run="r", winners=[name]) == {"committed": True, "complete": True}
    assert await read(cluster) == [b"a", b"b"]
    async with Peer(cluster.ports[3]) as zombie:
        error = await refused(zombie, terms())
        assert (error.condition, "is closed" in error.description) == (LINK_STOLEN, True)


@pytest.mark.parametrize("how", ["discharge", "connection", "never declared"])
async def test_who_fails_or_leaves_before_that_is_rolled_back(cluster: ListenerCluster, how: str) -> None:
    await opened(cluster)
    async with Peer(cluster.ports[1]) as peer:
        control, name = await member(peer)
        if how != "never declared":
            txn = await control.declare()
            await send_under(peer, await peer.sender("trades", "0"), txn, [b"never"])
        if how == "discharge":
            await control.aborted(txn)
    if how != "discharge":
        while await states(cluster) != ["aborted"]:
            assert await states(cluster) in (["joined"], ["aborted"])
    with pytest.raises(AdminRequestFailed, match="not-prepared"):
        await ask(cluster, "commit", batch=0, run="r", winners=[name])
    assert await states(cluster) == ["aborted"]
    await ask(cluster, "commit", batch=0, run="r", winners=[])
    assert await read(cluster) == []


async def test_one_transaction_at_a_time(cluster: ListenerCluster) -> None:
    await opened(cluster)
    async with Peer(cluster.ports[1]) as peer:
        control, _ = await member(peer)
        txn = await control.declare()
        assert why(await control.answer(await control.ask(encode_declare()))) == NOT_ALLOWED
        await control.committed(txn)


async def test_a_newer_run_ends_what_is_open_and_its_zombie_writes_nothing(cluster: ListenerCluster) -> None:
    await opened(cluster)
    async with Peer(cluster.ports[1]) as peer:
        control, name = await member(peer)
        sender = await peer.sender("trades", "0")
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"of a zombie"])
        await opened(cluster, run="newer")
        late: Any = Accepted()
        while isinstance(late, Accepted):  # until the marker is there; in a transaction that is aborted already
            (late,) = await send_under(peer, sender, txn, [b"later"])
        assert isinstance(late, Rejected)
        if not control._ended():  # else the renewal of its lease was faster, and has closed its link
            assert isinstance(await control.commit(txn), Rejected | None)
        assert (await refused(peer, terms())).condition == LINK_STOLEN
    with pytest.raises(AdminRequestFailed, match="fenced"):
        await ask(cluster, "commit", batch=0, run="r", winners=[name])
    await ask(cluster, "commit", batch=0, run="newer", winners=[])
    assert await read(cluster) == []


async def test_a_peer_that_says_nothing_loses_its_lease_and_is_told(cluster: ListenerCluster) -> None:
    """Its connection stays: this node's idle time-out is much longer."""
    await opened(cluster)
    async with Peer(cluster.ports[1]) as silent, Peer(cluster.ports[1]) as lively:
        control, _ = await member(silent, **{protocol.GROUP_LEASE: 2000})
        other, _ = await member(lively, "1", **{protocol.GROUP_LEASE: 2000})
        txn, kept = await control.declare(), await other.declare()
        await send_under(silent, await silent.sender("trades", "0"), txn, [b"silent"])
        while (await states(cluster))[0] == "joined":
            lively.engine.beat()
            await lively.flush()
        error = await silent.refused(control.link)
        assert (error.condition, "lease" in error.description) == (TRANSACTION_TIMEOUT, True)
        await other.committed(kept)
        assert await states(cluster) == ["aborted", "prepared"]
    assert await read(cluster) == []


async def test_a_lease_is_renewed_by_whoever_leads_the_coordinator_next(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader knows of no renewal."""
    cleared: list[object] = []
    clear = member_leases.Leases.clear

    def noted(self: member_leases.Leases) -> None:
        cleared.append(self)
        clear(self)

    monkeypatch.setattr(member_leases.Leases, "clear", noted)
    await opened(cluster)
    async with Peer(cluster.ports[1]) as peer:
        control, name = await member(peer, **{protocol.GROUP_LEASE: 2000})
        txn = await control.declare()
        group = await cluster.broker(1).transactions.coordinators.group_of(WRITER)

        def leaders() -> list[Any]:
            replicas = (node._replicas.replica(group) for node in cluster.nodes.values())
            return [one for one in replicas if one is not None and one.is_leader]

        (leader,) = leaders()
        target = next(number for number in cluster.nodes if number != leader.leader)
        leader.group.transfer(target)
        await eventually(lambda: leaders() not in ([], [leader]))
        assert cleared
        open_ms = 0
        while open_ms < 6000:  # three leases, by the clock of the new leader
            peer.engine.beat()
            await peer.flush()
            (one,) = (await ask(cluster, "describe", node=3))["group_members"]
            assert one["state"] == "joined"
            open_ms = one["open_ms"]
        await control.committed(txn)
        await ask(cluster, "commit", batch=0, run="r", winners=[name])


@pytest.mark.parametrize(
    "wrong",
    [
        {protocol.GROUP_BATCH: "seven"},
        {protocol.GROUP_BATCH: None},
        {protocol.GROUP_RUN: None},
        {protocol.GROUP_PART: 7},
        {protocol.GROUP_PART: ""},
        {protocol.GROUP_WRITER: ""},
        {protocol.GROUP_ATTEMPT: 1},
        {protocol.GROUP_LEASE: 10},
        {protocol.GROUP_LEASE: "long"},
        {protocol.TRANSACTIONAL_ID: "t"},
    ],
)
async def test_terms_that_cannot_be(cluster: ListenerCluster, wrong: dict[str, Any]) -> None:
    await opened(cluster)
    async with Peer(cluster.ports[1]) as peer:
        error = await refused(peer, terms() | wrong)
        assert error.condition in ("amqp:invalid-field", TRANSACTION_ROLLBACK), error


async def test_a_join_without_an_open_batch(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        error = await refused(peer, terms())
        assert "open a batch" in error.description


@pytest.mark.parametrize(
    ("operation", "args"),
    [
        ("open", {"batch": -1, "run": "r"}),
        ("open", {"run": "r"}),
        ("open", {"batch": 1}),
        ("open", {"batch": 1, "run": "r", "timeout_ms": 0}),
        ("open", {"batch": 1, "run": "r" * 200}),
        ("commit", {"batch": 1}),
        ("abort", {"batch": -2, "run": "r"}),
    ],
)
async def test_requests_that_cannot_be(cluster: ListenerCluster, operation: str, args: dict[str, Any]) -> None:
    with pytest.raises(AdminRequestFailed) as problem:
        await ask(cluster, operation, **args)
    assert problem.value.code == "invalid-argument"


async def test_deliveries_are_not_taken_along(cluster: ListenerCluster) -> None:
    await opened(cluster)
    async with Peer(cluster.ports[1]) as peer:
        plain = await peer.sender("trades", "1")
        plain.send_many([b"\x00Su\xa0\x03one"])
        control, _ = await member(peer)
        txn = await control.declare()
        link = await peer.receiver(start_at("trades", "@earliest"), "1")
        link.grant(1)
        await peer.flush()
        await peer.until(lambda: bool(peer.received.get(link)))
        deliveries = [one for event in peer.history for one in getattr(event, "deliveries", ()) if event.link is link]  # type: ignore[union-attr]
        accept_under(link, deliveries, txn)
        await peer.flush()
        outcome = await control.commit(txn)
        assert why(outcome) == TRANSACTION_ROLLBACK
        assert not isinstance(outcome, Transactional)
    assert await states(cluster) == ["aborted"]
