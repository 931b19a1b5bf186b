"""Transactions as programs have them, over partitions of three nodes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast.amqp import Error
from holdfast.amqp.links.delivery_states import ACCEPTED, DeliveryState, Rejected
from holdfast.client import (
    AdminClient,
    BufferFullError,
    ConfigurationError,
    ConnectionLostError,
    EventTooLargeError,
    HoldfastError,
    InvalidOperationError,
    NotFoundError,
    ProducerClient,
    ProducerFencedError,
    ProducerOptions,
    RejectedError,
    TransactionOutcomeUnknownError,
    TransactionRolledBackError,
)
from holdfast.client.produce.delivery import PendingBatch
from holdfast.client.transact.transaction import MOST_UNDER_WAY, TransactionalSender
from holdfast.client.transact.transaction_manager import Transactor
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.links import Sender, SenderOwner
from holdfast.records.record_batch import RecordBatch
from node.transaction_coordinator import coordinator_replica
from node.transaction_coordinator.marker_sender import MarkerSender
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies, cut, cut_before_the_answer, noted
from tests.unit.listener.support.peer import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARTITIONS = 4


def producer(nodes: Nodes, log: str, name: str | None = None, **more: Any) -> ProducerClient:
    return ProducerClient(nodes.servers, log, ProducerOptions(transactional_id=name, **more))


@pytest.mark.parametrize("name", [None, "committing"])
async def test_leaving_the_block_commits_and_an_exception_rolls_back(nodes: Nodes, name: str | None) -> None:
    log = await nodes.log(PARTITIONS)
    async with producer(nodes, log, name) as one:
        async with one.transaction() as tx:
            for number in range(PARTITIONS):
                await tx.send(b"%d" % number, partition=str(number))
            delivery = await tx.send(b"by key", key="IBM")
            assert (await delivery).partition == delivery.partition
            assert await bodies(nodes, log) == []
        assert sorted(await bodies(nodes, log)) == [b"0", b"1", b"2", b"3", b"by key"]

        async def fail() -> None:
            async with one.transaction() as tx:
                await tx.send(b"never", partition="1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        async with one.transaction() as tx:
            await tx.send(b"never either", partition="2")
            await tx.abort()
        async with one.transaction() as tx:
            await tx.send(b"last", partition="3")
            await tx.commit()
        async with one.transaction():
            pass
        assert len(await bodies(nodes, log)) == 6


async def test_a_transaction_ends_once_and_one_is_open_at_a_time(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log) as one:
        tx = one.transaction()
        for call in (tx.send(b"early", partition="0"), tx.commit(), tx.abort()):
            with pytest.raises(InvalidOperationError, match="not begun"):
                await call
        async with tx:
            other = one.transaction()
            with pytest.raises(InvalidOperationError, match="another transaction"):
                await other.begin()
            await tx.send(b"one", partition="0")
        assert not tx.is_open
        for call, why in (
            (tx.commit(), "was ended: it cannot be committed"),
            (tx.abort(), "was ended: it cannot be aborted"),
            (tx.send(b"late", partition="0"), "was ended: it cannot be sent under"),
            (tx.begin(), "was begun before"),
        ):
            with pytest.raises(InvalidOperationError, match=why):
                await call
        async with other:
            await other.send(b"two", partition="0")
        assert await bodies(nodes, log) == [b"one", b"two"]


async def test_what_is_wrong_is_said_and_the_transaction_goes_on(nodes: Nodes) -> None:
    log = await nodes.log(1)
    with pytest.raises(ConfigurationError):
        ProducerClient(nodes.servers, log, transactional_id="$mine")
    async with producer(nodes, log) as one, one.transaction() as tx:
        with pytest.raises(NotFoundError):
            await tx.send(b"x", partition="7")
        await tx.send(b"fits", partition="0")
        with pytest.raises(EventTooLargeError):
            await tx.send(b"x" * (8 << 20), partition="0")
    assert await bodies(nodes, log) == [b"fits"]


async def test_more_than_the_buffer_holds_goes_through_in_order(nodes: Nodes) -> None:
    log = await nodes.log(1)
    events = [b"%d" % number for number in range(5000)]
    async with producer(nodes, log, window=100, max_buffered_events=300) as one, one.transaction() as tx:
        for event in events:
            await tx.send(event, partition="0")
    assert await bodies(nodes, log) == events


async def test_the_producers_other_ways_to_send_are_there_too(nodes: Nodes) -> None:
    log = await nodes.log(2)
    async with producer(nodes, log, max_buffered_events=3) as one:
        told: list[HoldfastError | None] = []
        async with one.transaction() as tx:
            with pytest.raises(BufferFullError, match="not open yet"):
                tx.send_nowait(b"too early", partition="0")
            assert (await tx.send_and_confirm(b"a", partition="0")).partition == "0"
            for body in (b"b", b"c"):
                tx.send_nowait(body, partition="0", done=told.append)
            await tx.send(b"d", partition="0", done=told.append)
            with pytest.raises(BufferFullError):
                tx.send_nowait(b"too much", partition="0")
        assert told == [None] * 3
        async with one.transaction() as tx:
            tx.send_nowait(b"e", partition="0", done=told.append)
            await tx.abort()
        assert isinstance(told[3], TransactionRolledBackError)
    assert await bodies(nodes, log) == [b"a", b"b", b"c", b"d"]


async def test_nothing_of_a_transaction_that_is_lost_is_awaited_any_more(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log) as one:
        tx = one.transaction()
        await tx.begin()
        await tx.send_and_confirm(b"before", partition="0")
        waiting = await tx.send(b"behind", partition="0")
        tx.fail(TransactionRolledBackError("lost"))
        with pytest.raises(TransactionRolledBackError, match="lost"):
            await waiting
        with pytest.raises(TransactionRolledBackError, match="lost"):
            await tx.commit()
    assert await bodies(nodes, log) == []


async def test_a_control_link_that_ends_fails_the_next_call(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log) as one:
        tx = one.transaction()
        await tx.begin()
        await tx.send_and_confirm(b"lost", partition="0")
        tx._transactor.on_closed(ConnectionLostError("the link is gone"))
        with pytest.raises(TransactionRolledBackError, match="the link is gone"):
            await tx.send(b"behind", partition="0")
        await tx.abort()
        async with one.transaction() as tx:
            await tx.send(b"next", partition="0")
    handle = nodes.cluster.broker(await nodes.cluster.settled_leader(log)).handle(log, "0")
    await nodes.until(lambda: not handle.info_now().open_transactions)  # its node rolls the first one back by itself
    assert await bodies(nodes, log) == [b"next"]


async def test_tasks_that_send_to_a_partition_at_once_share_one_link(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, attach, attached = await nodes.log(1), Transactor.attach, list[str]()

    async def noted_attach(transactor: Transactor, partition: str, owner: SenderOwner, bound_s: float) -> Sender:
        attached.append(partition)
        return await attach(transactor, partition, owner, bound_s)

    monkeypatch.setattr(Transactor, "attach", noted_attach)
    async with producer(nodes, log) as one, asyncio.timeout(60):
        for _ in range(2):  # the second one takes the link over
            async with one.transaction() as tx:
                await asyncio.gather(*(tx.send_and_confirm(b"x", partition="0") for _ in range(4)))
    assert attached == ["0"]
    assert await bodies(nodes, log) == [b"x"] * 8


async def test_a_refused_event_rolls_back(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    log, original = await nodes.log(1), TransactionalSender.on_outcomes

    def refused(sender: TransactionalSender, outcomes: list[tuple[int, DeliveryState]]) -> None:
        original(sender, [(number, Rejected(Error("amqp:decode-error", "no event"))) for number, _ in outcomes])

    async with producer(nodes, log) as one:
        with monkeypatch.context() as patch:
            patch.setattr(TransactionalSender, "on_outcomes", refused)
            tx = one.transaction()
            await tx.begin()
            with pytest.raises(RejectedError, match="no event"):
                await tx.send_and_confirm(b"refused", partition="0")
            with pytest.raises(TransactionRolledBackError, match="no event") as rolled_back:
                await tx.commit()
        assert not rolled_back.value.retriable
        async with one.transaction() as tx:
            await tx.send(b"good", partition="0")
    assert await bodies(nodes, log) == [b"good"]


@pytest.mark.parametrize("waits_for", ["room", "the commit"])
async def test_what_is_not_answered_in_time_rolls_back(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    log = await nodes.log(1)
    bounded = producer(nodes, log, max_buffered_events=2, delivery_timeout_s=2.0)
    async with asyncio.timeout(60), bounded as one:
        with monkeypatch.context() as patch:
            patch.setattr(TransactionalSender, "on_outcomes", lambda sender, outcomes: None)
            tx = one.transaction()
            await tx.begin()
            deliveries = [await tx.send(b"unanswered", partition="0") for _ in range(2)]
            with pytest.raises(TransactionRolledBackError, match="no event was taken for 2 s"):
                await (tx.send(b"no room", partition="0") if waits_for == "room" else tx.commit())
            assert all(delivery.error is not None for delivery in deliveries)
            if waits_for == "room":
                await tx.abort()
        async with one.transaction() as tx:
            await tx.send(b"answered", partition="0")
    assert await bodies(nodes, log) == [b"answered"]


# ---------------------------------------------------------------- fencing


async def test_the_next_holder_of_an_id_fences_the_one_before(nodes: Nodes) -> None:
    log = await nodes.log(2)
    async with producer(nodes, log, "worker") as zombie:
        tx = zombie.transaction()
        await tx.begin()
        await (await tx.send(b"of a zombie", partition="0"))
        async with AdminClient(nodes.servers[0]) as admin:
            await noted(admin, "worker")
        async with producer(nodes, log, "worker") as successor:
            assert successor.last_transaction is not None
            assert (successor.last_transaction.producer_id, successor.last_transaction.epoch) == (
                tx.producer_id,
                tx.epoch,
            )
            assert not successor.last_transaction.committed
            with pytest.raises(ProducerFencedError) as fenced:
                await tx.commit()
            assert not fenced.value.retriable
            async with successor.transaction() as mine:
                await mine.send(b"of its successor", partition="1")
            with pytest.raises(ProducerFencedError):
                await zombie.transaction().begin()
        assert await bodies(nodes, log) == [b"of its successor"]


async def test_a_zombie_whose_connection_broke_does_not_take_the_id_back(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log, "cut off") as zombie:
        async with zombie.transaction() as tx:
            await tx.send(b"one", partition="0")
        cut(zombie)
        async with producer(nodes, log, "cut off") as successor:
            with pytest.raises(ProducerFencedError):
                await zombie.transaction().begin()
            async with successor.transaction() as tx:
                await tx.send(b"two", partition="0")
        assert await bodies(nodes, log) == [b"one", b"two"]


# ---------------------------------------------------------------- lost connections


async def test_with_nothing_sent_a_broken_connection_costs_nothing(nodes: Nodes) -> None:
    log = await nodes.log(1)
    for name in (None, "patient"):
        async with producer(nodes, log, name) as one:
            async with one.transaction() as tx:
                first = tx.txn_id
                cut(one)
                await tx.send(b"sent once", partition="0")
                assert tx.txn_id != first
            async with one.transaction() as tx:
                cut(one)  # there is nothing to lose by its commit, either
            async with one.transaction() as tx:
                await tx.send(b"and again", partition="0")
            cut(one)
            async with one.transaction():
                pass
    assert await bodies(nodes, log) == [b"sent once", b"and again"] * 2


@pytest.mark.parametrize("name", [None, "late"])
async def test_a_link_that_ends_right_after_its_attach_is_attached_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    log = await nodes.log(1)
    attach, ended = ClientConnection.attach_sender, list[ClientConnection]()

    async def ending_at_once(
        connection: ClientConnection, address: str, place: str | None, owner: Any, **more: Any
    ) -> Any:
        link = await attach(connection, address, place, owner, **more)
        if isinstance(owner, TransactionalSender) and not ended:
            ended.append(connection)
            assert connection._transport is not None
            connection._transport.abort()
            await eventually(lambda: owner.ended)
        return link

    monkeypatch.setattr(ClientConnection, "attach_sender", ending_at_once)
    async with producer(nodes, log, name) as one, asyncio.timeout(60), one.transaction() as tx:
        await tx.send_batch([b"a", b"b"], partition="0")
    assert ended
    assert await bodies(nodes, log) == [b"a", b"b"]


class Noting:
    """A transaction's book that notes what it hears."""

    def __init__(self, txn_id: bytes = b"t") -> None:
        self.txn_id = txn_id
        self.settled: list[tuple[int, HoldfastError | None]] = []
        self.failed_by: list[HoldfastError] = []

    def answered(self, batch: PendingBatch, state: DeliveryState) -> None:
        self.settle(batch, None)

    def settle(self, batch: PendingBatch, error: HoldfastError | None) -> None:
        batch.settle(error)
        self.settled.append((batch.events, error))

    def fail(self, why: HoldfastError) -> None:
        self.failed_by.append(why)


