"""Reading through a SQL filter: what passes, from where to where, and what it costs the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp import (
    Described,
    Drained,
    LinkDetached,
    Message,
    Source,
    decode_message,
    encode_message,
    symbol,
    ulong,
)
from holdfast.records.record_batch import RecordBatch
from node.listener.outgoing import outgoing_link
from node.listener.outgoing.partition_cursor import PartitionCursor
from node.listener.outgoing.single_deliveries import SCAN_EVENTS
from node.listener.outgoing.source_filters import select
from node.partition.api import After, ReadError, Unconfirmed
from tests.batches import batch_of
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.single import SingleNode


def sql(address: str, text: str, code: Any = ulong(0x201)) -> Source:
    return Source(address=address, filter={symbol("f"): Described(code, text)})


def event(number: int) -> bytes:
    return encode_message(Message(body=b"%d" % number, application_properties={"number": number, "odd": number % 2}))


async def fill(peer: Peer, count: int, address: str = "trades", partition: str | None = None, share: int = 100) -> None:
    """Events 0, 1, 2 ..., in entries of `share`."""
    sender = await peer.sender(address, partition)
    for first in range(0, count, share):
        await peer.send(sender, [event(number) for number in range(first, min(first + share, count))])
        await peer.states(sender, min(first + share, count))
        await asyncio.sleep(0.002)  # the clock must move between the entries


def numbers(peer: Peer, link: Any) -> list[int]:
    return [int(decode_message(payload).body) for payload in peer.received.get(link, [])]


async def drained(peer: Peer, link: Any, credit: int = 1000) -> list[int]:
    """All that the link has now."""
    peer.history[:] = [past for past in peer.history if not isinstance(past, Drained)]
    link.drain(credit)
    await peer.flush()
    await peer.wait(Drained, lambda done: done.link is link)
    assert link.credit == 0
    return numbers(peer, link)


async def test_only_what_matches_is_delivered_in_order_with_its_own_offset(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 500)
        link = await peer.receiver(sql("trades", "number % 50 = 7"))
        assert await drained(peer, link) == list(range(7, 500, 50))
        offsets = [
            decode_message(payload).delivery_annotations["event-streams-offset"] for payload in peer.received[link]
        ]
        assert offsets == [f"{number:016x}" for number in range(7, 500, 50)]


async def test_filters_in_force_are_echoed_as_they_came(node: SingleNode) -> None:
    source = sql("trades", "number > 5", symbol("amqp:sql-filter"))
    source.filter["mood"] = Described(symbol("example:mood"), "good")  # type: ignore[index]
    async with Peer(node.port) as peer:
        link = await peer.receiver(source)
        echoed = link.remote_source.filter
        assert {str(name): (value.descriptor, value.value) for name, value in echoed.items()} == {
            "f": ("amqp:sql-filter", "number > 5")
        }


async def test_what_matched_waits_for_credit_and_what_comes_later_is_filtered_too(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 300)
        link = await peer.receiver(sql("trades", "odd = 1"), credit=3)
        await peer.until(lambda: len(numbers(peer, link)) == 3)
        await peer.grant(link, 1)
        await peer.until(lambda: len(numbers(peer, link)) == 4)
        assert link.credit == 0
        await peer.grant(link, 1000)
        await peer.until(lambda: len(numbers(peer, link)) == 150)
        await fill(peer, 10)
        await peer.until(lambda: len(numbers(peer, link)) == 155)
        assert numbers(peer, link) == list(range(1, 300, 2)) + [1, 3, 5, 7, 9]


async def test_a_drain_ends_when_nothing_matches(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 2000, share=500)
        link = await peer.receiver(sql("trades", "number < 0"))
        assert await drained(peer, link) == []
        assert await drained(peer, link, 5) == []


async def test_places_are_a_range_with_two_ends(node: SingleNode) -> None:
    text = f"d.event-streams-offset >= '{120:016x}' AND d.event-streams-offset < '{260:016x}'"
    async with Peer(node.port) as peer:
        await fill(peer, 400)
        assert await drained(peer, await peer.receiver(sql("trades", text))) == list(range(120, 260))
        some = await peer.receiver(sql("trades", f"{text} AND number % 100 = 50"))
        assert await drained(peer, some) == [150, 250]
        either = await peer.receiver(sql("trades", f"d.event-streams-offset = '{3:016x}' OR number = 399"))
        assert await drained(peer, either) == [3, 399]
        [connection] = node.listener._connections
        cursors = [cursor for own in connection.endpoints.values() for cursor in getattr(own, "_cursors", ())]
        assert [cursor.reader is None for cursor in cursors] == [True, True, False], "what is over is not read further"


async def test_times_are_a_range_too(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 400)
        everything = await peer.receiver(sql("trades", "TRUE"))
        await drained(peer, everything)
        stamps = [
            int(decode_message(payload).delivery_annotations["event-streams-timestamp"])
            for payload in peer.received[everything]
        ]
        low, high = stamps[150], stamps[350]
        text = f"d.event-streams-timestamp >= {low} AND {high} > d.event-streams-timestamp"
        wanted = [number for number, stamp in enumerate(stamps) if low <= stamp < high]
        assert 0 < len(wanted) < 400
        assert await drained(peer, await peer.receiver(sql("trades", text))) == wanted


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("d.event-streams-offset > '@latest'", [], [0, 1, 2, 3, 4]),
        ("d.event-streams-offset >= '@latest' AND odd = 1", [], [1, 3]),
        ("d.event-streams-offset < '@latest'", [0, 1, 2, 3, 4, 5, 6, 7], []),
        ("d.event-streams-offset <= '@latest' AND odd = 1", [1, 3, 5, 7], []),
        ("d.event-streams-offset > '@latest' OR number = 7", [7], [0, 1, 2, 3, 4]),
        ("d.event-streams-offset > '@earliest' AND number = 2", [2], [2]),
        ("d.event-streams-offset = '@latest'", [], []),
    ],
)
async def test_latest_is_the_moment_of_the_attach(
    node: SingleNode, text: str, before: list[int], after: list[int]
) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 8)
        link = await peer.receiver(sql("trades", text))
        assert await drained(peer, link) == before
        await fill(peer, 5)
        assert await drained(peer, link) == before + after


async def test_an_agnostic_link_filters_each_partition_with_its_own_end(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        for partition in ("0", "1"):
            await fill(peer, 10, "wide", partition)
        link = await peer.receiver(sql("wide", "d.event-streams-offset > '@latest' AND odd = 1"))
        source = await peer.receiver(sql("wide", "d.event-streams-source-partition = '1' AND number > 7"))
        assert sorted(await drained(peer, source)) == [8, 9]
        await fill(peer, 4, "wide", "1")
        assert sorted(await drained(peer, link)) == [1, 3]


async def test_a_refused_filter_leaves_its_session_alive(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        live = await peer.receiver("trades", credit=10)
        broken = peer.engine.open_receiver(sql("trades", "number ="))
        error = await peer.refused(broken)
        assert error.condition == "amqp:invalid-field"
        assert "character 9" in (error.description or "")
        await fill(peer, 3)
        await peer.until(lambda: numbers(peer, live) == [0, 1, 2])
        assert not [past for past in peer.history if isinstance(past, LinkDetached) and past.link is live]


async def test_a_scan_leaves_the_loop_to_others(node: SingleNode) -> None:
    """Everybody else has a turn after every share that is scanned."""
    shares = 30
    async with Peer(node.port) as peer:
        await fill(peer, shares * SCAN_EVENTS, share=2000)
        link = await peer.receiver(sql("trades", "number < 0"))
        loop = asyncio.get_running_loop()
        turns = 0

        def somebody_else() -> None:
            nonlocal turns
            turns += 1
            if not any(isinstance(past, Drained) for past in peer.history):
                loop.call_soon(somebody_else)

        somebody_else()
        assert await drained(peer, link) == []
        assert turns >= shares, f"{shares} shares were scanned within {turns} turns of the loop"


async def test_a_gateway_filters_what_it_fetches(tmp_path: Path) -> None:
    async with ListenerCluster(tmp_path, redirect="never") as cluster:
        await cluster.create("far")
        leader = cluster.leader("far")
        async with Peer(cluster.ports[leader]) as producer:
            await fill(producer, 600, "far", "0")
        async with Peer(cluster.ports[cluster.other_than(leader)]) as peer:
            link = await peer.receiver(sql("far", "number % 100 = 99 AND d.event-streams-offset <= '@latest'"), "0")
            assert await drained(peer, link) == [99, 199, 299, 399, 499, 599]
            later = await peer.receiver(sql("far", "d.event-streams-offset > '@latest' AND odd = 0"), "0", credit=10)
            async with Peer(cluster.ports[leader]) as producer:
                await fill(producer, 4, "far", "0")
            await peer.until(lambda: numbers(peer, later) == [0, 2])


async def test_a_filtered_reader_goes_on_after_the_leader_came_back(node: SingleNode) -> None:
    """What was read and matched, but not sent for want of credit, is read again by the next reader."""
    async with Peer(node.port) as peer:
        await fill(peer, 600)
        link = await peer.receiver(sql("trades", "odd = 1"), credit=5)
        await peer.until(lambda: len(numbers(peer, link)) == 5)
        [replica] = node.logs["trades"].values()
        replica._end_readers(ReadError("not_leader", "for a moment", True))
        await peer.grant(link, 1000)
        await peer.until(lambda: len(numbers(peer, link)) == 300)
        assert numbers(peer, link) == list(range(1, 600, 2))


async def test_a_drain_waits_for_a_leader_as_long_as_an_election_takes(node: SingleNode) -> None:
    """Or it would be told that the log ends here, in the middle of it."""
    async with Peer(node.port) as peer:
        await fill(peer, 300)
        link = await peer.receiver(sql("trades", "odd = 1"), credit=5)
        await peer.until(lambda: len(numbers(peer, link)) == 5)
        node.elsewhere["trades", "0"] = None
        [replica] = node.logs["trades"].values()
        replica._end_readers(ReadError("not_leader", "an election", True))
        link.drain(1000)
        await peer.flush()
        await peer.sender("wide")  # whatever was to be said to the drain has been said by now
        assert not any(isinstance(past, Drained) for past in peer.history)
        node.lead_here("trades", "0")
        await peer.wait(Drained)
        assert numbers(peer, link) == list(range(1, 300, 2))


async def test_a_drain_asks_again_where_a_leader_has_just_been_succeeded(
    node: SingleNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was asked knows no end, and the reader there has brought nothing yet."""
    asked = 0

    class Succeeded:
        def __init__(self, handle: Any) -> None:
            self._handle = handle

        def __getattr__(self, name: str) -> Any:
            return getattr(self._handle, name)

        async def info(self) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise Unconfirmed("it has just lost the leadership")
            return await self._handle.info()

    handle = node.handle
    monkeypatch.setattr(node, "handle", lambda log, partition: Succeeded(handle(log, partition)))
    async with Peer(node.port) as peer:
        await fill(peer, 300)
        monkeypatch.setattr(outgoing_link.OutgoingLink, "_is_remote", lambda link, cursor: True)
        link = await peer.receiver(sql("trades", "odd = 1"))
        link.drain(1000)
        await peer.flush()
        await peer.wait(Drained)
        assert asked == 2
        assert numbers(peer, link) == list(range(1, 300, 2))


