"""Readers see every committed event once and in order: at the tail, from the start, and when both move."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.records.record_batch import Damaged, OpenBatch
from node.partition.api import After, AfterTime, Earliest, Latest, PartitionDescription, ReadError, Start, Unconfirmed
from node.partition.limits import PartitionLimits
from node.partition.raft_entry import batches_in
from node.storage import StorageDamaged
from tests.batches import batch_of
from tests.unit.partition.support import START_MS, PartitionNode, flat, read_all

EVERYTHING = 1 << 40


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    with PartitionNode(tmp_path) as node:
        yield node


class Wakes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_a_reader_at_the_tail_gets_what_comes_after_it(node: PartitionNode) -> None:
    node.append(b"before")
    wakes = Wakes()
    reader = node.replica.open_reader(Latest(), wakes)
    assert reader.poll(10, EVERYTHING) == []
    node.append(b"after")
    assert wakes.count == 1
    assert flat(reader.poll(10, EVERYTHING)) == [(1, b"after")]
    assert reader.position == 2


def test_wake_comes_once_for_each_empty_poll_and_not_without_one(node: PartitionNode) -> None:
    wakes = Wakes()
    reader = node.replica.open_reader(Earliest(), wakes)
    node.append(b"a")
    assert wakes.count == 0
    assert flat(reader.poll(10, EVERYTHING)) == [(0, b"a")]
    assert reader.poll(10, EVERYTHING) == []
    node.append(b"b")
    node.append(b"c")
    assert wakes.count == 1
    reader.close()
    node.append(b"d")
    assert wakes.count == 1
    assert reader.poll(10, EVERYTHING) == []


def test_readers_at_the_tail_share_what_was_decoded(node: PartitionNode) -> None:
    first, second = (node.replica.open_reader(Latest(), Wakes()) for _ in range(2))
    node.append(b"a", b"b")
    one, two = first.poll(10, EVERYTHING), second.poll(10, EVERYTHING)
    assert one[0] is two[0]
    first.close()
    second.close()
    assert node.replica.cache.held_bytes == 0


def test_the_shared_cache_is_bounded_and_slow_readers_lose_nothing(tmp_path: Path) -> None:
    with PartitionNode(tmp_path, limits=PartitionLimits(cache_bytes=5_000)) as node:
        slow = node.replica.open_reader(Earliest(), Wakes())
        for number in range(40):
            node.append(b"%04d" % number * 250)
            assert node.replica.cache.held_bytes <= 5_000
        assert [record[:4] for _, record in flat(slow.poll(1000, EVERYTHING))] == [b"%04d" % n for n in range(40)]
        assert node.replica.cache.held_bytes <= 5_000


def test_events_without_a_byte_are_not_free_in_the_shared_cache(tmp_path: Path) -> None:
    empty = OpenBatch()
    empty.extend([b""] * 10, bodies=True)
    nothing = empty.seal()
    with PartitionNode(tmp_path, limits=PartitionLimits(cache_bytes=5_000)) as node:
        reader, cache = node.replica.open_reader(Latest(), Wakes()), node.replica.cache
        for _ in range(40):
            node.replica.append(nothing, lambda _: None)
            node.turns()
        assert node.replica.next_offset == 400
        assert sum(cache.get(first) is not None for first in range(0, 400, 10)) < 10
        assert [record for _, record in flat(reader.poll(1000, EVERYTHING))] == nothing.messages() * 40


@pytest.mark.parametrize("seed", range(5))
def test_any_limits_cut_the_same_stream(node: PartitionNode, seed: int) -> None:
    chance = random.Random(seed)
    written: list[bytes] = []
    for _ in range(30):
        records = [chance.randbytes(chance.randrange(300)) for _ in range(chance.randrange(1, 20))]
        written += records
        node.append(*records)
    reader = node.replica.open_reader(Earliest(), Wakes())
    found: list[tuple[int, bytes]] = []
    while True:
        events, size = chance.randrange(1, 30), chance.randrange(1, 2000)
        batches = reader.poll(events, size)
        if not batches:
            break
        part = flat(batches)
        assert len(part) <= events
        assert sum(len(record) for _, record in part) <= size or len(part) == 1
        found += part
    assert found == list(enumerate(written)), f"seed {seed}"


def test_no_credit_means_no_events(node: PartitionNode) -> None:
    node.append(b"a")
    reader = node.replica.open_reader(Earliest(), Wakes())
    assert reader.poll(0, EVERYTHING) == []
    assert reader.poll(1, 0) == []
    assert reader.position == 0


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (Earliest(), 0),
        (Latest(), 30),
        (After(-1), 0),
        (After(4), 5),
        (After(29), 30),
        (After(100), 101),
        (After(2**64 - 1), 2**64),
        (AfterTime(0), 0),
        (AfterTime(START_MS - 1), 0),
        (AfterTime(START_MS), 3),
        (AfterTime(START_MS + 45), 15),
        (AfterTime(START_MS + 50), 18),
        (AfterTime(START_MS + 90), 30),
        (AfterTime(START_MS + 10**9), 30),
        (AfterTime(START_MS + 45, 7), 15),
        (AfterTime(START_MS + 45, 20), 21),
        (AfterTime(START_MS + 45, 99), 100),
    ],
)
def test_where_reading_starts(node: PartitionNode, start: Start, first: int) -> None:
    """Ten batches of three events, ten milliseconds apart; greater than, never greater or equal."""
    for _ in range(10):
        node.append(b"x", b"y", b"z")
        node.now_ms += 10
    reader = node.replica.open_reader(start, Wakes())
    assert reader.position == first
    offsets = [offset for offset, _ in flat(reader.poll(100, EVERYTHING))]
    assert offsets == list(range(first, 30))


def test_a_position_beyond_the_end_waits_for_its_offset(node: PartitionNode) -> None:
    reader = node.replica.open_reader(After(2), Wakes())
    node.append(b"0", b"1", b"2")
    assert reader.poll(10, EVERYTHING) == []
    node.append(b"3", b"4")
    assert flat(reader.poll(10, EVERYTHING)) == [(3, b"3"), (4, b"4")]


def test_a_time_in_the_future_passes_over_what_is_older(node: PartitionNode) -> None:
    reader = node.replica.open_reader(AfterTime(START_MS + 100), Wakes())
    node.append(b"too old")
    assert reader.poll(10, EVERYTHING) == []
    node.now_ms += 100
    node.append(b"just not newer")
    node.now_ms += 1
    node.append(b"newer")
    assert flat(reader.poll(10, EVERYTHING)) == [(2, b"newer")]


def test_everything_is_read_back_after_a_restart(tmp_path: Path) -> None:
    with PartitionNode(tmp_path) as node:
        for number in range(200):
            node.append(b"%d" % number, b"x" * 5000)
        node.crash()
        assert [record for _, record in read_all(node.replica)][::2] == [b"%d" % number for number in range(200)]
        node.reopen()
        reader = node.replica.open_reader(After(301), Wakes())
        node.append(b"new")
        offsets = [offset for offset, _ in flat(reader.poll(1000, EVERYTHING))]
        assert offsets == list(range(302, 401))


def test_a_read_inside_a_turn_sees_what_was_just_applied(node: PartitionNode) -> None:
    """The answer of an append comes before the turn's batch is written; a read from there must not find a hole."""
    found: list[list[tuple[int, bytes]]] = []
    node.append(b"a")
    node.replica.append(batch_of([b"b"]), lambda _: found.append(read_all(node.replica)))
    node.turns()
    assert found == [[(0, b"a"), (1, b"b")]]