class Taking:
    """A link that takes everything and answers nothing."""

    credit, batch_bytes, max_event_bytes = 10**6, 10**6, 0

    def __init__(self) -> None:
        self.owner: object = None
        self.sent: list[tuple[int, bytes | None]] = []

    def send_batch(self, batch: RecordBatch, *, txn_id: bytes | None = None) -> int:
        self.sent.append((len(batch), txn_id))
        return len(self.sent)


def taking_over(link: Taking, book: Noting, window: int = 10) -> TransactionalSender:
    sender = TransactionalSender(book, "0", ProducerOptions(window=window))  # type: ignore[arg-type]
    sender.take_over(link)  # type: ignore[arg-type]
    return sender


async def test_what_is_still_gathered_never_goes_out_under_another_transaction() -> None:
    link, first, second = Taking(), Noting(b"first"), Noting(b"second")
    before = taking_over(link, first)
    before.queue.extend([b"body"], bodies=True)
    before.give_up(TransactionRolledBackError("no"))
    sender = taking_over(link, second)
    sender.queue.extend([b"a", b"b"], bodies=True)
    before.pump()
    sender.pump()
    assert link.sent == [(2, b"second")]
    assert link.owner is sender


async def test_a_link_that_ends_fails_the_transaction_that_waits_for_it_and_no_other() -> None:
    link, why = Taking(), ConnectionLostError("the node is gone")
    first, second = Noting(b"first"), Noting(b"second")
    sender = taking_over(link, first)
    sender.queue.extend([b"sent"], bodies=True)
    sender.pump()
    sender.queue.extend([b"still", b"gathered"], bodies=True)
    rolled_back = TransactionRolledBackError("no")
    sender.give_up(rolled_back)
    assert first.settled == [(1, rolled_back), (2, rolled_back)]
    sender.on_outcomes([(1, ACCEPTED)])
    assert len(first.settled) == 2, "an answer that is late changes nothing"
    following = taking_over(link, second)
    following.on_outcomes([(1, ACCEPTED)])
    assert not second.settled, "nor does one that comes to the next transaction"
    following.queue.extend([b"body"], bodies=True)
    following.pump()
    for one in (sender, following):
        one.on_closed(why)
    assert (first.failed_by, second.failed_by) == ([], [why])
    following.give_up(why)
    assert second.settled == [(1, why)]


