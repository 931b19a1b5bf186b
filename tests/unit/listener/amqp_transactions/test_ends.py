"""Ends of transactions that come at a bad moment: twice, in the midst of a commit, or without the log they speak of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import protocol
from holdfast.amqp import Accepted, Rejected, Released, Transactional, decode_message, offset_text
from holdfast.amqp.links import dispositions
from holdfast.amqp.links.delivery_state_encoding import encoded_fields
from holdfast.amqp.links.delivery_states import TRANSACTIONAL_CODE
from holdfast.amqp.transactions import encode_discharge
from node.client_transactions import transaction as transaction_module
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transaction import HeldTransaction
from node.client_transactions.transactional_producer import TransactionalProducer
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.amqp_transactions.control_link import CoordinatorLink
from node.listener.incoming.append_queue import QueuedBatch
from node.partition.api import Failed
from node.transaction_coordinator import coordinator_replica as replica_module
from node.transaction_coordinator.coordinator_commands import Complete
from node.transaction_coordinator.coordinator_replica import CoordinatorReplica
from tests.batches import batch_of
from tests.unit.listener.amqp_transactions.test_bad_input import named, open_anywhere
from tests.unit.listener.amqp_transactions.test_consuming import offsets, position, took
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.consuming import attached, terms
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import fill, start_at
from tests.unit.listener.support.transacting import Control, accept_under, send_under, why

UNKNOWN_ID, ROLLBACK = "amqp:transaction:unknown-id", "amqp:transaction:rollback"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades")
        await three.create("totals", partitions=2)
        async with Peer(three.ports[1]) as peer:
            await fill(peer, 10)
        yield three


def lent(cluster: ListenerCluster, node: int) -> list[str]:
    """Ids that the node may lend."""
    return [one.name for ids in cluster.broker(node).transactions._free.values() for one in ids]


async def bodies(peer: Peer, log: str, partition: str, *, after: str = "@earliest") -> list[Any]:
    """What a committed reader has when it has come to the end, of a thousand events at most."""
    link = await peer.receiver(start_at(log, after), partition)
    link.drain(1000)
    await peer.flush()
    await peer.until(lambda: link.credit == 0)
    return [bytes(decode_message(payload).body) for payload in peer.received.get(link, [])]


async def all_given_back(cluster: ListenerCluster, node: int) -> None:
    manager = cluster.broker(node).transactions
    await eventually(lambda: not manager._ending and not cluster.nodes[node]._listeners[0]._errands)


async def test_a_discharge_that_comes_twice_at_once_decides_once(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await attached(peer, terms(), credit=3)
        sender = await peer.sender("totals", "0")
        got = await took(peer, link, 3)
        txn = await control.declare()
        sender.send_many([message(b"one")], txn_id=txn)
        accept_under(link, got, txn)
        discharge = encode_discharge(txn, False)
        first, second = control.link.send_many([discharge, discharge])
        await peer.flush()
        assert isinstance(await control.answer(first), Accepted)
        assert why(await control.answer(second)) == UNKNOWN_ID
        assert await position(cluster) == 3
        await peer.grant(link, 2)
        await took(peer, link, 5)
        assert offsets(peer, link) == [0, 1, 2, 3, 4]
    await all_given_back(cluster, 1)
    assert lent(cluster, 1) == ["$node-1-0"]


async def test_a_connection_that_dies_while_its_commit_waits_for_messages_gives_its_id_back_once(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, begin = asyncio.Event(), HeldTransaction._begin

    async def delayed(self: HeldTransaction, group: int) -> Any:
        await begins.wait()
        return await begin(self, group)

    monkeypatch.setattr(HeldTransaction, "_begin", delayed)
    monkeypatch.setattr(
        HeldTransaction, "begins_with_events", lambda self, group: None
    )  # messages wait, as members' do
    listener = cluster.nodes[1]._listeners[0]
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        sender.send_many([message(b"under way")] * 5, txn_id=txn)
        await control.ask(encode_discharge(txn, False))
        await eventually(lambda: listener._errands)
    await eventually(lambda: not listener._connections)
    begins.set()
    await all_given_back(cluster, 1)
    assert lent(cluster, 1) == ["$node-1-0"]
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        assert await send_under(peer, sender, txn, [b"counts"]) == [Accepted()]
        await control.committed(txn)
        assert await bodies(peer, "totals", "0") == [b"counts"]


async def test_a_log_that_is_deleted_under_what_was_accepted_rolls_the_transaction_back(
    cluster: ListenerCluster,
) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await attached(peer, terms(), credit=3)
        sender = await peer.sender("totals", "0")
        got = await took(peer, link, 3)
        txn = await control.declare()
        assert await send_under(peer, sender, txn, [b"never"]) == [Accepted()]
        accept_under(link, got, txn)
        await peer.flush()
        await cluster.broker(1).admin("log.delete", {"name": "trades"})
        await eventually(lambda: cluster.broker(1).describe("trades") is None)
        assert why(await control.commit(txn)) == ROLLBACK
        txn = await control.declare()
        assert await send_under(peer, sender, txn, [b"counts"]) == [Accepted()]
        await control.committed(txn)
        assert await bodies(peer, "totals", "0") == [b"counts"]


async def test_a_message_for_a_log_that_was_deleted_is_rejected_and_rolls_the_transaction_back() -> None:
    answers: list[Any] = []
    transaction = SimpleNamespace(pair=(7, 0), must_roll_back=answers.append)
    own = ClientTransaction(cast(Any, None), cast(Any, transaction), 1.0)
    link = SimpleNamespace(answer_in_transaction=lambda *answer: answers.append(answer))

    class WithoutLogs:
        def raft_group(self, log: str, partition: str) -> int:
            raise KeyError(log)

    batch = QueuedBatch([], batch_of([b"x"]), 1, 1)
    own.send(link, cast(Any, WithoutLogs()), "trades", "0", batch)
    gone = errors.log_deleted("trades")
    assert answers == [gone.description, (batch.deliveries, Transactional(own.txn_id, Rejected(gone)))]
    assert own._unanswered == 0, "its commit waits for no answer"


def accept_and_settle_later(deliveries: list[Any], txn_id: bytes) -> None:
    state = Transactional(txn_id, Accepted())
    for delivery in deliveries:
        dispositions.write_fields(delivery, encoded_fields(state), checked=True)
        dispositions.lib.pn_delivery_update(delivery, TRANSACTIONAL_CODE)


def is_ending(cluster: ListenerCluster, node: int) -> bool:
    connections = cluster.nodes[node]._listeners[0]._connections
    return any(not one.is_open for connection in connections for one in connection.transactions.values())


@pytest.mark.parametrize(
    "waits", [(CoordinatorLink, "_discharge"), (TransactionalProducer, "end")], ids=["is carried out", "is decided"]
)
async def test_what_the_peer_says_until_the_end_changes_nothing_but_that_it_is_done(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch, waits: tuple[type, str]
) -> None:
    ends, work = asyncio.Event(), getattr(*waits)

    async def delayed(self: Any, *what: Any, **how: Any) -> Any:
        await ends.wait()
        return await work(self, *what, **how)

    monkeypatch.setattr(*waits, delayed)
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await attached(peer, terms(), credit=3)
        sender, other = await peer.sender("totals", "0"), await peer.sender("totals", "1")
        for turn, fail in enumerate((True, False)):
            ends.clear()
            got = (await took(peer, link, 3 + 3 * turn))[-3:]
            txn = await control.declare()
            await send_under(peer, sender, txn, [b"total"])
            accept_and_settle_later(got, txn)
            discharge = await control.ask(encode_discharge(txn, fail))
            await eventually(lambda: is_ending(cluster, 1))
            link.settle(got[:1], Accepted())
            link.settle(got[1:2], Released())
            link.settle(got[2:], Transactional(txn, Accepted()))
            await peer.send(other, [message(b"behind the settlements")])
            await peer.states(other, turn + 1)
            ends.set()
            assert isinstance(await control.answer(discharge), Accepted)
            await peer.grant(link, 3)
        await took(peer, link, 9)
        assert offsets(peer, link) == [0, 1, 2, 0, 1, 2, 3, 4, 5]
        assert await position(cluster) == 3


async def test_after_a_rollback_the_peer_says_what_becomes_of_what_it_has_not_settled(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await attached(peer, terms(), credit=3)
        got = await took(peer, link, 3)
        txn = await control.declare()
        accept_and_settle_later(got, txn)
        await control.aborted(txn)
        await peer.grant(link, 2)
        await took(peer, link, 5)
        assert offsets(peer, link) == [0, 1, 2, 3, 4]
        link.settle(got[:1], Accepted())
        link.settle(got[1:2], Released())
        await peer.grant(link, 2)
        await took(peer, link, 7)
        assert offsets(peer, link) == [0, 1, 2, 3, 4, 1, 5]


async def test_who_was_told_early_goes_on_though_the_entry_that_says_so_was_lost(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, lost = CoordinatorReplica._tell, []

    def tells(self: CoordinatorReplica, command: Any, *more: Any) -> None:
        if isinstance(command, Complete) and not lost:
            lost.append(command)
        else:
            tell(self, command, *more)

    monkeypatch.setattr(CoordinatorReplica, "_tell", tells)
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("totals", "0")
        for body in (b"first", b"second"):
            txn = await control.declare()
            assert await send_under(peer, sender, txn, [body]) == [Accepted()]
            await control.committed(txn)
        assert lost
        assert await bodies(peer, "totals", "0") == [b"first", b"second"]


async def test_the_entry_of_completion_goes_with_the_next_command_and_is_not_waited_for(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed: list[str] = []
    entry = replica_module._entry

    def encoded(command: Any) -> bytes:
        proposed.append(type(command).__name__)
        return entry(command)

    monkeypatch.setattr(replica_module, "_entry", encoded)
    monkeypatch.setattr(CoordinatorReplica, "tick", lambda self, now_s: None)  # nothing goes by itself
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("totals", "0")
        for body in (b"first", b"second", b"third"):
            txn = await control.declare()
            assert await send_under(peer, sender, txn, [body]) == [Accepted()]
            await control.committed(txn)
        assert await bodies(peer, "totals", "0") == [b"first", b"second", b"third"]
    one = ["AddPartitions", "EndTransaction"]
    assert [name for name in proposed if name != "Register"] == [*one, "Complete", *one, "Complete", *one]


async def test_who_takes_over_while_a_commit_is_decided_waits_and_goes_on_behind_it(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, end = asyncio.Event(), TransactionalProducer.end

    async def delayed(self: TransactionalProducer, pair: tuple[int, int], **how: Any) -> Any:
        await ends.wait()
        return await end(self, pair, **how)

    monkeypatch.setattr(TransactionalProducer, "end", delayed)
    replicas = [replica for node in cluster.nodes.values() for replica in node._replicas.all_open()]
    async with Peer(cluster.ports[1]) as peer, Peer(cluster.ports[2], container="next") as successor:
        control = await Control.attach(peer)
        link = await attached(peer, terms(epoch=1), credit=4)
        got = await took(peer, link, 4)
        txn = await control.declare()
        accept_under(link, got, txn)
        commit = await control.ask(encode_discharge(txn, False))
        await eventually(lambda: any(one.staged for r in replicas for one in r._machine.transactions.open()))
        taking_over = asyncio.ensure_future(attached(successor, terms(epoch=2)))
        await eventually(lambda: taking_over.done() or any(r.taking_part._urgent for r in replicas))
        assert not taking_over.done()
        ends.set()
        assert isinstance(await control.answer(commit), Accepted)
        after = await taking_over
        assert after.remote_properties[protocol.LINK_POSITION] == offset_text(3)
        assert await position(cluster) == 4


async def test_a_rollback_waits_for_what_is_about_to_begin(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    adds, add = asyncio.Event(), HeldTransaction._add_all

    async def delayed(self: HeldTransaction, groups: list[int]) -> Any:
        await adds.wait()
        return await add(self, groups)

    monkeypatch.setattr(HeldTransaction, "_add_all", delayed)
    monkeypatch.setattr(transaction_module, "NOTE_AFTER_S", 0.0)
    async with Peer(cluster.ports[1]) as peer:
        control = await named(peer, **{protocol.TRANSACTION_TIMEOUT: 900_000})  # it is not its time that ends it
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        sender.send_many([message(b"about to begin")], txn_id=txn)
        await peer.flush()
        await eventually(lambda: open_anywhere(cluster))
        abort = await control.ask(encode_discharge(txn, True))
        await eventually(lambda: cluster.nodes[1]._listeners[0]._errands)
        adds.set()
        assert isinstance(await control.answer(abort), Accepted)
        await eventually(lambda: not open_anywhere(cluster))


async def test_a_message_that_a_partition_refused_keeps_its_transaction_from_counting(cluster: ListenerCluster) -> None:
    leader = await cluster.settled_leader("totals", "0")
    group = cluster.broker(leader).raft_group("totals", "0")
    replica = cluster.nodes[leader]._replicas.replica(group)
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("totals", "0")
        txn = await control.declare()
        assert await send_under(peer, sender, txn, [b"stored"]) == [Accepted()]
        replica.refuse_appends(Failed("disk_full", False, "no room"))
        (refused,) = await send_under(peer, sender, txn, [b"refused"])
        assert isinstance(refused, Rejected)
        replica.refuse_appends(None)
        assert why(await control.commit(txn)) == ROLLBACK
        assert await bodies(peer, "totals", "0") == []


async def test_when_nobody_knows_how_it_ended_nothing_is_handed_out_again(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed, in fact: the group stands behind what was consumed."""
    end = TransactionalProducer.end

    async def forgotten(self: TransactionalProducer, pair: tuple[int, int], **how: Any) -> Any:
        await end(self, pair, **how)
        raise TransactionFailed("fenced", "how it ended is not remembered")

    monkeypatch.setattr(TransactionalProducer, "end", forgotten)
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        link = await attached(peer, terms(), name="mine", credit=6)
        got = await took(peer, link, 3)
        txn = await control.declare()
        accept_under(link, got[:3], txn)
        assert await control.commit(txn) is None, "no answer is told that may be wrong"
        assert (await peer.refused(link)).condition == "amqp:link:detach-forced"
        assert offsets(peer, link) == list(range(len(offsets(peer, link)))), "nothing came twice"
        assert await position(cluster) == 3
