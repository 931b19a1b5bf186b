"""Batches that many processes write and one commits, as programs have them, over three nodes."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast.client import (
    AdminClient,
    AdminError,
    ConfigurationError,
    GroupAbortedError,
    GroupFencedError,
    GroupMember,
    InvalidOperationError,
    NotPreparedError,
    ProducerClient,
    TransactionGroup,
    TransactionRolledBackError,
    WriterChangedError,
)
from holdfast.client.transact.group_member import MemberTransactor
from holdfast.client.transact.transaction import TransactionalSender
from holdfast.client.transport.connection import ClientConnection
from node.listener.amqp_transactions.control_link import CoordinatorLink
from node.transaction_coordinator.marker_sender import MarkerSender
from node.transaction_coordinator.transaction_groups.group_state import WriterRecord
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies
from tests.unit.listener.support.peer import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARTITIONS = 3


class Batch:
    """A log, and a writer of it."""

    def __init__(self, nodes: Nodes, log: str, producer: ProducerClient) -> None:
        self.nodes, self.log, self.producer = nodes, log, producer
        self.writer = f"writer-{uuid.uuid4().hex[:8]}"

    def group(self, batch: int = 0, run: str = "r1", **more: Any) -> TransactionGroup:
        return TransactionGroup(self.nodes.servers, writer=self.writer, batch=batch, run=run, **more)

    async def written(self, group: TransactionGroup, part: str, *events: bytes, attempt: str = "0") -> str:
        """A prepared member."""
        async with group.member(self.producer, part=part, attempt=attempt) as member:
            for number, event in enumerate(events):
                await member.send(event, partition=str(number % PARTITIONS))
            return await member.prepare()

    async def read(self) -> list[bytes]:
        return sorted(await bodies(self.nodes, self.log))


@pytest_asyncio.fixture(loop_scope="module")
async def batch(nodes: Nodes) -> AsyncIterator[Batch]:
    log = await nodes.log(PARTITIONS)
    async with ProducerClient(nodes.servers, log) as producer:
        yield Batch(nodes, log, producer)


async def test_one_decision_commits_the_winners_and_nobody_else(batch: Batch) -> None:
    async with batch.group() as group:
        assert await group.open() == "opened"
        assert group.is_new_writer
        first = await batch.written(group, "0", b"0a", b"0b", b"0c")
        twin = await batch.written(group, "0", b"twin", attempt="1")
        second = await batch.written(group, "1", b"1a", b"1b")
        left_open = group.member(batch.producer, part="2")
        await left_open.begin()
        await (await left_open.send(b"never prepared", partition="2"))
        assert await batch.read() == []
    async with batch.group() as elsewhere:  # another process
        await elsewhere.commit([first, second])
        assert await batch.read() == [b"0a", b"0b", b"0c", b"1a", b"1b"]
        await elsewhere.commit([first, second])
        await elsewhere.commit([twin])  # decided, whatever is asked for now
        with pytest.raises(GroupFencedError):
            await elsewhere.abort()
        with pytest.raises((GroupFencedError, TransactionRolledBackError)):
            await left_open.prepare()
        await left_open.abort()
    assert len(await batch.read()) == 5


async def test_a_batch_that_was_committed_is_already_done(batch: Batch) -> None:
    async with batch.group(4) as group:
        await group.open()
        await group.commit([await batch.written(group, "0", b"four")])
    for number, run in ((4, "r1"), (4, "r2"), (3, "r2")):
        async with batch.group(number, run) as again:
            assert await again.open() == "already done"
            assert (again.is_new_writer, again.last_committed) == (False, 4)
            with pytest.raises(GroupFencedError, match="batch 4 was committed"):
                await batch.written(again, "0", b"again")
            await again.commit([])
    async with batch.group(5, "r2") as following:
        assert await following.open() == "opened"
        await following.commit([await batch.written(following, "0", b"five")])
    assert await batch.read() == [b"five", b"four"]


async def test_a_newer_run_rolls_back_what_the_one_before_has_open(batch: Batch) -> None:
    async with batch.group(1, "old") as old, batch.group(1, "new") as new:
        await old.open()
        prepared = await batch.written(old, "0", b"prepared")
        async with old.member(batch.producer, part="1") as writing:
            await (await writing.send(b"writing", partition="0"))
            assert await new.open() == "opened"
            with pytest.raises((GroupFencedError, TransactionRolledBackError)):
                await writing.prepare()
        with pytest.raises(GroupFencedError, match="succeeded by 'new'"):
            await old.commit([prepared])
        with pytest.raises(GroupFencedError):
            await old.open()
        with pytest.raises(GroupFencedError):
            await batch.written(old, "2", b"zombie")
        with pytest.raises(NotPreparedError, match="no such members"):
            await new.commit([prepared])
        await new.commit([await batch.written(new, "0", b"anew")])
    assert await batch.read() == [b"anew"]


async def test_who_is_not_prepared_does_not_win_and_nothing_is_decided(batch: Batch) -> None:
    async with batch.group() as group:
        await group.open()
        ready = await batch.written(group, "0", b"ready")
        async with group.member(batch.producer, part="1") as late:
            await late.send(b"late", partition="1")
            with pytest.raises(NotPreparedError, match="is not prepared"):
                await group.commit([ready, late._transactor.member or ""])
            assert await batch.read() == []
            await group.commit([ready, await late.prepare()])
        assert await batch.read() == [b"late", b"ready"]


async def test_another_query_with_an_old_batch_is_an_error(batch: Batch) -> None:
    async with batch.group(9) as group:
        await group.open(query="q1")
        await group.commit([await batch.written(group, "0", b"nine")])
    async with batch.group(0, "r2") as other:
        with pytest.raises(WriterChangedError, match="Was its checkpoint deleted"):
            await other.open(query="q2")
    async with batch.group(9, "r3") as replay:
        assert await replay.open(query="q1") == "already done"


async def test_an_abort_leaves_nothing_and_the_batch_can_be_opened_again(batch: Batch) -> None:
    async with batch.group() as group:
        await group.open()
        winner = await batch.written(group, "0", b"never")
        await group.abort()
        await group.abort()
        with pytest.raises(GroupAbortedError):
            await group.commit([winner])
        assert await group.open() == "opened"
        await group.commit([await batch.written(group, "0", b"second try")])
    assert await batch.read() == [b"second try"]


async def test_a_group_ends_by_its_time(batch: Batch) -> None:
    async with batch.group() as group:
        await group.open(group_timeout_s=5.0)
        winner = await batch.written(group, "0", b"too late")
        while (await group.describe())["batch"] is not None:  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(0.05)
        with pytest.raises(GroupAbortedError, match="its time was over"):
            await group.commit([winner])
    assert await batch.read() == []


async def test_leaving_the_block_without_prepare_rolls_the_member_back(batch: Batch) -> None:
    async with batch.group() as group:
        await group.open()
        async with group.member(batch.producer, part="0") as member:
            await (await member.send(b"left", partition="0"))
        assert not member.is_open
        with contextlib.suppress(ZeroDivisionError):
            async with group.member(batch.producer, part="1") as failing:
                await failing.send(b"failed", partition="0")
                raise ZeroDivisionError
        states = [one["state"] for one in (await group.describe())["group_members"]]
        assert states == ["aborted", "aborted"]
        with pytest.raises(InvalidOperationError):
            await member.prepare()
        empty = await batch.written(group, "2")
        await group.commit([empty])
    assert await batch.read() == []


async def test_a_member_whose_connection_breaks_is_rolled_back_and_one_that_is_prepared_is_not(batch: Batch) -> None:
    async with batch.group() as group:
        await group.open()
        async with group.member(batch.producer, part="0") as member:
            await (await member.send(b"lost", partition="0"))
            cut(member)
            with pytest.raises(TransactionRolledBackError):
                await member.prepare()
        untouched = group.member(batch.producer, part="1")
        await untouched.begin()
        cut(untouched)
        await untouched.send(b"sent over the next connection", partition="0")
        winner = await untouched.prepare()
        await group.commit([winner])
    assert await batch.read() == [b"sent over the next connection"]


def cut(member: Any) -> None:
    member._transactor.connection._transport.abort()


async def test_a_lost_answer_to_prepare_is_no_winner(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    original = CoordinatorLink._discharge

    async with batch.group() as group:
        await group.open()
        async with group.member(batch.producer, part="0") as member:
            await member.send(b"prepared, unheard", partition="0")

            async def interrupted(link: CoordinatorLink, own: Any, *, fail: bool) -> Any:
                outcome = await original(link, own, fail=fail)
                cut(member)
                return outcome

            monkeypatch.setattr(CoordinatorLink, "_discharge", interrupted)
            with pytest.raises(TransactionRolledBackError, match="not known whether it is prepared"):
                await member.prepare()
        monkeypatch.undo()
        (one,) = (await group.describe())["group_members"]
        assert one["state"] == "prepared"
        await group.commit([await batch.written(group, "0", b"second attempt", attempt="1")])
    assert await batch.read() == [b"second attempt"]


async def test_a_silent_client_loses_its_lease_and_others_go_on(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    async with batch.group() as group:
        await group.open()
        healthy = group.member(batch.producer, part="0", lease_s=2.0)
        await healthy.begin()
        await healthy.send(b"healthy", partition="0")
        silent = group.member(batch.producer, part="1", lease_s=2.0)
        await silent.begin()
        await (await silent.send(b"silent", partition="0"))
        silent._is_over()  # as if its process stood still: the connection stays

        async def state(part: str) -> str:
            members = (await group.describe())["group_members"]
            return str(next(one["state"] for one in members if one["part"] == part))

        while await state("1") == "joined":  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(0.1)
        assert await state("0") == "joined", "it has sent nothing either, and its client lives"
        with pytest.raises(TransactionRolledBackError):
            await silent.prepare()
        await silent.abort()
        await group.commit([await healthy.prepare()])
    assert await batch.read() == [b"healthy"]


async def test_heartbeats_stop_with_the_connection(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    beats = 0
    beat = ClientConnection.beat

    def counted(self: ClientConnection) -> None:
        nonlocal beats
        beats += 1
        beat(self)

    monkeypatch.setattr(ClientConnection, "beat", counted)
    async with batch.group() as group:
        await group.open()
        async with group.member(batch.producer, part="0", lease_s=2.0) as member:
            await eventually(lambda: beats >= 3)
            await member.prepare()
            assert member._beating is not None
            with pytest.raises(asyncio.CancelledError):
                await member._beating


async def test_a_commit_waits_for_markers_and_is_repeated_while_they_are_out(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, send_one = asyncio.Event(), MarkerSender._send_one

    async def held(self: MarkerSender, group: int, question: Any) -> None:
        await let_go.wait()
        await send_one(self, group, question)

    monkeypatch.setattr(MarkerSender, "_send_one", held)
    async with batch.group() as group, batch.group(1) as following:
        await group.open()
        winner = await batch.written(group, "0", b"a", b"b")
        committing = asyncio.ensure_future(group.commit([winner]))
        while (await group.describe())["state"] != "deciding":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        opening = asyncio.ensure_future(following.open())
        again = asyncio.ensure_future(group.commit([]))
        await asyncio.sleep(0)
        assert not committing.done()
        assert not opening.done()
        assert await batch.read() == []
        let_go.set()
        await asyncio.gather(committing, again)
        assert await opening == "opened"
        assert await batch.read() == [b"a", b"b"]


def coordinated(batch: Batch) -> list[WriterRecord]:
    """The writer as each replica of its coordinator knows it."""
    replicas = [one for node in batch.nodes.cluster.nodes.values() for one in node._replicas.coordinators()]
    found = [one._machine.writers.get(batch.writer) for one in replicas]
    return [one for one in found if one is not None]


async def test_a_writer_that_was_named_for_one_batch_is_known_as_that(batch: Batch) -> None:
    async with batch.group() as group:
        await group.abort()  # nobody has opened it: there is nothing to undo
        assert await group.open(once=True) == "opened"
        await group.commit([await batch.written(group, "0", b"a")])
    await eventually(lambda: [one.once for one in coordinated(batch)] == [True] * 3)
    async with AdminClient(batch.nodes.servers) as admin:
        given = {"batch": 1, "run": "r", "once": 1}
        with pytest.raises(AdminError, match="argument 'once' must be a boolean"):
            await admin._request("transaction-group", "open", batch.writer, given, changes=True)


async def test_an_operator_sees_groups_and_aborts_one(batch: Batch) -> None:
    async with AdminClient(batch.nodes.servers) as admin, batch.group(3) as group:
        with pytest.raises(AdminError, match="no coordinator knows a writer"):
            await admin.describe_transaction_group(batch.writer)
        await group.open(query="q")
        winner = await batch.written(group, "7", b"x", b"y")
        described = await admin.describe_transaction_group(batch.writer)
        assert (described["batch"], described["run"], described["state"]) == (3, "r1", "open")
        (one,) = described["group_members"]
        assert (one["member"], one["part"], one["state"]) == (winner, "7", "prepared")
        assert sorted(place["partition"] for place in one["partitions"]) == ["0", "1"]
        (listed,) = [row for row in await admin.list_transaction_groups() if row["writer"] == batch.writer]
        assert (listed["members"], listed["prepared"]) == (1, 1)
        assert listed["oldest_member_ms"] is not None
        assert (await admin.describe_transaction(f"$member-{winner}"))["state"] == "ongoing"
        await admin.abort_transaction_group(batch.writer)
        with pytest.raises(GroupAbortedError, match="by an operator"):
            await group.commit([winner])
        with pytest.raises(AdminError, match="has no batch open"):
            await admin.abort_transaction_group(batch.writer)
        assert await admin.forget_transaction_group(batch.writer) is None, "it had committed nothing"
        for ask in (admin.forget_transaction_group, admin.describe_transaction_group):
            with pytest.raises(AdminError, match="no coordinator knows a writer"):
                await ask(batch.writer)


async def test_what_cannot_be_is_refused_before_anything_is_asked(batch: Batch) -> None:
    for wrong in ({"writer": ""}, {"writer": "$w"}, {"run": ""}, {"batch": -1}, {"batch": 1 << 63}, {"timeout_s": 0}):
        with pytest.raises(ConfigurationError):
            TransactionGroup(batch.nodes.servers, **({"writer": "w", "batch": 0, "run": "r"} | wrong))  # type: ignore[arg-type]
    async with batch.group() as group:
        for bad in ({"part": ""}, {"part": "0", "lease_s": 1.0}, {"part": "0", "lease_s": 301.0}):
            with pytest.raises(ConfigurationError):
                group.member(batch.producer, **bad)  # type: ignore[arg-type]


async def test_a_batch_of_many_members_is_committed(batch: Batch) -> None:
    """More than one page of members, and more than one of winners' markers at a time."""
    async with batch.group() as group:
        await group.open()
        winners = await asyncio.gather(*(batch.written(group, str(part), b"%d" % part) for part in range(40)))
        await group.commit(winners)
    assert len(await batch.read()) == 40