async def test_no_more_is_under_way_than_a_partition_recognises_again() -> None:
    link, book = Taking(), Noting()
    sender = taking_over(link, book, 10**6)
    sender.queue.extend([b"x"] * 5000, bodies=True)
    sender.pump()
    assert sum(events for events, _ in link.sent) == MOST_UNDER_WAY


async def unlucky(one: ProducerClient, more: list[bytes]) -> None:
    async with one.transaction() as tx:
        await (await tx.send(b"lost", partition="0"))
        cut(one)
        for event in more:
            await tx.send(event, partition="1")


async def test_what_was_sent_before_the_connection_broke_is_rolled_back(nodes: Nodes) -> None:
    log = await nodes.log(2)
    async with producer(nodes, log, "unlucky") as one:
        for more in ([], [b"not taken"]):
            with pytest.raises(TransactionRolledBackError) as rolled_back:
                await unlucky(one, more)
            assert rolled_back.value.retriable
        async with one.transaction() as tx:
            await tx.send(b"again", partition="1")
        assert await bodies(nodes, log) == [b"again"]


@pytest.mark.parametrize("committed", [True, False, None])
async def test_the_outcome_is_found_out_when_the_answer_got_lost(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, committed: bool | None
) -> None:
    """The decision is made, and the connection ends before it is told."""
    log = await nodes.log(2)
    async with producer(nodes, log, f"resolved {committed}") as one:
        async with one.transaction() as tx:
            await tx.send(b"first", partition="0")
        tx = one.transaction()
        await tx.begin()
        await (await tx.send(b"second", partition="1"))
        async with cut_before_the_answer(nodes, one, monkeypatch, decided=committed):
            if committed:
                await tx.commit()
            else:
                with pytest.raises(TransactionRolledBackError):
                    await tx.commit()
        last = one.last_transaction
        assert last is not None
        assert committed is False or last.committed, "of one that nobody heard of the one before is told"
        assert committed is not True or (last.producer_id, last.epoch) == (tx.producer_id, tx.epoch)
        async with one.transaction() as tx:
            await tx.send(b"third", partition="0")
    assert sorted(await bodies(nodes, log)) == sorted([b"first", b"third", *([b"second"] if committed else [])])


