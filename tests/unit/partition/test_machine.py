"""The machine decides from state and entry alone, never raises, and can be stopped and continued anywhere."""

from __future__ import annotations

import contextlib
import random

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from cluster.raft import UnknownEntry
from holdfast.records.record_batch import Damaged, RecordBatch
from node.partition.partition_commands import OpenProducer, Trim, UnknownCommand, decode
from node.partition.raft_entry import MAX_BATCHES, batches_in, join
from node.partition.state_machine import (
    AppendAccepted,
    AppendRejected,
    ForgetBelow,
    IndexBatch,
    LogState,
    PartitionMachine,
    Trimmed,
    WrongCheckpoint,
)
from tests.batches import batch_of, entry_of
from tests.unit.partition.idempotence.producing import of_one


def plain(count: int, now_ms: int = 1000) -> bytes:
    return entry_of([b"r"] * count, now_ms)


def test_offsets_count_events_without_gaps_whatever_the_indexes_are() -> None:
    machine = PartitionMachine()
    bases = []
    for index, count in ((3, 2), (4, 1), (9, 5)):
        (result,), (effect,) = machine.apply(index, plain(count))
        assert isinstance(result, AppendAccepted)
        assert isinstance(effect, IndexBatch)
        assert (effect.base_offset, effect.index, effect.count) == (result.base_offset, index, count)
        bases.append(result.base_offset)
    assert bases == [0, 2, 3]
    assert machine.state.next_offset == 8


def test_time_never_goes_back_even_if_the_clocks_of_leaders_do() -> None:
    machine = PartitionMachine()
    stamps = [of_one(machine.apply(index, plain(1, now_ms))[0]) for index, now_ms in enumerate((500, 900, 700, 901), 2)]
    assert [one.timestamp_ms for one in stamps if isinstance(one, AppendAccepted)] == [500, 900, 900, 901]


@pytest.mark.parametrize(
    "entry",
    [
        b"\0\x63 from the future",
        b"\0\2\x09" + Trim(1, 1, 1).encode()[3:],
        b"\0\3\x09" + OpenProducer(1, 0, 0, 1).encode()[3:],
        b"\0\4\x09{}",
        b"\0\5\x09{}",
    ],
)
def test_a_command_of_a_later_version_stops_the_replica(entry: bytes) -> None:
    """Replicas that know it carry it out: a rejection here would be another state than theirs."""
    machine = PartitionMachine()
    machine.apply(2, plain(3))
    with pytest.raises(UnknownEntry, match=r"entry 3: .*install the cluster's newest release"):
        machine.apply(3, entry)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (b"", "damaged"),
        (b"\0", "damaged"),
        (b"\1\1", "damaged"),
        (b"\0\6\1 not a batch", "damaged"),
        (Trim(1, 1, 1).encode()[:-1], "damaged"),
        (entry_of([b"x"], 1, control=True), "damaged"),
        (Trim(0, 1, 1).encode(), "already-trimmed"),
        (Trim(99, 1, 1).encode(), "invalid-trim"),
        (OpenProducer(1, 0, 0, 1).encode()[:-1], "damaged"),
        (OpenProducer(-2, 0, 0, 1).encode(), "invalid-producer"),
        (entry_of([b"x"], 1, producer_id=-2, producer_epoch=0, base_sequence=0, digests=b"...."), "invalid-record"),
        (entry_of([b"x"], 1, producer_id=2, producer_epoch=0, base_sequence=-1, digests=b"...."), "invalid-record"),
        (entry_of([b"x"], 1, producer_id=2, producer_epoch=0, base_sequence=0), "producer-unknown"),
    ],
)
def test_what_makes_no_sense_is_a_recorded_rejection(entry: bytes, code: str) -> None:
    machine = PartitionMachine()
    machine.apply(2, plain(3))
    applied, effects = machine.apply(5, entry)
    result = of_one(applied)
    assert isinstance(result, AppendRejected)
    assert result.code == code
    assert "entry 5" in result.detail
    assert effects == ()
    state = machine.state
    assert (state.rejections, state.last_rejection_index, state.next_offset) == (1, 5, 3)
    assert of_one(machine.apply(6, plain(1))[0]) == AppendAccepted(3, 1000, 1)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"", b"\0\6\0", b"\0\6", b"\0\3\1"]), st.binary(max_size=80)).map(b"".join),
        max_size=20,
    )
)
def test_no_committed_bytes_raise_unless_they_are_of_a_later_version(entries: list[bytes]) -> None:
    machine = PartitionMachine()
    for index, entry in enumerate(entries, 2):
        with contextlib.suppress(UnknownEntry):
            machine.apply(index, entry)
    assert machine.state.applied_index == (len(entries) + 1 if entries else 0)


def test_the_table_of_commands_raises_on_what_it_does_not_hold() -> None:
    with pytest.raises(UnknownCommand, match="tag 200"):
        decode(b"\0\xc8")


