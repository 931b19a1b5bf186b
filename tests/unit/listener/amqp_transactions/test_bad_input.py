"""What clients get wrong on a control link, or under a transaction: the condition that the specification names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import (
    Accepted,
    ConnectionClosed,
    Coordinator,
    Declared,
    Described,
    LinkDetached,
    Message,
    Rejected,
    Source,
    Value,
    encode_message,
    ulong,
)
from holdfast.amqp.transactions import encode_declare, encode_discharge
from node.client_transactions import transaction
from node.client_transactions.transactional_ids import TransactionManager
from node.listener.amqp_transactions import control_link
from node.listener.amqp_transactions.control_link import CONTROL_BYTES, CONTROL_VALUES
from node.partition.transactions import aborted_transactions
from node.transaction_coordinator.marker_sender import MarkerSender
from tests.unit.listener.amqp_transactions.test_transactions import read
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import start_at
from tests.unit.listener.support.transacting import Control, send_under, why

ROLLBACK, TIMEOUT = "amqp:transaction:rollback", "amqp:transaction:timeout"
UNKNOWN_ID, INVALID, STOLEN = "amqp:transaction:unknown-id", "amqp:invalid-field", "amqp:link:stolen"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades", partitions=4)
        yield three


async def named(peer: Peer, name: str = "worker", **terms: Any) -> Control:
    link = peer.engine.open_sender(Coordinator(), properties={protocol.TRANSACTIONAL_ID: name} | terms)
    await peer._opened(link)
    await peer.until(lambda: link.credit > 0)
    return Control(peer, link)


async def refusal(peer: Peer, **terms: Any) -> str:
    link = peer.engine.open_sender(Coordinator(), properties=terms)
    return (await peer.refused(link)).condition


async def test_a_transaction_whose_time_is_over_is_rolled_back_and_its_commit_is_told_why(
    cluster: ListenerCluster,
) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await named(peer, **{protocol.TRANSACTION_TIMEOUT: 1000})
        sender = await peer.sender("trades", "0")
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"too late"])
        broker = cluster.broker(1)
        coordinator = await broker.transactions.coordinators.group_of("worker")

        def over() -> bool:
            return all(
                replica._machine.get("worker") is not None and replica._machine.get("worker").last is not None
                for node in cluster.nodes.values()
                for replica in node._replicas.coordinators()
                if replica.group_id == coordinator
            )

        await eventually(over)
        (late,) = await send_under(peer, sender, txn, [b"later"])
        assert isinstance(late, Rejected)
        assert why(await control.commit(txn)) in (TIMEOUT, ROLLBACK)
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"in time"])
        await control.committed(txn)
        assert (await read(cluster, 2, expected=1))["0"] == [b"in time"]


async def test_the_holder_before_is_fenced(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as zombie, Peer(cluster.ports[2]) as successor, Peer(cluster.ports[1]) as third:
        first = await named(zombie)
        sender = await zombie.sender("trades", "1")
        txn = await first.declare()
        await send_under(zombie, sender, txn, [b"of a zombie"])
        second = await named(successor, **{protocol.TRANSACTION_TIMEOUT: 900_000})
        assert isinstance(await first.commit(txn), Rejected)
        assert (await zombie.refused(first.link)).condition == STOLEN
        txn = await second.declare()
        await send_under(successor, await successor.sender("trades", "1"), txn, [b"of the successor"])
        await second.committed(txn)
        await named(third)
        txn = await second.declare()  # nobody is asked, and its first event may be stored before somebody is
        sender = await successor.sender("trades", "2")
        await send_under(successor, sender, txn, [b"of a zombie"])
        assert isinstance(await second.commit(txn), Rejected)
        assert (await successor.refused(second.link)).condition == STOLEN
        sender.send_many([message(b"behind it")])  # committed readers do not wait for what nobody will ever end
        await successor.flush()
        reader = await successor.receiver(start_at("trades", "@earliest"), "2", credit=5)
        await successor.until(lambda: len(successor.received.get(reader, [])) == 1)
        assert (await read(cluster, 3, expected=2))["2"] == [b"behind it"]


async def test_who_rolls_back_what_its_successor_has_ended_does_not_go_on(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    markers, send_one = asyncio.Event(), MarkerSender._send_one

    async def delayed(self: MarkerSender, group: int, question: Any) -> None:
        await markers.wait()
        await send_one(self, group, question)

    monkeypatch.setattr(MarkerSender, "_send_one", delayed)
    monkeypatch.setattr(transaction, "NOTE_AFTER_S", 0.0)  # or its successor ends nothing
    async with Peer(cluster.ports[1]) as zombie, Peer(cluster.ports[2]) as successor:
        first = await named(zombie)
        sender = await zombie.sender("trades", "1")
        txn = await first.declare()
        await send_under(zombie, sender, txn, [b"of a zombie"])
        await eventually(lambda: any(replica._machine.ongoing() for replica in coordinators(cluster)))
        second = asyncio.ensure_future(named(successor))
        await eventually(lambda: any(replica._machine.decided() for replica in coordinators(cluster)))
        abort = await first.ask(encode_discharge(txn, True))
        await eventually(lambda: any(replica._marked.awaited() for replica in coordinators(cluster)))
        markers.set()
        assert isinstance(await first.answer(abort), Accepted)
        assert why(await first.answer(await first.ask(encode_declare()))) == STOLEN
        txn = await (await second).declare()
        assert txn


def coordinators(cluster: ListenerCluster) -> list[Any]:
    return [replica for node in cluster.nodes.values() for replica in node._replicas.coordinators()]


async def test_who_is_fenced_on_the_same_node_is_told_at_once(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as one, Peer(cluster.ports[1]) as other:
        first = await named(one)
        await named(other)
        assert (await one.refused(first.link)).condition == STOLEN


async def test_declares_that_cannot_be(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        distributed = await control.answer(await control.ask(encode_declare(b"global")))
        assert why(distributed) == "amqp:not-implemented"
        nonsense = await control.answer(await control.ask(message(b"declare")))
        assert why(nonsense) == "amqp:decode-error"
        assert why(await control.answer(await control.ask(encode_discharge(b"", False)))) == UNKNOWN_ID
        assert isinstance(await control.answer(await control.ask(encode_declare())), Declared)


async def test_a_declare_with_more_values_than_one_can_need_is_not_decoded(cluster: ListenerCluster) -> None:
    def declare(values: int) -> bytes:
        return encode_message(Message(body=Value(Described(ulong(0x31), [None, *[[]] * values]))))

    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        assert isinstance(await control.answer(await control.ask(declare(CONTROL_VALUES // 2))), Declared)
        assert why(await control.answer(await control.ask(declare(CONTROL_VALUES)))) == "amqp:decode-error"


async def test_what_is_too_long_for_a_declare_is_not_taken(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        assert control.link.remote_max_message_size == CONTROL_BYTES
        await control.ask(encode_declare(b"x" * CONTROL_BYTES))
        assert (await peer.refused(control.link)).condition == "amqp:link:message-size-exceeded"


async def test_declares_that_are_under_way_count_as_open(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all control links of a connection, in one flush: each is looked at before any of them is open."""
    monkeypatch.setattr(control_link, "MAX_OPEN", 5)
    async with Peer(cluster.ports[1]) as peer:
        controls = [await Control.attach(peer) for _ in range(3)]
        asked = [(control, number) for control in controls for number in control.link.send_many([encode_declare()] * 4)]
        await peer.flush()
        states = [await control.answer(number) for control, number in asked]
        refused = [why(state) for state in states if not isinstance(state, Declared)]
        assert refused == ["amqp:resource-limit-exceeded"] * 7
        for control, state in zip((control for control, _ in asked), states, strict=True):
            if isinstance(state, Declared):
                await control.aborted(state.txn_id)
        assert await controls[0].declare(), "those that were refused are not counted any more"


