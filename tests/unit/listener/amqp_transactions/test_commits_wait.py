"""Commits that are asked for while messages of the transaction have no answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.amqp import Accepted, Transactional
from holdfast.amqp.transactions import encode_discharge
from tests.unit.listener.amqp_transactions.test_ends import ROLLBACK, bodies
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.transacting import Control, send_under, why

MORE_THAN_ANY_DISK_HAS = 1 << 62


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("totals")
        yield three


async def test_a_message_that_is_refused_behind_a_gateway_rolls_back_the_commit_behind_it(
    cluster: ListenerCluster,
) -> None:
    leader = cluster.leader("totals")
    async with Peer(cluster.ports[cluster.other_than(leader)]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        assert await send_under(peer, sender, txn, [b"stored"]) == [Accepted()]
        replicas = cluster.nodes[leader]._replicas
        replicas._min_free_bytes = MORE_THAN_ANY_DISK_HAS
        replicas._watch_space()
        sender.send_many([message(b"refused")], txn_id=txn)
        assert why(await control.answer(await control.ask(encode_discharge(txn, False)))) == ROLLBACK
        _, refused = await peer.states(sender, 2)
        assert isinstance(refused, Transactional)
        assert why(refused.outcome) == "amqp:resource-limit-exceeded"
        assert await bodies(peer, "totals", "0") == []