async def test_without_an_id_the_outcome_cannot_be_learnt(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log) as one:
        tx = one.transaction()
        await tx.begin()
        await (await tx.send(b"perhaps", partition="0"))
        async with cut_before_the_answer(nodes, one, monkeypatch, decided=True):
            with pytest.raises(TransactionOutcomeUnknownError, match="not known") as unknown:
                await tx.commit()
        assert (unknown.value.producer_id, unknown.value.epoch) == (tx.producer_id, tx.epoch)
        assert not unknown.value.retriable
        async with one.transaction() as tx:
            await tx.send(b"next", partition="0")
    assert await bodies(nodes, log) == [b"perhaps", b"next"]


async def test_a_transaction_that_was_open_for_too_long_is_rolled_back(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log, "slow", transaction_timeout_s=0.2) as one:
        tx = one.transaction()
        await tx.begin()
        await (await tx.send(b"late", partition="0"))
        leader = await nodes.cluster.settled_leader(log)
        handle = nodes.cluster.broker(leader).handle(log, "0")
        await nodes.until(lambda: not handle.info_now().open_transactions)
        with pytest.raises(TransactionRolledBackError) as late:
            await tx.commit()
        assert late.value.condition in ("amqp:transaction:timeout", "amqp:transaction:rollback")
        while await bodies(nodes, log) != [b"in time"]:  # on a busy machine it may be late again
            with contextlib.suppress(TransactionRolledBackError):
                async with one.transaction() as tx:
                    await tx.send(b"in time", partition="0")


