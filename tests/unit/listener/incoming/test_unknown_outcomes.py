"""What a sender is told when nobody knows whether its message is stored: by what it said that it understands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, LinkDetached, SendException

from holdfast.amqp import ACCEPTED, RELEASED, Modified, Source
from holdfast.amqp import LinkDetached as Detached
from holdfast.records.record_batch import RecordBatch
from node.partition.api import AppendDone, Appended, Begins, Failed
from node.partition.entries.entry_queries import AskFate, Fate
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.single import SingleNode
from tests.unit.listener.support.stock import WAIT_S

MODIFIED = "amqp:modified:list"
ENTRY = (7, 3)


class Doubtful:
    """A partition whose leader is lost whenever it is given something; what its successor says is the test's."""

    partition = "0"

    def __init__(self, fates: list[Any], entry: tuple[int, int] | None = ENTRY) -> None:
        self.fates, self.entry, self.asked, self.appends = fates, entry, 0, 0

    def append(self, batch: RecordBatch, done: AppendDone, begins: Begins | None = None) -> None:
        self.appends += 1
        done(Failed("unknown", True, "lost", entry=self.entry))

    async def ask(self, question: Any) -> Any:
        assert question == AskFate(*ENTRY)
        self.asked += 1
        return self.fates.pop(0) if len(self.fates) > 1 else self.fates[0]


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[SingleNode]:
    """It does not wait long for a leader."""
    single = await SingleNode(tmp_path / "data", leader_wait_s=0.3).start()
    await single.create("trades", 1)
    yield single
    await single.stop()


def doubtful(node: SingleNode, *fates: Any, entry: tuple[int, int] | None = ENTRY) -> Doubtful:
    partition = node.remotes["trades", "0"] = Doubtful(list(fates), entry)  # type: ignore[assignment]
    node.lead_elsewhere("trades", "0", 2)
    return partition


def send_blocking(node: SingleNode) -> Any:
    connection = BlockingConnection(node.url, timeout=WAIT_S)
    sender = connection.create_sender("trades")
    try:
        return sender.send(Message(body="one")).remote_state
    finally:
        connection.close()


NOT_NOW = Failed("not_leader", True, "an election")


async def test_the_blocking_sender_is_told_what_a_new_leader_found_out(hasty: SingleNode) -> None:
    partition = doubtful(hasty, NOT_NOW, Fate(None, pending=True), Fate(True))
    assert await asyncio.to_thread(send_blocking, hasty) == Delivery.ACCEPTED
    assert (partition.appends, partition.asked) == (1, 3)


async def test_what_certainly_is_not_stored_is_released(hasty: SingleNode) -> None:
    doubtful(hasty, Fate(False))
    with pytest.raises(SendException) as refused:
        await asyncio.to_thread(send_blocking, hasty)
    assert refused.value.state == Delivery.RELEASED


@pytest.mark.parametrize("fate", [Fate(None), NOT_NOW, Failed("rejected", False, "an older node")])
async def test_what_stays_in_doubt_ends_the_link_of_who_did_not_say_that_it_understands(
    hasty: SingleNode, fate: Any
) -> None:
    doubtful(hasty, fate)
    with pytest.raises(LinkDetached, match="cannot be known"):
        await asyncio.to_thread(send_blocking, hasty)
    await eventually(lambda: hasty.listener.unanswered_bytes == 0)


async def test_without_an_entry_there_is_nobody_to_ask(hasty: SingleNode) -> None:
    partition = doubtful(hasty, Fate(True), entry=None)
    with pytest.raises(LinkDetached, match="cannot be known"):
        await asyncio.to_thread(send_blocking, hasty)
    assert partition.asked == 0


async def test_who_lists_modified_is_told_at_once(hasty: SingleNode) -> None:
    partition = doubtful(hasty, Fate(True))
    async with Peer(hasty.port) as peer:
        sender = peer.engine.open_sender("trades", source=Source(outcomes=(MODIFIED,)))
        await peer._opened(sender)
        await peer.until(lambda: sender.credit > 0)
        await peer.send(sender, [message(b"1"), message(b"2")])
        assert await peer.states(sender, 2) == [Modified(True)] * 2
    assert partition.asked == 0


