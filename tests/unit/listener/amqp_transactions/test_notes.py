"""When the coordinator is told of the partitions of a transaction: with its end, or before, if it lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Accepted, Rejected
from node.client_transactions import transaction
from node.partition.api import Failed
from node.transaction_coordinator import coordinator_replica as replica_module
from node.transaction_coordinator.coordinator_commands import AddPartitions, Complete, Declined, EndTransaction
from node.transaction_coordinator.coordinator_queries import DecideTransaction, NoteAndEnd
from node.transaction_coordinator.coordinator_replica import CoordinatorReplica
from tests.unit.listener.amqp_transactions.test_bad_input import coordinators, named, open_anywhere
from tests.unit.listener.amqp_transactions.test_consuming import position, took
from tests.unit.listener.amqp_transactions.test_ends import bodies
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.consuming import attached, terms
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.reading import fill
from tests.unit.listener.support.transacting import Control, accept_under, send_under

ABOUT_PARTITIONS = (AddPartitions, EndTransaction, DecideTransaction, NoteAndEnd)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("totals", partitions=3)
        yield three


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What coordinators are asked about transactions, in order."""
    found: list[Any] = []
    ask = CoordinatorReplica.ask

    async def listening(self: CoordinatorReplica, question: Any) -> Any:
        if isinstance(question, ABOUT_PARTITIONS):
            found.append(question)
        return await ask(self, question)

    monkeypatch.setattr(CoordinatorReplica, "ask", listening)
    return found


def kinds(asked: list[Any]) -> list[str]:
    return [type(one).__name__ for one in asked]


async def write(peer: Peer, control: Control, *partitions: str) -> bytes:
    txn = await control.declare()
    for partition in partitions:
        sender = await peer.sender("totals", partition)
        assert await send_under(peer, sender, txn, [b"of " + partition.encode()]) == [Accepted()]
    return txn


@pytest.mark.parametrize("commit", [True, False])
async def test_the_coordinator_is_told_with_the_end_and_asked_once(
    cluster: ListenerCluster, asked: list[Any], commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "NOTE_AFTER_S", 3600.0)
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        txn = await write(peer, control, "0", "2")
        assert asked == []
        await (control.committed(txn) if commit else control.aborted(txn))
        (question,) = asked
        assert isinstance(question, NoteAndEnd)
        groups = [cluster.broker(1).raft_group("totals", partition) for partition in ("0", "2")]
        assert (question.commit, sorted(question.groups)) == (commit, sorted(groups))
        await eventually(lambda: not open_anywhere(cluster))
        assert await bodies(peer, "totals", "2") == ([b"of 2"] if commit else [])


async def test_one_that_lasts_is_noted_and_its_successor_ends_it(
    cluster: ListenerCluster, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "NOTE_AFTER_S", 0.01)
    async with Peer(cluster.ports[1]) as zombie, Peer(cluster.ports[2]) as successor:
        control = await named(zombie)
        txn = await write(zombie, control, "0")
        await eventually(lambda: any(replica._machine.ongoing() for replica in coordinators(cluster)))
        await send_under(zombie, await zombie.sender("totals", "1"), txn, [b"later"])
        await eventually(lambda: len(asked) == 2)
        assert kinds(asked) == ["AddPartitions"] * 2, "each is told once"
        await named(successor)
        await eventually(lambda: not open_anywhere(cluster))
        assert isinstance(await control.commit(txn), Rejected)


async def test_a_quarter_of_its_time_is_the_longest_that_one_is_not_noted(cluster: ListenerCluster) -> None:
    """And so its time runs out at its coordinator."""
    async with Peer(cluster.ports[1]) as peer:
        await write(peer, await named(peer, **{protocol.TRANSACTION_TIMEOUT: 400}), "0")
        await eventually(lambda: any(one.last is not None for one in known(cluster)))
        assert {one.last.how for one in known(cluster) if one.last is not None} == {"timeout"}


