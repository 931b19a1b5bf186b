"""Discharges that are answered when they are decided: what counts then, and what waits for committed readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Accepted, Coordinator
from holdfast.amqp.transactions import encode_declare
from node.transaction_coordinator import coordinator_replica
from node.transaction_coordinator.marker_sender import MarkerSender
from tests.unit.listener.amqp_transactions.test_bad_input import refusal
from tests.unit.listener.amqp_transactions.test_ends import bodies
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.transacting import Control, send_under


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("totals")
        yield three


async def attached(peer: Peer, **terms: Any) -> Control:
    terms |= {protocol.DISCHARGE_ANSWER: "decided"}
    link = peer.engine.open_sender(Coordinator(), properties=terms)
    await peer._opened(link)
    await peer.until(lambda: link.credit > 0)
    assert link.remote_properties[protocol.DISCHARGE_ANSWER] == "decided"
    return Control(peer, link)


class Held:
    """Markers leave when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leave, send_one = asyncio.Event(), MarkerSender._send_one

        async def held(sender: MarkerSender, group: int, question: Any) -> None:
            await self.leave.wait()
            await send_one(sender, group, question)

        monkeypatch.setattr(MarkerSender, "_send_one", held)
        monkeypatch.setattr(
            coordinator_replica, "COMPLETE_WAIT_S", 1000.0
        )  # who waits for them hears nothing until then


@pytest.mark.parametrize("name", [None, "early"])
async def test_a_commit_is_answered_before_its_markers_and_the_next_transaction_of_the_id_behind_them(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    markers = Held(monkeypatch)
    named = {} if name is None else {protocol.TRANSACTIONAL_ID: name}
    async with Peer(cluster.ports[1]) as peer:
        control = await attached(peer, **named)
        sender = await peer.sender("totals", "0")
        first = await control.declare()
        assert await send_under(peer, sender, first, [b"first"]) == [Accepted()]
        await control.committed(first)
        assert await bodies(peer, "totals", "0") == []
        next_one = await control.ask(encode_declare())
        if name is None:  # another id of the node's own
            await control.answer(next_one)
        else:
            await asyncio.wait([asyncio.ensure_future(control.answer(next_one))], timeout=0.2)
            assert control._found(next_one) is None
        markers.leave.set()
        second = (await control.answer(next_one)).txn_id
        assert await send_under(peer, sender, second, [b"second"]) == [Accepted()]
        await control.aborted(second)
        third = await control.declare()
        assert await send_under(peer, sender, third, [b"third"]) == [Accepted()]
        await control.committed(third)
        last = await control.declare() if name is not None else None  # it waited for the third one's markers
        if last is not None:
            assert await bodies(peer, "totals", "0") == [b"first", b"third"]


async def test_an_answer_that_nobody_gives_cannot_be_asked_for(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        assert await refusal(peer, **{protocol.DISCHARGE_ANSWER: "soon"}) == "amqp:invalid-field"
