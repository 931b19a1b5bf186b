"""A node that the others take for gone, and that lives: what its clients have open is aborted, and they are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Coordinator
from node.client_transactions import transaction
from node.replica_manager import NodeSightings
from node.transaction_coordinator import transaction_timeouts
from node.transaction_coordinator.coordinator_commands import Expire
from node.transaction_coordinator.coordinator_replica import CoordinatorReplica
from tests.unit.listener.amqp_transactions.test_bad_input import ROLLBACK, coordinators, named, open_anywhere
from tests.unit.listener.amqp_transactions.test_ends import bodies
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.transacting import Control, send_under, why

TIMEOUT = {protocol.TRANSACTION_TIMEOUT: 900_000}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("totals", partitions=3)
        yield three


def node_1_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By all who lead, were it itself; and it goes on as it was."""
    lost_s = NodeSightings.lost_s
    monkeypatch.setattr(NodeSightings, "lost_s", lambda self, node: 60.0 if node == 1 else lost_s(self, node))


async def unnamed(peer: Peer) -> Control:
    link = peer.engine.open_sender(Coordinator(), properties=TIMEOUT)
    await peer._opened(link)
    await peer.until(lambda: link.credit > 0)
    return Control(peer, link)


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("name", ["worker", None])
async def test_its_late_commit_is_refused_and_the_next_transaction_is_as_any(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch, noted: bool, name: str | None
) -> None:
    monkeypatch.setattr(transaction, "NOTE_AFTER_S", 0.01 if noted else 3600.0)
    async with Peer(cluster.ports[1]) as peer:
        control = await unnamed(peer) if name is None else await named(peer, name, **TIMEOUT)
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"lost"])
        await eventually(lambda: any(one._machine.ongoing() for one in coordinators(cluster)) or not noted)
        with monkeypatch.context() as patched:
            node_1_is_missed(patched)
            await eventually(lambda: not open_anywhere(cluster))
        assert why(await control.commit(txn)) == ROLLBACK
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"kept"])
        await control.committed(txn)
        await eventually(lambda: not open_anywhere(cluster))
        assert await bodies(peer, "totals", "0") == [b"kept"]


async def test_thousands_of_transactions_end_some_at_a_time(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "NOTE_AFTER_S", 0.01)
    monkeypatch.setattr(transaction_timeouts, "AT_ONCE", 3)
    propose, under_way, most = CoordinatorReplica.propose, dict[int, int](), list[int]()

    async def counted(self: CoordinatorReplica, command: Any, *more: Any) -> Any:
        if not isinstance(command, Expire):
            return await propose(self, command, *more)
        under_way[id(self)] = under_way.get(id(self), 0) + 1
        most.append(under_way[id(self)])
        try:
            return await propose(self, command, *more)
        finally:
            under_way[id(self)] -= 1

    monkeypatch.setattr(CoordinatorReplica, "propose", counted)
    async with Peer(cluster.ports[1]) as peer:
        control, sender = await unnamed(peer), await peer.sender("totals", "0")
        txns = [await control.declare() for _ in range(60)]
        for txn in txns:
            await peer.until(lambda: sender.credit > 0)
            await send_under(peer, sender, txn, [b"lost"])
        await eventually(lambda: sum(len(one._machine.ongoing()) for one in coordinators(cluster)) >= 60)
        node_1_is_missed(monkeypatch)
        await eventually(lambda: not open_anywhere(cluster))
        assert len(most) >= 60
        assert max(most) <= 3


async def test_who_rolls_back_is_not_missed_again_for_a_try_that_was_late(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id was registered last by a try of the same attach at a node that is gone since."""
    monkeypatch.setattr(transaction, "NOTE_AFTER_S", 0.01)
    async with Peer(cluster.ports[2]) as peer:
        control = await named(peer, **TIMEOUT | {protocol.TRANSACTION_HOLDER: "h"})
        await cluster.broker(1).transactions.hold("worker", 900_000, print, holder="h")
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"lost"])
        await eventually(lambda: any(one._machine.ongoing() for one in coordinators(cluster)))
        node_1_is_missed(monkeypatch)
        await eventually(lambda: not open_anywhere(cluster))
        await control.aborted(txn)
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"kept"])
        await eventually(lambda: any(one._machine.ongoing() for one in coordinators(cluster)))
        assert {one.at.node for machine in coordinators(cluster) for one in machine._machine.ongoing()} == {2}
        await control.committed(txn)
        assert await bodies(peer, "totals", "0") == [b"kept"]