def known(cluster: ListenerCluster) -> list[Any]:
    return [one for replica in coordinators(cluster) for one in replica._machine]


@pytest.mark.parametrize("early", [False, True])
async def test_who_does_not_know_the_question_is_asked_in_two_steps(
    cluster: ListenerCluster, asked: list[Any], monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    answer = CoordinatorReplica._answer

    async def older(self: CoordinatorReplica, question: Any) -> Any:
        if isinstance(question, NoteAndEnd):
            return Failed("unknown", True, "a node of another version did not answer (invalid_argument)")
        return await answer(self, question)

    monkeypatch.setattr(CoordinatorReplica, "_answer", older)
    monkeypatch.setattr(transaction, "NOTE_AFTER_S", 1000.0)  # a busy machine would note it meanwhile
    answer_when = protocol.ANSWERED_WHEN_DECIDED if early else protocol.ANSWERED_WHEN_VISIBLE
    async with Peer(cluster.ports[1]) as peer:
        control = await named(peer, **{protocol.DISCHARGE_ANSWER: answer_when})
        for _ in range(2):
            txn = await write(peer, control, "0", "1")
            asked.clear()
            await control.committed(txn)
            end = "DecideTransaction" if early else "EndTransaction"
            assert kinds(asked)[:3] == ["NoteAndEnd", "AddPartitions", end]
        await eventually(lambda: not open_anywhere(cluster))
        assert await bodies(peer, "totals", "1") == [b"of 1"] * 2


async def test_no_position_is_staged_before_its_transaction_is_noted(
    cluster: ListenerCluster, asked: list[Any]
) -> None:
    await cluster.create("trades")
    async with Peer(cluster.ports[1]) as peer:
        await fill(peer, 5)
        control = await Control.attach(peer)
        link = await attached(peer, terms(), credit=3)
        got = await took(peer, link, 3)
        txn = await write(peer, control, "0")
        accept_under(link, got, txn)
        assert asked == []
        await control.committed(txn)
        assert kinds(asked) == ["AddPartitions", "AddPartitions", "EndTransaction"], "of the events, then of the group"
        assert await position(cluster) == 3


async def test_what_cannot_be_noted_is_not_ended(cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await named(peer)
        await control.committed(await write(peer, control, "0"))
        manager = cluster.broker(1).transactions
        producer, _ = manager._held["worker"]
        pair = await producer.ready()
        monkeypatch.setattr(replica_module, "MAX_PARTITIONS", 2)
        for groups in ([], [0], [-1, 2], [1, 2, 3]):
            answer = await manager.calls.ask(producer.group, NoteAndEnd("worker", *pair, True, groups))
            assert isinstance(answer, Declined)
            assert answer.code == "invalid"
        await control.committed(await write(peer, control, "0"))  # its pair is still the next one


async def test_the_note_of_the_next_transaction_waits_until_the_last_one_is_complete(
    cluster: ListenerCluster, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder was told early that it is, and the entry that says so cannot be proposed for a while."""
    monkeypatch.setattr(transaction, "NOTE_AFTER_S", 0.01)
    tell, held_back = CoordinatorReplica._tell, True

    def tells(self: CoordinatorReplica, command: Any, *more: Any) -> bool:
        return False if held_back and isinstance(command, Complete) else tell(self, command, *more)

    monkeypatch.setattr(CoordinatorReplica, "_tell", tells)
    async with Peer(cluster.ports[1]) as peer:
        control = await named(peer)
        await control.committed(await write(peer, control, "0"))
        asked.clear()
        txn = await write(peer, control, "0")
        await eventually(lambda: any(replica._completed.awaited() for replica in coordinators(cluster)))
        assert kinds(asked) == ["AddPartitions"]
        held_back = False
        await control.committed(txn)
        assert await bodies(peer, "totals", "0") == [b"of 0"] * 2