def test_a_trim_moves_the_start_and_says_what_to_forget() -> None:
    machine = PartitionMachine()
    for index in range(2, 6):
        machine.apply(index, plain(10))
    size = len(plain(10)) - 2
    result, effects = machine.apply(6, Trim(20, 3, 2 * size).encode())
    assert result == Trimmed(20)
    assert effects == (ForgetBelow(0, 20, 3),)
    assert machine.state.start_offset == 20
    assert machine.state.total_bytes - machine.state.trimmed_bytes == 2 * size
    assert of_one(machine.apply(7, plain(1))[0]) == AppendAccepted(40, 1000, 1)


@pytest.mark.parametrize("trim", [Trim(20, 9, 0), Trim(20, 0, 0), Trim(20, 3, 10**9), Trim(41, 3, 1)])
def test_a_trim_that_does_not_fit_changes_nothing(trim: Trim) -> None:
    machine = PartitionMachine()
    for index in range(2, 6):
        machine.apply(index, plain(10))
    assert isinstance(machine.apply(6, trim.encode())[0], AppendRejected)
    assert machine.state.start_offset == 0


@given(st.randoms(use_true_random=False), st.integers(0, 30))
def test_stopped_anywhere_and_continued_it_is_the_same(chance: random.Random, stop: int) -> None:
    entries = []
    for index in range(2, 32):
        if chance.random() < 0.2:
            offset = chance.randrange(60)
            entries.append((index, Trim(offset, chance.randrange(1, index), offset).encode()))
        else:
            entries.append((index, plain(chance.randrange(1, 5), chance.randrange(2000))))
    straight, first = PartitionMachine(), PartitionMachine()
    expected = [straight.apply(*entry) for entry in entries]
    found = [first.apply(*entry) for entry in entries[:stop]]
    second = PartitionMachine()
    second.restore(first.checkpoint())
    found += [second.apply(*entry) for entry in entries[stop:]]
    assert found == expected
    assert second.checkpoint() == straight.checkpoint()


def test_a_checkpoint_of_another_layout_is_refused() -> None:
    machine = PartitionMachine()
    state = msgspec.msgpack.decode(machine.checkpoint(), type=LogState)
    data = msgspec.msgpack.encode(msgspec.structs.replace(state, layout=9))
    with pytest.raises(WrongCheckpoint, match="layout 9"):
        PartitionMachine().restore(data)
    with pytest.raises(WrongCheckpoint, match="cannot be read"):
        PartitionMachine().restore(b"\xc1")


@pytest.mark.parametrize("what", ["attributes", "version"])
def test_a_batch_of_a_later_version_stops_the_replica(what: str) -> None:
    """Others store it. Its head verifies, so it is no damage."""
    entry = bytearray(plain(2))
    at = {"attributes": 2 + 10, "version": 2 + 8}[what]
    entry[at] |= 0x10
    entry[6:10] = crc32c(entry[10:66]).to_bytes(4, "big")
    machine = PartitionMachine()
    with pytest.raises(UnknownEntry, match=r"of a record batch .*not known here, which this program does not know"):
        machine.apply(3, bytes(entry))
    assert machine.state.next_offset == 0


def test_an_entry_is_refused_whole_if_one_of_its_batches_is_none() -> None:
    machine = PartitionMachine()
    good = batch(2)
    entry = join([good, good])
    for spoiled in (entry[:-20], entry + b"x", entry[: len(entry) // 2 + 20] + b"?" + entry[len(entry) // 2 + 21 :]):
        result, effects = machine.apply(machine.state.applied_index + 1, spoiled)
        assert isinstance(result, AppendRejected)
        assert (result.code, effects, machine.state.next_offset) == ("damaged", (), 0)
    placed = good.placed(5, 1000, 0, 2)
    result, _ = machine.apply(machine.state.applied_index + 1, join([good, placed]))
    assert isinstance(result, AppendRejected)
    assert "says its place" in result.detail
    results, effects = machine.apply(machine.state.applied_index + 1, entry)
    assert results == (AppendAccepted(0, 1000, 2), AppendAccepted(2, 1000, 2))
    assert [(one.base_offset, one.at) for one in effects if isinstance(one, IndexBatch)] == [(0, 2), (2, 2 + good.size)]


def test_an_entry_has_so_many_batches_and_no_more() -> None:
    assert len(batches_in(join([batch(1)] * MAX_BATCHES))) == MAX_BATCHES
    with pytest.raises(Damaged, match="more than 256 batches"):
        batches_in(join([batch(1)] * (MAX_BATCHES + 1)))
    with pytest.raises(Damaged, match="too few"):
        batches_in(join([]))


def batch(count: int) -> RecordBatch:
    return batch_of([b"r"] * count, 1000)