async def test_a_drain_is_answered_even_if_nobody_leads(node: SingleNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_link, "DRAIN_QUESTION_S", 0.2)
    async with Peer(node.port) as peer:
        link = await peer.receiver(sql("trades", "TRUE"))
        node.elsewhere["trades", "0"] = None
        [replica] = node.logs["trades"].values()
        replica._end_readers(ReadError("not_leader", "for good", True))
        assert await drained(peer, link) == []


# ---------------------------------------------------------------- the cursor alone


class Shelf:
    """A reader whose batches lie ready."""

    error: ReadError | None = None

    def __init__(self, *batches: RecordBatch) -> None:
        self.batches = list(batches)
        self.position = 0
        self.closed = False

    def poll(self, max_events: int, max_bytes: int, whole: bool = False) -> list[RecordBatch]:
        taken, self.batches = self.batches, []
        if taken:
            self.position = taken[-1].next_offset
        return taken

    def close(self) -> None:
        self.closed = True


def batch(base: int, count: int, time_ms: int = 5) -> RecordBatch:
    return batch_of([event(number) for number in range(base, base + count)]).placed(base, time_ms, 0, count)


def cursor_for(text: str, *batches: RecordBatch) -> PartitionCursor:
    cursor = PartitionCursor("0", select({"f": Described(ulong(0x201), text)}))
    cursor.reader = Shelf(*batches)
    return cursor


