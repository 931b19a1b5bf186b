"""A partition whose log is compressed: read, dumped and compared with earlier events as one that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.raft import Committed
from holdfast.records.codec import Codec
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES
from holdfast.records.record_batch import Damaged
from node.admin.entry_dump import _row
from node.partition.api import Appended, Earliest, Latest, ProducerRequest
from node.partition.entries import entry_dump
from node.partition.entries.entry_queries import DumpEntries, EntryList, EntryRow
from node.partition.limits import PartitionLimits
from node.partition.partition_commands import encode_transaction_command
from node.partition.transactions.transaction_commands import Begin
from tests.batches import entry_of, numbered
from tests.unit.partition.compression.test_compressed_batch import forged
from tests.unit.partition.support import Answers, PartitionNode, flat, read_all
from tests.unit.partition.transactions.driving import marker

P = 1 << 40
EVERYTHING = 1 << 40
BOTH = [Codec.GZIP, Codec.ZSTD]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    with PartitionNode(tmp_path) as node:
        yield node


def text(number: int) -> bytes:
    return b"event %04d " % number * 100


def propose(node: PartitionNode, entry: bytes) -> None:
    done: list[object] = []
    node.group.propose(entry, done.append)
    node.turns()
    assert isinstance(done[0], Committed)


def dumped(node: PartitionNode) -> list[EntryRow]:
    return [one for page in pages(node) for one in page.entries if one.count]


def pages(node: PartitionNode) -> list[EntryList]:
    found: list[EntryList] = []
    while not found or found[-1].entries[-1].index < found[-1].last_index:
        after = found[-1].entries[-1].index if found else 0
        answer = asyncio.run(node.replica.ask(DumpEntries(after, 100)))
        assert isinstance(answer, EntryList)
        assert answer.entries
        found.append(answer)
    return found


def codecs(node: PartitionNode) -> list[str]:
    return [_row(one)["compression"] for one in dumped(node)]


def test_a_setting_is_for_new_entries_and_a_mixed_log_reads_as_one(node: PartitionNode) -> None:
    wanted: list[bytes] = []
    for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.NONE, Codec.ZSTD):
        node.replica.compress(codec)
        records = [text(len(wanted) + place) for place in range(5)]
        node.append(*records)
        wanted += records
    assert codecs(node) == ["none", "gzip", "zstd", "none", "zstd"]
    assert read_all(node.replica) == list(enumerate(wanted))
    assert read_all(node.replica, 7) == list(enumerate(wanted))[7:]
    node.crash()
    assert read_all(node.replica) == list(enumerate(wanted))
    node.append(text(1))
    assert codecs(node)[-1] == "none", "the setting is the log's, and nobody has told it to this replica yet"


def test_what_is_stored_counts_for_retention(node: PartitionNode) -> None:
    node.append(text(1))
    plain = node.replica.info_now().bytes
    node.replica.compress(Codec.ZSTD)
    node.append(text(2))
    info = node.replica.info_now()
    assert info.events == 2
    assert info.bytes < plain * 1.5
    assert info.bytes == sum(one.size for one in dumped(node))


def test_a_log_without_the_setting_writes_the_same_bytes_as_ever(node: PartitionNode) -> None:
    node.append(text(1), text(2))
    (batch,) = dumped(node)
    assert node.group.entry(batch.index)[1] == entry_of([text(1), text(2)], node.now_ms)


def test_tail_readers_get_records_as_they_came(node: PartitionNode) -> None:
    node.replica.compress(Codec.ZSTD)
    tail = node.replica.open_reader(Latest(), lambda: None)
    node.append(text(1), text(2))
    assert flat(tail.poll(10, EVERYTHING)) == [(0, text(1)), (1, text(2))]


def test_the_cache_is_bounded_by_what_is_in_memory_not_on_disk(tmp_path: Path) -> None:
    limit = 50_000
    with PartitionNode(tmp_path, limits=PartitionLimits(cache_bytes=limit)) as node:
        node.replica.compress(Codec.ZSTD)
        for _ in range(20):
            node.append(bytes(10_000))
        reader = node.replica.open_reader(Earliest(), lambda: None)
        while reader.poll(1, EVERYTHING):
            held = list(node.replica.cache._batches.values())
            assert sum(len(record) for batch, _ in held for record in batch.messages()) <= limit
        assert node.replica.cache.held_bytes > 0


@pytest.mark.parametrize("codec", BOTH)
def test_a_producers_events_that_come_again_are_recognised_whatever_they_were_stored_as(
    node: PartitionNode, codec: Codec
) -> None:
    async def opened() -> None:
        opening = asyncio.ensure_future(node.replica.open_producer(ProducerRequest(5, 0, None)))
        await asyncio.sleep(0)
        node.turns()
        await opening

    def send(first: int, count: int) -> Appended:
        answers = Answers()
        records = [text(first + place) for place in range(count)]
        digests = b"".join(b"%04d" % (first + place) for place in range(count))
        node.replica.append(numbered(records, 5, 0, first, digests), answers)
        node.turns()
        (answer,) = answers.all
        assert isinstance(answer, Appended), answer
        return answer

    asyncio.run(opened())
    node.replica.compress(codec)
    first = send(0, 4)
    node.replica.compress(Codec.NONE)
    again = send(0, 4)
    assert (again.base_offset, again.duplicates) == (first.base_offset, 4)
    node.replica.compress(codec)
    half = send(2, 4)
    assert half.duplicates == 2
    assert read_all(node.replica) == [(number, text(number)) for number in range(6)], "of half a batch too"
    assert codecs(node) == [codec.name.lower(), "none", codec.name.lower()]


@pytest.mark.parametrize("codec", BOTH)
def test_transactions_are_compressed_and_their_markers_are_not(node: PartitionNode, codec: Codec) -> None:
    node.replica.compress(codec)
    for epoch, commit in ((4, True), (5, False)):
        propose(node, encode_transaction_command(Begin(P, epoch, 3, 60_000, node.now_ms)))
        node.replica.append(numbered([text(epoch)], P, epoch, 0, transactional=True), Answers())
        node.turns()
        propose(node, marker(P, epoch, commit=commit, now_ms=node.now_ms))
    name = codec.name.lower()
    rows = [_row(one) for one in dumped(node)]
    assert [(row["kind"], row["compression"], row["transactional"]) for row in rows] == [
        ("batch", name, True), ("commit", "none", True), ("batch", name, True), ("abort", "none", True),
    ]  # fmt: skip
    committed = node.replica.open_reader(Earliest(), lambda: None)
    assert flat(committed.poll(10, EVERYTHING)) == [(0, text(4))]
    assert flat(node.replica.read(0, EVERYTHING)) == [(0, text(4)), (1, text(5))]


def test_a_bomb_in_the_log_ends_its_reader_with_a_reason_and_is_dumped_as_damaged(node: PartitionNode) -> None:
    node.append(b"before")
    propose(node, forged(Codec.ZSTD, [MAX_UNCOMPRESSED_BYTES, 1], b"boom"))
    node.append(b"behind")
    told: list[Exception] = []
    node.replica.on_damaged = lambda _, error: told.append(error)
    reader = node.replica.open_reader(Earliest(), lambda: None)
    assert flat(reader.poll(1, EVERYTHING)) == [(0, b"before")]
    assert reader.poll(10, EVERYTHING) == []
    assert reader.error is not None
    assert reader.error.kind == "damaged"
    assert "does not decompress" in reader.error.detail
    assert isinstance(told[0], Damaged)
    before, bomb, behind = dumped(node)
    assert (before.kind, bomb.kind, behind.kind) == ("batch", "damaged", "batch")
    assert "does not decompress" in bomb.detail


def test_a_codec_of_a_later_program_stops_the_replica_by_name(node: PartitionNode) -> None:
    """Other replicas may store what this one cannot read."""
    node.group.propose(forged(2, [3], b"abc"), lambda _: None)
    node.turns()
    assert "snappy" in (node.group.quarantined or "")
    assert read_all(node.replica) == []


def test_a_dump_rations_what_it_decompresses(node: PartitionNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.replica.compress(Codec.ZSTD)
    for _ in range(6):
        node.append(bytes(10_000))
    monkeypatch.setattr(entry_dump, "READ_BYTES", 20_000)
    assert [len(page.entries) for page in pages(node)] == [3, 2, 2], "the first is the leader's own"