def test_readers_end_when_leadership_does_and_say_where_to_go(node: PartitionNode) -> None:
    wakes = Wakes()
    reader = node.replica.open_reader(Earliest(), wakes)
    node.append(b"a")
    node.step_down()
    assert isinstance(reader.error, ReadError)
    assert (reader.error.kind, reader.error.retriable) == ("not_leader", True)
    assert wakes.count == 1
    assert reader.poll(10, EVERYTHING) == []
    late = node.replica.open_reader(Earliest(), wakes)
    assert late.error is not None
    assert late.error.kind == "not_leader"


def test_readers_end_when_the_log_is_deleted(node: PartitionNode) -> None:
    reader = node.replica.open_reader(Earliest(), Wakes())
    node.replica.close(deleted=True)
    assert reader.error is not None
    assert (reader.error.kind, reader.error.retriable) == ("deleted", False)


def test_a_damaged_entry_ends_the_reader_and_is_never_passed_over(
    node: PartitionNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        node.append(b"%d" % number)
    told: list[Exception] = []
    node.replica.on_damaged = lambda _, error: told.append(error)
    entry = node.group.entry

    def third_is_spoiled(index: int) -> tuple[int, bytes]:
        term, data = entry(index)
        return term, data[:-1] + b"?" if data.endswith(b"2") else data

    monkeypatch.setattr(node.group, "entry", third_is_spoiled)
    reader = node.replica.open_reader(Earliest(), Wakes())
    assert flat(reader.poll(10, EVERYTHING)) == [(0, b"0"), (1, b"1")]
    assert reader.error is not None
    assert reader.error.kind == "damaged"
    assert reader.poll(10, EVERYTHING) == []
    assert isinstance(told[0], Damaged)
    with pytest.raises(Damaged, match="event 2"):
        node.replica.read(2, 100)


def test_damage_in_the_store_is_told_to_the_node(node: PartitionNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.append(b"a")
    told: list[Exception] = []
    node.replica.on_damaged = lambda _, error: told.append(error)

    def fails(index: int) -> tuple[int, bytes]:
        raise StorageDamaged("db", "block checksum mismatch")

    monkeypatch.setattr(node.group, "entry", fails)
    with pytest.raises(Damaged, match="block checksum"):
        node.replica.read(0, 100)
    assert isinstance(told[0], StorageDamaged)


async def info_of(node: PartitionNode) -> PartitionDescription:
    """Confirmed by a majority, here of one, in the next turn."""
    asking = asyncio.ensure_future(node.replica.info())
    await asyncio.sleep(0)
    assert not asking.done()
    node.turns()
    return await asking


async def test_info_that_nobody_confirms_is_not_told(node: PartitionNode) -> None:
    asking = asyncio.ensure_future(node.replica.info())
    await asyncio.sleep(0)
    node.step_down()
    with pytest.raises(Unconfirmed, match="ask again"):
        await asking


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_replica_that_is_closed_while_it_leads_tells_no_info(node: PartitionNode, deleted: bool) -> None:
    """Its group is closed after it, and asks nobody any more."""
    node.append(b"a")
    node.replica.close(deleted=deleted)
    assert node.group.is_leader
    with pytest.raises(Unconfirmed, match="trades-0"):
        await node.replica.info()


async def test_info_counts_what_is_there(node: PartitionNode) -> None:
    empty = await info_of(node)
    assert empty == PartitionDescription("trades-0", None, None, 0, 0, 0, 1, (1,), None)
    node.append(b"a", b"b")
    info = await info_of(node)
    assert (info.earliest_offset, info.latest_offset, info.next_offset, info.events) == (0, 1, 2, 2)
    assert info.bytes == sum(batch.size for batch in batches_in(node.group.entry(node.group.last_index)[1]))
    assert info.last_timestamp_ms == START_MS


def test_replicas_with_the_same_entries_have_the_same_digest(tmp_path: Path) -> None:
    with PartitionNode(tmp_path / "a") as one, PartitionNode(tmp_path / "b") as two:
        for node in (one, two):
            node.append(b"a")
        assert one.replica.digest() == two.replica.digest()
        one.append(b"b")
        assert one.replica.digest() != two.replica.digest()
