"""Producers and each other: epochs shut older producers out, and nobody else is concerned (IS-1 to 5, 10)."""

from __future__ import annotations

import pytest

from holdfast.amqp import (
    ACCEPTED,
    LinkDetached,
)
from node.partition.idempotence import producer_state as rules
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.producing import (
    OK,
    OUT_OF_ORDER,
    STOLEN,
    attached,
    conditions,
    events,
    granted,
    refusal,
    stored,
    terms,
)
from tests.unit.listener.support.single import SingleNode


async def test_is_1_a_higher_epoch_shuts_the_former_producer_out_at_once(node: SingleNode) -> None:
    async with Peer(node.port) as old, Peer(node.port) as new:
        former = await attached(old, 7, 1)
        await old.send(former, events(7, 1, 1, "ab"))
        await old.states(former, 2)
        latter = await attached(new, 7, 2)
        error = await old.refused(former)
        assert error.condition == STOLEN
        assert "epoch 2" in (error.description or "")
        await new.send(latter, events(7, 2, 1, "xy"))
        assert set(await new.states(latter, 2)) == {ACCEPTED}
    assert stored(node) == "abxy"


async def test_what_the_former_producer_sends_nevertheless_is_refused_as_stolen(node: SingleNode) -> None:
    """A gateway hears nothing of the higher epoch: the next message tells it. The log decides, not the watch."""
    async with Peer(node.port) as old, Peer(node.port) as new:
        former = await attached(old, 7, 1)
        for connection in node.listener._connections:
            for endpoint in connection.endpoints.values():
                endpoint._end_watch()  # type: ignore[attr-defined]
        await attached(new, 7, 2)
        await old.send(former, events(7, 1, 1, "ab"))
        assert conditions(await old.states(former, 2)) == [STOLEN] * 2
        assert (await old.refused(former)).condition == STOLEN
    assert stored(node) == ""


async def test_is_2_two_links_of_one_epoch_share_a_line_of_numbers(node: SingleNode) -> None:
    async with Peer(node.port) as one, Peer(node.port) as other:
        first, second = await attached(one, 7, 1), await attached(other, 7, 1)
        for number in range(1, 7):
            peer, link = ((one, first), (other, second))[number % 2]
            await peer.send(link, events(7, 1, number, "ab"[number % 2]))
            await peer.states(link, (number + 1) // 2)
        await one.send(first, events(7, 1, 6, "x"))
        assert conditions(await one.states(first, 4))[-1] == OUT_OF_ORDER
        assert second.is_open
    assert stored(node) == "bababa"


async def test_is_3_a_lower_epoch_is_refused_at_the_attach(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await attached(peer, 7, 5)
        error = await refusal(peer, terms(7, 4))
        assert error.condition == STOLEN
        assert (await refusal(peer, terms(7, 4, 0))).condition == STOLEN
        assert granted(await attached(peer, 7)) == (7, 5, 0)


async def test_is_4_and_5_a_higher_epoch_numbers_anew_or_goes_on(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "abc"))
        await peer.states(link, 3)
        anew = await attached(peer, 7, 1)
        assert granted(anew) == (7, 1, 0)
        await peer.send(anew, events(7, 1, 1, "de"))
        await peer.states(anew, 2)
        on = await attached(peer, 7, 2, 2)
        assert granted(on) == (7, 2, 2)
        await peer.send(on, events(7, 2, 3, "f"))
        assert await peer.states(on, 1) == [ACCEPTED]
    assert stored(node) == "abcdef"


async def test_is_10_plain_senders_and_other_producers_are_not_concerned(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        first, second, plain = await attached(peer, 7), await attached(peer, 8), await peer.sender("trades", "0")
        for number in range(1, 6):
            await peer.send(first, events(7, 0, number, "a"))
            await peer.send(plain, [message(b"p")])
            await peer.send(second, events(8, 0, number, "b"))
        for link in (first, second, plain):
            assert set(await peer.states(link, 5)) == {ACCEPTED}
        await peer.send(first, events(7, 0, 99, "z"))
        await peer.refused(first)
        await peer.send(plain, [message(b"p")])
        await peer.send(second, events(8, 0, 6, "b"))
        assert (await peer.states(plain, 6))[-1] is ACCEPTED
        assert (await peer.states(second, 6))[-1] is ACCEPTED
    assert sorted(stored(node)) == sorted("apb" * 5 + "pb")


async def test_partitions_know_nothing_of_each_others_producers(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        for partition in "012":
            link = await attached(peer, 7, int(partition), log="wide", partition=partition)
            await peer.send(link, events(7, int(partition), 1, "ab"))
            assert set(await peer.states(link, 2)) == {ACCEPTED}
        error = await refusal(peer, terms(7, 0, 2), log="wide", partition="3")
        assert error.condition == "amqp:not-allowed"


async def test_a_link_that_ends_leaves_its_producer_behind_and_nothing_else(node: SingleNode) -> None:
    replica = node.logs["trades"]["0"]
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        assert len(replica._watches._by_producer) == 1
        await peer.send(link, events(7, 0, 1, "abc"))
        await peer.states(link, 3)
        link.close()
        await peer.flush()
        await peer.wait(LinkDetached, lambda event: event.link is link)
        await eventually(lambda: not replica._watches._by_producer)
        assert granted(await attached(peer, 7)) == (7, 0, 3)


async def test_a_producer_that_had_to_make_room_is_told_that_it_is_not_known(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MAX_PRODUCERS", 2)
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        await peer.send(link, events(7, 0, 1, "a"))
        await peer.states(link, 1)
        for other in (8, 9):
            rival = await attached(peer, other)
            await peer.send(rival, events(other, 0, 1, "x"))
            await peer.states(rival, 1)
        await peer.send(link, events(7, 0, 2, "b"))
        assert conditions(await peer.states(link, 2)) == [OK, "amqp:not-allowed"]
        assert (await peer.refused(link)).condition == "amqp:not-allowed"
        assert (await refusal(peer, terms(7, 0, 1))).condition == "amqp:not-allowed"
    assert stored(node) == "axx"


async def test_a_log_that_is_deleted_ends_its_producers_links(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await attached(peer, 7)
        node.delete("trades")
        assert (await peer.refused(link)).condition == "amqp:resource-deleted"