@pytest.mark.parametrize("answered", [True, False], ids=["declared", "being declared"])
async def test_transactions_of_links_that_are_gone_count_until_they_are_rolled_back(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """Attach, declare, detach, again and again: while the first are being rolled back no more can be under way."""
    monkeypatch.setattr(control_link, "MAX_OPEN", 3)
    may_begin, begin = asyncio.Event(), TransactionManager.begin_anonymous
    may_end, abort = asyncio.Event(), transaction.HeldTransaction.abort
    if answered:
        may_begin.set()

    async def begun(self: TransactionManager, timeout_ms: int) -> transaction.HeldTransaction:
        await may_begin.wait()
        return await begin(self, timeout_ms)

    async def delayed(self: transaction.HeldTransaction) -> None:
        await may_end.wait()
        await abort(self)

    monkeypatch.setattr(TransactionManager, "begin_anonymous", begun)
    monkeypatch.setattr(transaction.HeldTransaction, "abort", delayed)
    async with Peer(cluster.ports[1]) as peer:
        for _ in range(3):
            control = await Control.attach(peer)
            await (control.declare() if answered else control.ask(encode_declare()))
            control.link.close()
            await peer.flush()
            await peer.wait(LinkDetached, lambda event, gone=control: event.link is gone.link)
        control = await Control.attach(peer)
        connections = cluster.nodes[1]._listeners[0]._connections
        may_begin.set()
        await eventually(lambda: any(len(one.transactions) == 3 for one in connections))
        refused = await control.answer(await control.ask(encode_declare()))
        assert why(refused) == "amqp:resource-limit-exceeded"
        may_end.set()
        (connection,) = (one for one in connections if one.transactions)
        await eventually(lambda: not connection.transactions)
        assert await control.declare(), "what was rolled back is not counted any more"


async def test_a_settled_declare_ends_its_link(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        await control.ask(encode_declare(), settled=True)
        assert (await peer.refused(control.link)).condition == INVALID


async def test_an_id_has_one_transaction_at_a_time_and_who_names_none_may_have_several(
    cluster: ListenerCluster,
) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await named(peer)
        first = await control.declare()
        assert why(await control.answer(await control.ask(encode_declare()))) == "amqp:not-allowed"
        await control.committed(first)
        anonymous = await Control.attach(peer)
        several = [await anonymous.declare() for _ in range(3)]
        assert len(set(several)) == 3
        for txn in several:
            await anonymous.aborted(txn)


async def test_attaches_that_cannot_be(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        for terms in (
            {protocol.TRANSACTION_TIMEOUT: 15 * 60 * 1000 + 1},
            {protocol.TRANSACTION_TIMEOUT: 0},
            {protocol.TRANSACTIONAL_ID: "x", protocol.TRANSACTION_HOLDER: "h" * 65},
            {protocol.TRANSACTIONAL_ID: "x", protocol.TRANSACTION_HOLDER: 5},
            {protocol.TRANSACTIONAL_ID: "x", protocol.TRANSACTION_SUCCEEDS: ""},
            {protocol.TRANSACTION_HOLDER: "without an id"},
            {protocol.TRANSACTION_TIMEOUT: "long"},
            {protocol.TRANSACTIONAL_ID: ""},
            {protocol.TRANSACTIONAL_ID: "x" * 257},
            {protocol.TRANSACTIONAL_ID: 7},
            {protocol.TRANSACTIONAL_ID: "$node-1-0"},
        ):
            assert await refusal(peer, **terms) == INVALID, terms


async def test_without_a_rejected_outcome_the_link_ends_instead(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        link = peer.engine.open_sender(Coordinator(), source=Source(outcomes=("amqp:accepted:list",)))
        await peer._opened(link)
        await peer.until(lambda: link.credit > 0)
        control = Control(peer, link)
        await control.ask(encode_discharge(b"nobody's", False))
        assert (await peer.refused(link)).condition == UNKNOWN_ID


async def test_a_client_that_goes_leaves_nothing_open(cluster: ListenerCluster) -> None:
    for closes in (True, False):
        async with Peer(cluster.ports[2]) as peer:
            control = await Control.attach(peer)
            sender = await peer.sender("trades", "2")
            txn = await control.declare()
            await send_under(peer, sender, txn, [b"left alone"])
            if closes:
                control.link.close()
                await peer.flush()
                await eventually(lambda: not open_anywhere(cluster))
                (late,) = await send_under(peer, sender, txn, [b"late"])
                assert why(late) == UNKNOWN_ID
        await eventually(lambda: not open_anywhere(cluster))
    await read(cluster, 1, expected=0)


def open_anywhere(cluster: ListenerCluster) -> int:
    return sum(
        len(replica._machine.transactions.open())
        for node in cluster.nodes.values()
        for replica in node._replicas.all_open()
    )


async def test_settled_messages_count_and_one_that_cannot_be_stored_rolls_back(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[3]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("trades", "3")
        txn = await control.declare()
        sender.send_many([message(b"settled")], settled=True, txn_id=txn)
        await control.committed(txn)
        assert (await read(cluster, 1, expected=1))["3"] == [b"settled"]
        txn = await control.declare()
        sender.send_many([message(b"good"), b"\x00Su\xa1\x03bad"], settled=True, txn_id=txn)
        assert why(await control.commit(txn)) == ROLLBACK
        await read(cluster, 1, expected=1)


async def test_a_message_that_is_rejected_rolls_its_transaction_back(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[3]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("trades", "3")
        txn = await control.declare()
        sender.send_many([message(b"good"), b"\x00Su\xa1\x03bad"], txn_id=txn)
        await peer.flush()
        states = await peer.states(sender, 2)
        assert [state.txn_id for state in states] == [txn, txn]
        assert why(states[1].outcome) == "amqp:decode-error"
        assert why(await control.commit(txn)) == ROLLBACK
        await read(cluster, 1, expected=0)


@pytest.mark.parametrize("settled", [False, True])
async def test_a_message_that_is_too_large_rolls_its_transaction_back(cluster: ListenerCluster, settled: bool) -> None:
    """It comes in many frames, and ends its link; the commit behind it does not count what came before it."""
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("trades", "2")
        txn = await control.declare()
        large = message(bytes(sender.remote_max_message_size))
        sender.send_many([message(b"first"), large, message(b"behind")], settled, txn_id=txn)
        assert why(await control.commit(txn)) == ROLLBACK
        assert (await peer.refused(sender)).condition == "amqp:link:message-size-exceeded"
        again = await peer.sender("trades", "2")
        txn = await control.declare()
        await send_under(peer, again, txn, [b"counts"])
        await control.committed(txn)
        assert (await read(cluster, 2, expected=1))["2"] == [b"counts"]


async def test_where_too_much_was_rolled_back_a_transaction_is_told_so_and_leaves_nothing_open(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        sender = await peer.sender("trades", "2")
        with monkeypatch.context() as patched:
            patched.setattr(aborted_transactions, "MAX_RANGES", 0)
            txn = await control.declare()
            (refused,) = await send_under(peer, sender, txn, [b"no room"])
            assert "roll back less" in refused.error.description
            outcome = await control.commit(txn)
            assert why(outcome) == ROLLBACK
            assert "roll back less" in outcome.error.description
            await eventually(lambda: not open_anywhere(cluster))
        txn = await control.declare()
        await send_under(peer, sender, txn, [b"room"])
        await control.committed(txn)
        assert (await read(cluster, 2, expected=1))["2"] == [b"room"]


async def test_many_declares_and_discharges_at_once_are_each_answered(cluster: ListenerCluster) -> None:
    async with Peer(cluster.ports[1]) as peer:
        control = await Control.attach(peer)
        transactions = await asyncio.gather(*(control.declare() for _ in range(5)))
        answers = await asyncio.gather(*(control.discharge(txn, fail=n % 2 == 1) for n, txn in enumerate(transactions)))
        assert answers == [Accepted()] * 5
        assert not any(isinstance(event, ConnectionClosed) for event in peer.history)
