"""Consumer groups over the wire, on one node: who may attach, who is closed, what is echoed."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import LinkDetached, SenderLink, Source, ulong
from node.partition.consumer_groups.group_queries import Revoke
from node.partition.consumer_groups.group_state import (
    Commit,
    Done,
    End,
    EndClaim,
)
from tests.unit.listener.support.consuming import (
    INVALID,
    LOCKED,
    STOLEN,
    ask,
    attached,
    epoch_of,
    offsets,
    refusal,
    terms,
)
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.reading import fill, start_at
from tests.unit.listener.support.single import SingleNode


def row(node: SingleNode, key: str = "g") -> Any:
    return node.logs["trades"]["0"]._machine.ownership.get(key)


async def commit(node: SingleNode, position: int, claim: int = 0, key: str = "g") -> Any:
    return await node.logs["trades"]["0"].ask(Commit(key, claim, position))


async def test_the_effective_partition_group_and_epoch_are_echoed(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, terms(epoch=7))
        told = link.remote_properties
        assert str(told["event-streams-partition"]) == "0"
        assert told["event-streams-consumer-group"] == "g"
        assert (told["event-streams-epoch"], type(told["event-streams-epoch"])) == (7, int)  # a long decodes as int
        assert told["holdfast:claim"] == row(node).claim
        assert epoch_of(await attached(peer, terms("other"))) == 0


async def test_one_receiver_is_active_for_a_partition_and_a_group(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as first, Peer(node.port, container="b") as second:
        await fill(first, 10)
        owner = await attached(first, terms(epoch=3), credit=100)
        assert await offsets(first, owner, 10) == list(range(10))
        for epoch in (None, 0, 2, 3, ulong(3)):
            error = await refusal(second, terms(epoch=epoch))
            assert error.condition == LOCKED
            assert "epoch" in (error.description or "")
        assert epoch_of(await attached(second, terms("other"))) == 0  # groups are independent
        sender = await second.sender("trades")
        await second.send(sender, [b"\x00Su\xa0\x01x"])
        assert await offsets(first, owner, 11) == list(range(11))
        assert owner.is_open


async def test_a_greater_epoch_takes_over_and_the_old_link_hears_which(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as first, Peer(node.port, container="b") as second:
        await fill(first, 10)
        old = await attached(first, terms(epoch=3), credit=5)
        assert await offsets(first, old, 5) == [0, 1, 2, 3, 4]
        new = await attached(second, terms(epoch=4), credit=100)
        assert epoch_of(new) == 4
        error = await first.refused(old)
        assert error.condition == STOLEN
        assert "epoch 4" in (error.description or "")
        assert await offsets(second, new, 10) == list(range(10))
        assert (await refusal(first, terms(epoch=4))).condition == LOCKED
        assert epoch_of(await attached(first, terms(epoch=5))) == 5


async def test_a_link_that_its_receiver_closes_resets_the_counter(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, terms(epoch=9))
        link.close()
        await peer.flush()
        await eventually(lambda: row(node) is None)
        assert epoch_of(await attached(peer, terms(epoch=1))) == 1


@pytest.mark.parametrize("how", ["detach", "end", "close", "abort"])
async def test_any_other_end_keeps_the_counter_and_frees_the_partition(node: SingleNode, how: str) -> None:
    async with Peer(node.port, container="a") as first, Peer(node.port, container="b") as second:
        link = await attached(first, terms(epoch=9))
        if how == "detach":
            link.detach()
        elif how == "end":
            link.session.close()
        elif how == "close":
            first.engine.close()
        else:
            assert first._writer is not None
            first._writer.transport.abort()
        await first.flush()
        await eventually(lambda: not row(node).active)
        assert (await refusal(second, terms(epoch=8))).condition == LOCKED
        assert epoch_of(await attached(second, terms())) == 9


async def test_the_same_link_goes_on_when_its_socket_died_unseen(node: SingleNode) -> None:
    """Its leader sees no reader; nobody else is let in meanwhile."""
    async with Peer(node.port, container="a") as first, Peer(node.port, container="b") as second:
        await attached(first, terms(epoch=2), name="mine")
        replica = node.logs["trades"]["0"]
        replica.owning.not_leading()  # as a new leader finds itself: owners it has not heard of
        assert (await refusal(second, terms(epoch=2), name="mine")).condition == LOCKED
        async with Peer(node.port, container="a") as again:
            link = await attached(again, terms(epoch=2), name="mine")
            assert epoch_of(link) == 2
            assert (await refusal(second, terms(epoch=2), name="mine")).condition == LOCKED


@pytest.mark.parametrize(
    "properties",
    [
        terms(group=5),
        terms(group=""),
        terms(group="\x00terminus"),
        terms(group="g" * 600),
        terms(epoch=-1),
        terms(epoch="1"),
        terms(epoch=True),
        terms(epoch=ulong(2**63)),
        terms(group=None, epoch=1),
        terms(**{"holdfast:resume": "yes"}),
    ],
)
async def test_malformed_properties_are_refused_and_the_session_lives(
    node: SingleNode, properties: dict[str, Any]
) -> None:
    async with Peer(node.port) as peer:
        assert (await refusal(peer, properties)).condition == INVALID
        assert epoch_of(await attached(peer, terms())) == 0


async def test_a_sender_in_a_groups_name_is_only_a_sender(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link: SenderLink = peer.engine.open_sender("trades", properties=terms())
        await peer._opened(link)
        assert row(node) is None


async def test_without_a_filter_a_member_begins_at_the_committed_position_or_at_the_end(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 10)
        assert await commit(node, 6) == Done(6)
        link = await attached(peer, terms(), Source(address="trades"), credit=100)
        assert str(link.remote_properties["holdfast:position"]) == f"{5:016x}"
        assert await offsets(peer, link, 4) == [6, 7, 8, 9]
        fresh = await attached(peer, terms("fresh"), Source(address="trades"), credit=100)
        assert "holdfast:position" not in fresh.remote_properties
        await fill(peer, 1)
        assert await offsets(peer, fresh, 1) == [10]


@pytest.mark.parametrize(
    ("after", "resume", "first"),
    [("@earliest", None, 0), ("@earliest", True, 6), (f"{7:016x}", True, 8), (f"{2:016x}", True, 6), (None, False, 10)],
)
async def test_a_filter_is_obeyed_and_resuming_is_asked_for(
    node: SingleNode, after: str | None, resume: bool | None, first: int
) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 10)
        await commit(node, 6)
        source = Source(address="trades") if after is None else start_at("trades", after)
        link = await attached(peer, terms(**{"holdfast:resume": resume}), source, credit=100)
        await fill(peer, 1)
        assert await offsets(peer, link, 11 - first) == list(range(first, 11))


async def test_a_claim_is_let_go_when_the_peer_left_before_it_was_answered(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as first:
        ask(first, terms(epoch=2))
        await first.flush()
        assert first._writer is not None
        first._writer.transport.abort()
    await eventually(lambda: row(node) is None or not row(node).active)
    async with Peer(node.port, container="b") as second:
        assert epoch_of(await attached(second, terms(epoch=3))) == 3


async def test_a_member_that_is_asked_to_let_go_is_closed_gracefully_once_it_has_settled(node: SingleNode) -> None:
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 4)
        link = await attached(peer, terms(), credit=100)
        await offsets(peer, link, 4)
        await node.logs["trades"]["0"].ask(Revoke("g", row(node).claim))
        event = await peer.wait(LinkDetached, lambda event: event.link is link)
        assert (event.error, event.closed) == (None, True)
        await eventually(lambda: not row(node).active if row(node) else True)


async def test_a_deleted_log_ends_its_members(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, terms())
        node.delete("trades")
        assert (await peer.refused(link)).condition == "amqp:resource-deleted"


async def test_an_owner_that_was_out_of_touch_too_long_is_told_to_attach_again(node: SingleNode) -> None:
    """Nobody else has the partition: it gets it back, and hears that nobody had it meanwhile."""
    async with Peer(node.port, container="a") as peer:
        await fill(peer, 4)
        link = await attached(peer, terms(epoch=3), name="mine", credit=100)
        await offsets(peer, link, 4)
        replica = node.logs["trades"]["0"]
        await replica.ask(EndClaim("g", row(node).claim, End.LOST))
        assert (await peer.refused(link)).condition == "amqp:link:detach-forced"
        again = await attached(peer, terms(epoch=3), name="mine", credit=100)
        assert again.remote_properties["holdfast:continued"] is True
        assert epoch_of(again) == 3