async def test_the_other_messages_of_the_link_are_answered_before_it_ends(hasty: SingleNode) -> None:
    """Nothing in doubt is answered, everything else is."""
    partition = doubtful(hasty, NOT_NOW)
    async with Peer(hasty.port) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, [message(b"1")])
        await eventually(lambda: partition.asked > 0)
        hasty.lead_here("trades", "0")
        hasty.remotes["trades", "0"] = partition  # type: ignore[assignment]
        numbers = await peer.send(sender, [message(b"2")])
        await peer.wait(Detached, lambda event: event.link is sender)
        assert peer.outcomes[sender] == [(numbers[0], ACCEPTED)]


class Patient(Doubtful):
    """It keeps what it is given until the test answers."""

    def __init__(self) -> None:
        super().__init__([], None)
        self.waiting: list[AppendDone] = []

    def append(self, batch: RecordBatch, done: AppendDone, begins: Begins | None = None) -> None:
        self.waiting.append(done)


async def test_a_link_in_doubt_ends_when_the_last_of_its_other_messages_is_answered(hasty: SingleNode) -> None:
    """It is known to end long before: what is left then is in doubt only, and waits for nobody."""
    partition = hasty.remotes["trades", "0"] = Patient()  # type: ignore[assignment]
    hasty.lead_elsewhere("trades", "0", 2)
    async with Peer(hasty.port) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, [message(b"1")])
        await eventually(lambda: len(partition.waiting) == 1)
        certain = await peer.send(sender, [message(b"2")])
        await eventually(lambda: len(partition.waiting) == 2)
        lost, stored = partition.waiting
        lost(Failed("unknown", True, "lost"))
        (link,) = (one for c in hasty.listener._connections for one in c.endpoints.values())
        await eventually(lambda: link._doubtful_count == 1)
        assert sender.alive
        stored(Appended(0, 0))
        ended = await peer.wait(Detached, lambda event: event.link is sender)
        assert "cannot be known" in str(ended.error)
        assert peer.outcomes[sender] == [(certain[0], ACCEPTED)]
    await eventually(lambda: hasty.listener.unanswered_bytes == 0)


async def test_who_settles_everything_beforehand_is_told_nothing(hasty: SingleNode) -> None:
    partition = doubtful(hasty, Fate(None))
    async with Peer(hasty.port) as peer:
        sender = peer.engine.open_sender("trades", snd_settle_mode=1)
        await peer._opened(sender)
        await peer.until(lambda: sender.credit > 0)
        await peer.send(sender, [message(b"1")])
        await eventually(lambda: partition.appends == 1)
        hasty.lead_here("trades", "0")
        await peer.send(sender, [message(b"2")])
        await eventually(lambda: hasty.logs["trades"]["0"].next_offset == 1)
        assert sender.alive
        assert partition.asked == 0


async def test_a_connection_that_ends_in_doubt_leaves_nothing_behind(hasty: SingleNode) -> None:
    partition = doubtful(hasty, NOT_NOW)
    async with Peer(hasty.port) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, [message(b"1")])
        await eventually(lambda: partition.asked > 0)
    await eventually(lambda: hasty.listener.unanswered_bytes == 0)


async def test_through_a_gateway_whose_leader_dies_nothing_is_lost_without_a_word(tmp_path: Path) -> None:
    """What a peer without the outcome was told is in the log, what was in doubt ended its link."""
    async with ListenerCluster(tmp_path) as cluster:
        await cluster.create("trades")
        leader = await cluster.settled_leader("trades")
        gateway = cluster.other_than(leader)
        async with Peer(cluster.ports[gateway]) as peer:
            sender = await peer.sender("trades")
            sent = 0
            while sent < 200:
                sent += len(await peer.send(sender, [message(b"%d" % sent)]))
            await cluster.lose(leader)
            await peer.until(
                lambda: (
                    len(peer.outcomes.get(sender, [])) == sent
                    or any(isinstance(event, Detached) for event in peer.history)
                )
            )
            told = dict(peer.outcomes.get(sender, []))
        assert set(told.values()) <= {ACCEPTED, RELEASED}
        await cluster.settled_leader("trades")
        batches = cluster.broker(cluster.leader("trades")).handle("trades", "0").read(0, 1 << 20)
        found = {record for batch in batches for record in batch.messages()}
        assert {message(b"%d" % number) for number, state in told.items() if state is ACCEPTED} <= found
        assert not {message(b"%d" % number) for number, state in told.items() if state is RELEASED} & found
