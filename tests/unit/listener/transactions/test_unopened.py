"""Packed batches of a transaction that still wait, unopened, when its end is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Accepted, SenderLink, offset_text, symbol
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import table_of
from holdfast.records.packed_batch import pack_joined
from node.listener.incoming.unopened_batches import MESSAGES_A_TURN
from tests.unit.listener.support.cluster import Cluster
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.transacting import Control, send_under, why
from tests.unit.listener.transactions.test_ends import ROLLBACK, bodies

FULL = [b"%d" % number for number in range(MESSAGES_A_TURN)]
"""As many as are opened in one turn: a batch behind them waits."""
TURNS = 4
"""More than a rollback of nothing takes."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as three:
        await three.create("totals")
        yield three


async def packing(peer: Peer) -> SenderLink:
    """A link whose messages are packed batches."""
    properties = {"event-streams-partition": symbol("0"), protocol.PACKED_BATCHES: True}
    link = peer.engine.open_sender("totals", properties=properties)
    await peer._opened(link)
    await peer.until(lambda: link.credit > 1)
    return link


def packed(events: Sequence[bytes]) -> bytes:
    return pack_joined(table_of(events), events, Codec.NONE, bodies=True)


async def opened_in_time(peer: Peer, control: Control, *, settled: bool) -> tuple[Any, list[Any]]:
    """How a transaction commits whose second batch waits when that is asked for; the outcomes of both batches."""
    link = await packing(peer)
    txn = await control.declare()
    link.send_many([packed(FULL), packed([b"behind"])], settled, txn_id=txn)
    outcome = await control.commit(txn)
    return outcome, [] if settled else [state.outcome for state in await peer.states(link, 2)]


@pytest.mark.parametrize("settled", [False, True])
async def test_a_commit_takes_in_the_batches_that_came_before_it(cluster: Cluster, settled: bool) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        outcome, outcomes = await opened_in_time(peer, control, settled=settled)
        assert isinstance(outcome, Accepted), outcome
        assert outcomes == ([] if settled else [Accepted()] * 2)
        assert await bodies(peer, "totals", "0", after=offset_text(len(FULL) - 2)) == [FULL[-1], b"behind"]


async def test_what_is_opened_after_a_rollback_is_no_part_of_the_next_transaction(cluster: Cluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await packing(peer)
        txn = await control.declare()
        link.send_many([packed(FULL)] * TURNS)
        link.send_many([packed([b"never"])], txn_id=txn)
        await control.aborted(txn)
        assert why((await peer.states(link, TURNS + 1))[-1].outcome) == ROLLBACK
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        assert await send_under(peer, sender, txn, [b"counts"]) == [Accepted()]
        await control.committed(txn)
        last = TURNS * len(FULL) - 1
        assert await bodies(peer, "totals", "0", after=offset_text(last)) == [b"counts"]
