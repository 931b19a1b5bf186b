"""Record batches under a transaction: the node numbers them, and looks at no event for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Accepted, SenderLink, symbol, uint
from holdfast.records.codec import Codec
from node.partition import appender
from node.partition.partition_commands import Append, decode
from node.partition.raft_entry import batches_in
from tests.batches import carried, of_bodies, with_head
from tests.unit.listener.amqp_transactions.test_ends import ROLLBACK, bodies
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.transacting import Control, send_under, why

TURNS = 4
"""More than a rollback of nothing takes."""
LARGE = of_bodies([bytes(1 << 20)] * 4, Codec.ZSTD)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("totals")
        yield three


async def batching(peer: Peer) -> SenderLink:
    """A link of record batches."""
    properties = {"event-streams-partition": symbol("0"), protocol.RECORD_BATCHES: uint(1)}
    link = peer.engine.open_sender("totals", properties=properties)
    await peer._opened(link)
    await peer.until(lambda: link.credit > TURNS)
    return link


@pytest.mark.parametrize("at_leader", [True, False])
async def test_numbers_are_filled_in_in_front_of_the_bytes_that_came(cluster: ListenerCluster, at_leader: bool) -> None:
    leader = cluster.leader("totals")
    sent = [of_bodies([b"a", b"b"]), of_bodies([bytes(1000)] * 3, Codec.ZSTD), of_bodies([b"c"])]
    async with Peer(cluster.ports[leader if at_leader else cluster.other_than(leader)]) as peer:
        control = await Control.attach(peer)
        link = await batching(peer)
        txn = await control.declare()
        link.send_many(list(map(carried, sent)), txn_id=txn)
        await peer.flush()
        assert [state.outcome for state in await peer.states(link, 3)] == [Accepted()] * 3
        assert isinstance(await control.commit(txn), Accepted)
    group = cluster.broker(leader).handle("totals", "0").group
    entries = [entry for _, entry in map(group.entry, range(group.first_index, group.last_index + 1)) if not entry[0]]
    stored = [batch for entry in entries if isinstance(decode(entry), Append) for batch in batches_in(entry)]
    assert [batch.content for batch in stored] == [batch.content for batch in sent]
    assert [batch.head.base_sequence for batch in stored] == [0, 2, 5]
    assert len({batch.head.transaction for batch in stored}) == 1
    for batch, came in zip(stored, sent, strict=True):
        assert (batch.head.content_checksum, batch.head.seal) == (came.head.content_checksum, came.head.seal)


@pytest.mark.parametrize("settled", [False, True])
async def test_a_commit_takes_in_the_batches_that_came_before_it(
    cluster: ListenerCluster, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the leader looks at one of them in a turn."""
    monkeypatch.setattr(appender, "CONTENTS_A_TURN", 1)
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await batching(peer)
        txn = await control.declare()
        link.send_many([carried(LARGE), carried(LARGE), carried(of_bodies([b"behind"]))], settled, txn_id=txn)
        assert isinstance(await control.commit(txn), Accepted)
        outcomes: list[Any] = [] if settled else [state.outcome for state in await peer.states(link, 3)]
        assert outcomes == ([] if settled else [Accepted()] * 3)
        assert (await bodies(peer, "totals", "0"))[-1] == b"behind"


async def test_what_is_looked_at_after_a_rollback_is_no_part_of_the_next_transaction(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "CONTENTS_A_TURN", 1)
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await batching(peer)
        txn = await control.declare()
        link.send_many([carried(LARGE)] * TURNS)
        link.send_many([carried(of_bodies([b"never"]))], txn_id=txn)
        await control.aborted(txn)
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        assert await send_under(peer, sender, txn, [b"counts"]) == [Accepted()]
        await control.committed(txn)
        seen = await bodies(peer, "totals", "0")
        assert seen[-1] == b"counts"
        assert b"never" not in seen


async def test_a_batch_that_names_a_transaction_itself_makes_its_own_roll_back(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await batching(peer)
        txn = await control.declare()
        forged = with_head(of_bodies([b"x"]), attributes=of_bodies([b"x"]).head.attributes | 1 << 4)
        link.send_many([carried(forged)], txn_id=txn)
        await peer.flush()
        (state,) = await peer.states(link, 1)
        assert why(state.outcome) == "amqp:decode-error"
        assert why(await control.commit(txn)) == ROLLBACK
        assert await bodies(peer, "totals", "0") == []
