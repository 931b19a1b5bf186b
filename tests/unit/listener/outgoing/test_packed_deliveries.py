"""Packed deliveries: the events of a partition, many in each, for who has asked and can be served so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp import Described, LinkDetached, Source, symbol, ulong
from holdfast.records.packed_delivery import PackedDelivery, Run, unpack
from node.listener.outgoing.packed_link import DELIVERY_EVENTS
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.reading import fill, place, start_at
from tests.unit.listener.support.single import SingleNode

SETTLED = 1
PACKED = "holdfast:packed-deliveries"
BOUND: dict[str, Any] = {"event-streams-partition": symbol("0"), PACKED: True}

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
        for properties in (GROUP, {PACKED: True, "event-streams-consumer-group": "h"}):
            link = await attached(peer, start_at("trades", "@earliest"), properties)
            assert link.remote_properties[PACKED] is True
            assert link.remote_properties["holdfast:claim"] > 0
            await peer.grant(link, 1)
            [found] = await deliveries(peer, link, 5)
            assert found.runs[0].offset == 0


async def deliveries(peer: Peer, link: Any, events: int) -> list[PackedDelivery]:
    """Until so many events have come."""

    def found() -> list[PackedDelivery]:
        return [unpack(payload) for payload in peer.received.get(link, [])]

    await peer.until(lambda: sum(len(one.messages) for one in found()) >= events)
    return found()


async def test_events_come_many_at_a_time_with_their_places(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 20, rounds=3)
        single = await peer.receiver(start_at("trades", "@earliest"), "0", credit=100)
        await peer.until(lambda: len(peer.received.get(single, [])) == 60)
        places = [place(payload) for payload in peer.received[single]]
        link = await attached(peer, start_at("trades", f"{4:016x}"), BOUND)
        assert link.remote_properties[PACKED] is True
        await peer.grant(link, 1)
        [found] = await deliveries(peer, link, 55)
        assert link.credit == 0, "credit is for deliveries"
        told = [(run.offset + index, run.timestamp_ms) for run in found.runs for index in range(run.events)]
        assert told == [(offset, time_ms) for _, offset, time_ms in places[5:]]
        assert found.events() == [message(b"%d" % number) for number in [*range(5, 20), *range(20), *range(20)]]
        assert {run.publisher for run in found.runs} == {None}


async def test_without_credit_nothing_comes_and_each_delivery_is_bounded(node: SingleNode) -> None:
    many = 2 * DELIVERY_EVENTS + 104
    async with Peer(node.port) as peer:
        await fill(peer, many // 5, rounds=5)
        link = await attached(peer, start_at("trades", "@earliest"), BOUND)
        for count in (DELIVERY_EVENTS, 2 * DELIVERY_EVENTS, many):
            await peer.grant(link, 1)
            found = await deliveries(peer, link, count)
            assert sum(len(one.messages) for one in found) == count
        assert [len(one.messages) for one in found] == [DELIVERY_EVENTS, DELIVERY_EVENTS, 104]
        assert found[1].runs[0].offset == DELIVERY_EVENTS
        await peer.grant(link, 1)
        await fill(peer, 1)
        assert (await deliveries(peer, link, many + 1))[-1].runs[0].offset == many, "the tail goes on"


async def test_a_drain_is_answered_when_all_that_is_there_was_sent(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 10)
        link = await attached(peer, start_at("trades", "@earliest"), BOUND)
        link.drain(5)
        await peer.flush()
        await deliveries(peer, link, 10)
        await peer.until(lambda: link.credit == 0)
        assert len(peer.received[link]) == 1


async def test_bounds_cut_runs_and_end_the_link(node: SingleNode) -> None:
    wanted = {"holdfast:until": symbol(f"{8:016x}")}
    async with Peer(node.port) as peer:
        await fill(peer, 6, rounds=2)
        link = await attached(peer, start_at("trades", f"{2:016x}"), BOUND | wanted)
        await peer.grant(link, 5)
        found = await deliveries(peer, link, 5)
        runs = [Run(run.offset, 0, run.events) for one in found for run in one.runs]
        assert runs == [Run(3, 0, 3), Run(6, 0, 2)]
        assert (await peer.wait(LinkDetached, lambda event: event.link is link)).error is None


def sql(text: str) -> Source:
    return Source(address="trades", filter={"amqp:event-streams-sql-filter": Described(ulong(0x201), text)})


async def test_a_condition_on_places_leaves_no_event_out_in_between(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 4)
        link = await attached(peer, sql(f"d.event-streams-offset > '{0:016x}'"), BOUND)
        await peer.grant(link, 1)
        [found] = await deliveries(peer, link, 3)
        assert (found.runs[0].offset, found.last_offset) == (1, 3)


@pytest.mark.parametrize(
    ("source", "properties", "options"),
    [
        (start_at("trades", "@earliest"), {"event-streams-partition": symbol("0")}, {}),
        (start_at("trades", "@earliest"), {PACKED: True}, {}),
        (start_at("trades", "@earliest"), BOUND | {PACKED: 1}, {}),
        (start_at("trades", "@earliest"), BOUND, {"snd_settle_mode": 2}),
        (start_at("trades", "@earliest"), BOUND, {"max_message_size": 100_000}),
        (start_at("trades", "@earliest"), GROUP, {"snd_settle_mode": 2}),
        (replace(start_at("trades", "@earliest"), durable=2, expiry_policy="never"), BOUND, {}),
        (sql("1 = 1 OR a = 2"), BOUND, {}),
    ],
    ids=[
        *("not asked for", "agnostic", "not a boolean", "unsettled", "small messages"),
        *("a group with settlements", "a durable source", "a condition"),
    ],
)
async def test_who_cannot_be_served_so_is_sent_single_events(
    node: SingleNode, source: Source, properties: dict[str, Any], options: dict[str, Any]
) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 3)
        link = await attached(peer, source, properties, **options)
        assert PACKED not in link.remote_properties
        await peer.grant(link, 10)
        await peer.until(lambda: len(peer.received.get(link, [])) == 3)
        assert [place(payload)[1] for payload in peer.received[link]] == [0, 1, 2]
