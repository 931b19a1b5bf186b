"""`group commit` as part of a transaction: noted at once, done with its commit, and by no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import Accepted, Message, Transactional, Value, decode_message, encode_message
from holdfast.amqp.transactions import encode_discharge
from tests.unit.listener.amqp_transactions.test_consuming import group_row, position
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.consuming import attached, terms
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.reading import fill
from tests.unit.listener.support.transacting import Control, why

ROLLBACK = "amqp:transaction:rollback"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades")
        async with Peer(three.ports[1]) as peer:
            await fill(peer, 10)
        yield three


class Asking:
    """A peer that reads for a group, and asks under transactions."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def open(self) -> Asking:
        self.control = await Control.attach(self.peer)
        self.reader = await attached(self.peer, terms(), credit=10)
        self.sender = await self.peer.sender("$management")
        self.answers = await self.peer.receiver("$management", credit=100)
        self.claim = self.reader.remote_properties["holdfast:claim"]
        return self

    def request(self, txn: bytes | None, operation: str = "commit", **given: Any) -> int:
        body = {"group": "g", "partition": 0, "offset": f"{4:016x}", "claim": self.claim} | given
        message = Message(
            message_id="m",
            application_properties={"type": "group", "operation": operation, "name": "trades"},
            body=Value({key: value for key, value in body.items() if value is not None}),
        )
        (number,) = self.sender.send_many([encode_message(message)], txn_id=txn)
        return number

    async def answered(self, txn: bytes, **given: Any) -> Any:
        before = len(self.peer.received.get(self.answers, []))
        number = self.request(txn, **given)
        await self.peer.flush()
        await self.peer.until(lambda: len(self.peer.received.get(self.answers, [])) > before)
        assert dict(self.peer.outcomes[self.sender])[number] == Transactional(txn, Accepted())
        return decode_message(self.peer.received[self.answers][-1]).application_properties


async def test_it_counts_when_the_transaction_commits(cluster: ListenerCluster) -> None:
    for node in cluster.nodes:
        async with Peer(cluster.ports[node], container=f"reader {node}") as peer:
            one = await Asking(peer).open()
            before = await position(cluster)
            txn = await one.control.declare()
            answer = await one.answered(txn, offset=f"{node:016x}")
            assert answer["status-code"] == 200
            assert await position(cluster) == before
            await one.control.committed(txn)
            assert await position(cluster) == node + 1
            txn = await one.control.declare()
            await one.answered(txn, offset=f"{9:016x}")
            await one.control.aborted(txn)
            assert await position(cluster) == node + 1
            one.reader.close()
            await peer.flush()
        async with asyncio.timeout(20):
            while (await group_row(cluster)).active:  # noqa: ASYNC110 - it is given to no other member until then
                await asyncio.sleep(0.01)


async def test_a_discharge_that_follows_at_once_waits_for_it(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[2]) as peer:
        one = await Asking(peer).open()
        txn = await one.control.declare()
        one.request(txn)
        number = await one.control.ask(encode_discharge(txn, False))
        assert isinstance(await one.control.answer(number), Accepted)
        assert await position(cluster) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "delete", "offset": None, "partition": None, "claim": None},
        {"claim": None},
        {"partition": 7},
        {"offset": "nowhere"},
        {"log": 12345},
    ],
)
async def test_what_cannot_be_noted_is_said_and_makes_it_roll_back(
    cluster: ListenerCluster, wrong: dict[str, Any]
) -> None:
    async with Peer(cluster.ports[1]) as peer:
        one = await Asking(peer).open()
        txn = await one.control.declare()
        await one.answered(txn)
        answer = await one.answered(txn, **wrong)
        assert answer["status-code"] >= 400
        assert why(await one.control.commit(txn)) == ROLLBACK
        assert await position(cluster) == -1


async def test_of_many_positions_in_one_place_the_furthest_counts_and_places_are_bounded(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.listener.amqp_transactions.connection_transaction.MAX_NAMED", 1)
    async with Peer(cluster.ports[1]) as peer:
        one = await Asking(peer).open()
        txn = await one.control.declare()
        for number in (2, 6, 4):
            assert (await one.answered(txn, offset=f"{number:016x}"))["status-code"] == 200
        await one.control.committed(txn)
        assert await position(cluster) == 7
        txn = await one.control.declare()
        await one.answered(txn, offset=f"{8:016x}")
        assert (await one.answered(txn, group="another"))["error-code"] == "not-allowed"
        assert why(await one.control.commit(txn)) == ROLLBACK
        assert await position(cluster) == 7


@pytest.mark.parametrize("wrong", [{"claim": 1}, {"offset": f"{10:016x}"}])
async def test_the_partition_judges_claim_and_place_at_the_commit(
    cluster: ListenerCluster, wrong: dict[str, Any]
) -> None:
    async with Peer(cluster.ports[1]) as peer:
        one = await Asking(peer).open()
        txn = await one.control.declare()
        assert (await one.answered(txn, **wrong))["status-code"] == 200
        assert why(await one.control.commit(txn)) == ROLLBACK
        assert await position(cluster) == -1


async def test_a_transaction_that_is_over_takes_none(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        one = await Asking(peer).open()
        txn = await one.control.declare()
        await one.control.committed(txn)
        for name in (txn, b"nobody's"):
            number = one.request(name)
            await peer.flush()
            await peer.until(lambda number=number: number in dict(peer.outcomes.get(one.sender, [])))  # type: ignore[misc]
            state = dict(peer.outcomes[one.sender])[number]
            assert isinstance(state, Transactional)
            assert why(state.outcome) == "amqp:transaction:unknown-id"
        assert await position(cluster) == -1