def bodies(payloads: Sequence[bytes]) -> list[int]:
    return [int(decode_message(payload).body) for payload in payloads]


def test_what_is_held_is_where_the_next_reader_begins() -> None:
    cursor = cursor_for("odd = 1", batch(0, 10), batch(10, 10))
    assert cursor.reader is not None
    assert cursor.payloads(cursor.reader.poll(100, 100)) == []
    assert bodies(cursor.release(3)) == [1, 3, 5]
    reader = cursor.reader
    cursor.drop_reader()
    assert cursor.start == After(6)
    assert not cursor.holds
    assert isinstance(reader, Shelf)
    assert reader.closed


def test_when_nothing_is_held_the_next_reader_begins_behind_what_was_scanned() -> None:
    cursor = cursor_for("number < 0", batch(0, 10))
    assert cursor.reader is not None
    cursor.payloads(cursor.reader.poll(100, 100))
    cursor.drop_reader()
    assert cursor.start == After(9)


@pytest.mark.parametrize(
    ("text", "expected", "done"),
    [
        (f"d.event-streams-offset > '{12:016x}'", list(range(13, 30)), False),
        (f"d.event-streams-offset < '{12:016x}'", list(range(12)), True),
        (f"d.event-streams-offset <= '{19:016x}'", list(range(20)), True),
        (f"d.event-streams-offset < '{31:016x}'", list(range(30)), False),
        ("d.event-streams-timestamp > 5", list(range(10, 30)), False),
        ("d.event-streams-timestamp < 7", list(range(20)), True),
        ("d.event-streams-timestamp = 6", list(range(10, 20)), True),
        (f"d.event-streams-timestamp > 5 AND d.event-streams-offset < '{11:016x}'", [10], True),
        ("FALSE", [], True),
    ],
)
def test_bounds_cut_batches_and_end_the_cursor(text: str, expected: list[int], done: bool) -> None:
    batches = [batch(0, 10, 5), batch(10, 10, 6), batch(20, 10, 7)]
    cursor = cursor_for(text)
    found: list[int] = []
    read: Callable[[RecordBatch], list[bytes]] = lambda one: cursor.payloads([one])  # noqa: E731
    for one in batches:
        if not cursor.done:
            found += bodies(read(one))
    assert (found, cursor.done) == (expected, done)


async def test_closed_links_stop_scanning(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 2000, share=1000)
        link = await peer.receiver(sql("trades", "number < 0"), credit=10)
        link.close()
        await peer.flush()
        [replica] = node.logs["trades"].values()
        await eventually(lambda: not replica._readers)