@contextlib.asynccontextmanager
async def impatient(batch: Batch) -> AsyncIterator[tuple[GroupMember, MemberTransactor]]:
    """A member that is let go when nothing is asked of it for a second."""
    async with batch.group() as group:
        await group.open()
        member = batch.producer.member(writer=batch.writer, batch=0, run="r1", part="0", lease_s=2.0, idle_s=1.0)
        async with member:
            yield member, member._transactor


async def test_a_member_of_which_nothing_is_asked_is_let_go(batch: Batch) -> None:
    async with impatient(batch) as (member, transactor):
        await member.send_and_confirm(b"in vain", partition="0")
        await eventually(lambda: transactor.ended)
        with pytest.raises(TransactionRolledBackError):
            await member.prepare()
    assert await batch.read() == []


async def test_a_member_that_waits_for_an_answer_is_kept(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    original = TransactionalSender.on_outcomes
    async with impatient(batch) as (member, transactor):
        with monkeypatch.context() as patch:
            patch.setattr(TransactionalSender, "on_outcomes", lambda *outcomes: held.append(outcomes))
            waiting = await member.send(b"answered late", partition="0")
            beats: list[None] = []
            beat = transactor.connection.beat
            patch.setattr(transactor.connection, "beat", lambda: beats.append(beat()))
            await eventually(lambda: len(beats) > 6)
        for outcomes in held:
            original(*outcomes)
        await waiting
        winner = await member.prepare()
        async with batch.group() as group:
            await group.commit([winner])
    assert await batch.read() == [b"answered late"]