async def test_a_commit_returns_at_the_decision_if_it_is_to(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    markers, send_one = asyncio.Event(), MarkerSender._send_one

    async def held(sender: MarkerSender, group: int, question: Any) -> None:
        await markers.wait()
        await send_one(sender, group, question)

    log = await nodes.log(PARTITIONS)
    async with producer(nodes, log, "hasty", commit_answer="decided") as one:
        with monkeypatch.context() as patch:
            patch.setattr(MarkerSender, "_send_one", held)
            patch.setattr(coordinator_replica, "COMPLETE_WAIT_S", 1000.0)
            async with one.transaction() as tx:
                await tx.send(b"first", partition="0")
        assert await bodies(nodes, log) == []
        markers.set()
        async with one.transaction():  # begins behind the last one
            assert await bodies(nodes, log) == [b"first"]


async def test_a_commit_returns_at_one_of_two_moments(nodes: Nodes) -> None:
    with pytest.raises(ConfigurationError, match="commit_answer is one of visible, decided"):
        ProducerOptions(commit_answer="soon").check()  # type: ignore[arg-type]


@pytest.mark.parametrize("ended_before", [0, 1])
async def test_closing_a_producer_says_that_its_open_transaction_is_rolled_back(
    nodes: Nodes, ended_before: int
) -> None:
    log = await nodes.log(1)
    sender = producer(nodes, log)
    await sender.start()
    for _ in range(ended_before):
        async with sender.transaction():
            pass
    tx = sender.transaction()
    await tx.begin()
    await tx.send(b"in vain", partition="0")
    with pytest.raises(InvalidOperationError, match="it is rolled back") as refusal:
        await sender.close()
    assert "commit it before" in refusal.value.advice
    await sender.close()
    assert await bodies(nodes, log) == []
    async with producer(nodes, log) as other:
        tx = other.transaction()
        await tx.begin()
        await tx.send(b"counts", partition="0")
        await tx.commit()
    assert await bodies(nodes, log) == [b"counts"]


async def test_an_end_waits_for_what_is_being_begun_anew(nodes: Nodes) -> None:
    """The connection was lost before anything was sent, and one task begins again while another one commits."""
    log = await nodes.log(2)
    async with ProducerClient(nodes.servers, log, transactional_id="begun-anew") as one:
        tx = one.transaction()
        await tx.begin()
        cut(one)
        await eventually(lambda: tx._transactor.ended is not None)
        sending = asyncio.create_task(tx.send(b"1", partition="0"))
        for _ in range(3):  # it is beginning, and has not declared
            await asyncio.sleep(0)
        with contextlib.suppress(HoldfastError):
            await tx.commit()
        await asyncio.gather(sending, return_exceptions=True)
        async with one.transaction() as after:
            await after.send(b"2", partition="0")
    assert await bodies(nodes, log) in ([b"2"], [b"1", b"2"])
