"""Record batches on a receiving link: the events of a partition as they are stored, for a peer that takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp import Described, LinkDetached, Source, symbol, uint, ulong
from holdfast.records.batch_transfer import batches_in
from holdfast.records.record_batch import RecordBatch
from node.listener.outgoing.batch_deliveries import DELIVERY_EVENTS
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.reading import fill, place, start_at
from tests.unit.listener.support.single import SingleNode

SETTLED = 1
BATCHES = "holdfast:record-batches"
BOUND: dict[str, Any] = {"event-streams-partition": symbol("0"), BATCHES: uint(1)}

GROUP = BOUND | {"event-streams-consumer-group": "g"}


async def attached(peer: Peer, source: Source, properties: dict[str, Any], **options: Any) -> Any:
    options = {"snd_settle_mode": SETTLED, **options}
    link = peer.engine.open_receiver(source, properties=properties, **options)
    await peer.flush()
    await peer._opened(link)
    return link


async def test_a_member_of_a_group_is_told_its_claim_and_sent_many_at_a_time(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 5)
        for properties in (GROUP, {BATCHES: uint(1), "event-streams-consumer-group": "h"}):
            link = await attached(peer, start_at("trades", "@earliest"), properties)
            assert link.remote_properties[BATCHES] == 1
            assert link.remote_properties["holdfast:claim"] > 0
            await peer.grant(link, 1)
            [found] = await deliveries(peer, link, 5)
            assert found[0].offset == 0


async def deliveries(peer: Peer, link: Any, events: int) -> list[list[RecordBatch]]:
    """The batches of each, when so many events have come."""

    def found() -> list[list[RecordBatch]]:
        return [list(batches_in(payload)) for payload in peer.received.get(link, [])]

    await peer.until(lambda: sum(map(count, found())) >= events)
    return found()


def count(batches: list[RecordBatch]) -> int:
    return sum(map(len, batches))


async def test_events_come_many_at_a_time_with_their_places(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 20, rounds=3)
        single = await peer.receiver(start_at("trades", "@earliest"), "0", credit=100)
        await peer.until(lambda: len(peer.received.get(single, [])) == 60)
        places = [place(payload) for payload in peer.received[single]]
        link = await attached(peer, start_at("trades", f"{4:016x}"), BOUND)
        assert link.remote_properties[BATCHES] == 1
        await peer.grant(link, 1)
        [found] = await deliveries(peer, link, 55)
        assert link.credit == 0, "credit is for deliveries"
        told = [(offset, one.head.time_ms) for one in found for offset in range(one.offset, one.next_offset)]
        assert told == [(offset, time_ms) for _, offset, time_ms in places[5:]]
        events = [event for one in found for event in one.messages()]
        assert events == [message(b"%d" % number) for number in [*range(5, 20), *range(20), *range(20)]]
        assert {one.publisher for one in found} == {None}


async def test_without_credit_nothing_comes_and_each_delivery_is_bounded(node: SingleNode) -> None:
    many = 2 * DELIVERY_EVENTS + 108
    async with Peer(node.port) as peer:
        await fill(peer, many // 5, rounds=5)
        link = await attached(peer, start_at("trades", "@earliest"), BOUND)
        found: list[list[RecordBatch]] = []
        while sum(map(count, found)) < many:
            await peer.grant(link, 1)
            found = await deliveries(peer, link, sum(map(count, found)) + 1)
            assert link.credit == 0
        assert max(map(count, found)) <= DELIVERY_EVENTS
        assert len(found) <= 5, "as many batches as there is room for"
        assert [one.offset for batches in found for one in batches][:1] == [0]
        await peer.grant(link, 1)
        await fill(peer, 1)
        assert (await deliveries(peer, link, many + 1))[-1][0].offset == many, "the tail goes on"


async def test_a_batch_that_is_too_large_for_the_peer_comes_in_pieces(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 2000)
        link = await attached(peer, start_at("trades", f"{2:016x}"), BOUND, max_message_size=1000)
        await peer.grant(link, 2)
        await peer.until(lambda: link.credit == 0)
        await peer.grant(link, 1000)
        found = await deliveries(peer, link, 1997)
        assert max(map(len, peer.received[link])) <= 1000
        sizes = list(map(len, peer.received[link]))
        assert sum(size > 900 for size in sizes) > len(sizes) / 2, "as large as they may be"
        events = [event for batches in found for one in batches for event in one.messages()]
        assert events == [message(b"%d" % number) for number in range(3, 2000)]
        places = [offset for batches in found for one in batches for offset in range(one.offset, one.next_offset)]
        assert places == list(range(3, 2000))


async def test_an_event_that_is_too_large_for_the_peer_ends_the_link(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        sender = await peer.sender("trades")
        await peer.send(sender, [message(b"small"), message(bytes(2000))])
        await peer.states(sender, 2)
        link = await attached(peer, start_at("trades", "@earliest"), BOUND, max_message_size=1000)
        await peer.grant(link, 9)
        ended = await peer.wait(LinkDetached, lambda event: event.link is link)
        assert ended.error is not None
        assert ended.error.condition == "amqp:link:message-size-exceeded"
        assert sum(map(count, await deliveries(peer, link, 1))) == 1, "what lies in front of it has come"


async def test_a_drain_is_answered_when_all_that_is_there_was_sent(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 10)
        link = await attached(peer, start_at("trades", "@earliest"), BOUND)
        link.drain(5)
        await peer.flush()
        await deliveries(peer, link, 10)
        await peer.until(lambda: link.credit == 0)
        assert len(peer.received[link]) == 1


async def test_bounds_stand_in_the_heads_and_end_the_link(node: SingleNode) -> None:
    wanted = {"holdfast:until": symbol(f"{8:016x}")}
    async with Peer(node.port) as peer:
        await fill(peer, 6, rounds=2)
        link = await attached(peer, start_at("trades", f"{2:016x}"), BOUND | wanted)
        await peer.grant(link, 5)
        found = await deliveries(peer, link, 5)
        assert [(one.offset, len(one)) for batches in found for one in batches] == [(3, 3), (6, 2)]
        assert (await peer.wait(LinkDetached, lambda event: event.link is link)).error is None


def sql(text: str) -> Source:
    return Source(address="trades", filter={"amqp:event-streams-sql-filter": Described(ulong(0x201), text)})


async def test_a_condition_on_places_leaves_no_event_out_in_between(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 4)
        link = await attached(peer, sql(f"d.event-streams-offset > '{0:016x}'"), BOUND)
        await peer.grant(link, 1)
        [found] = await deliveries(peer, link, 3)
        assert (found[0].offset, found[-1].next_offset) == (1, 4)


@pytest.mark.parametrize(
    ("source", "properties", "options"),
    [
        (start_at("trades", "@earliest"), {"event-streams-partition": symbol("0")}, {}),
        (start_at("trades", "@earliest"), {BATCHES: uint(1)}, {}),
        (start_at("trades", "@earliest"), BOUND | {BATCHES: True}, {}),
        (start_at("trades", "@earliest"), BOUND | {BATCHES: uint(0)}, {}),
        (start_at("trades", "@earliest"), BOUND, {"snd_settle_mode": 2}),
        (start_at("trades", "@earliest"), GROUP, {"snd_settle_mode": 2}),
        (replace(start_at("trades", "@earliest"), durable=2, expiry_policy="never"), BOUND, {}),
        (sql("1 = 1 OR a = 2"), BOUND, {}),
    ],
    ids=[
        *("not asked for", "agnostic", "not a number", "no version", "unsettled"),
        *("a group with settlements", "a durable source", "a condition"),
    ],
)
async def test_who_cannot_be_served_so_is_sent_single_events(
    node: SingleNode, source: Source, properties: dict[str, Any], options: dict[str, Any]
) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 3)
        link = await attached(peer, source, properties, **options)
        assert BATCHES not in link.remote_properties
        await peer.grant(link, 10)
        await peer.until(lambda: len(peer.received.get(link, [])) == 3)
        assert [place(payload)[1] for payload in peer.received[link]] == [0, 1, 2]
