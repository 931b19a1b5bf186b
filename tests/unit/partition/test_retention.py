"""Retention trims the front by age and by bytes: planned by the leader, replicated, and safe at any interruption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.raft import RaftOptions
from node.partition.api import After, Earliest
from node.partition.offset_index import OffsetIndex, erase, group_range
from node.partition.partition_commands import OpenProducer
from node.partition.raft_entry import join
from node.partition.retention import plan_trim
from tests.batches import batch_of
from tests.unit.partition.support import GROUP, PartitionNode, flat, read_all

EVERYTHING = 1 << 40


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PartitionNode]:
    """Twenty batches of two events, ten milliseconds apart."""
    with PartitionNode(tmp_path) as node:
        fill(node)
        yield node


def fill(node: PartitionNode, batches: int = 20) -> None:
    for number in range(batches):
        node.append(b"%03d-0" % number, b"%03d-1" % number)
        node.now_ms += 10


def rows(node: PartitionNode) -> int:
    return sum(1 for _ in node.disk.scan(*group_range(GROUP)))


def entries(node: PartitionNode) -> int:
    prefix = b"e" + GROUP.to_bytes(8, "big")
    return sum(1 for _ in node.disk.scan(prefix, prefix + b"\xff" * 9))


def trim(node: PartitionNode, retention_ms: int | None = None, retention_bytes: int | None = None) -> bool:
    plan = node.replica.enforce_retention(node.now_ms, retention_ms, retention_bytes)
    node.turns()
    return plan is not None


def test_by_age_everything_older_goes(node: PartitionNode) -> None:
    assert trim(node, retention_ms=55)  # now is 10 ms after the last batch: 10, 20, 30, 40 and 50 ms are kept
    assert node.replica.start_offset == 30
    assert [offset for offset, _ in read_all(node.replica)] == list(range(30, 40))
    assert rows(node) == 5
    assert entries(node) <= 6  # the trim command itself is one
    assert not trim(node, retention_ms=55)


def test_by_age_the_last_event_goes_too(node: PartitionNode) -> None:
    node.now_ms += 1000
    assert trim(node, retention_ms=100)
    info = node.replica.info_now()
    assert (info.earliest_offset, info.latest_offset, info.next_offset) == (None, None, 40)
    assert (info.events, info.bytes, info.last_timestamp_ms) == (0, 0, None)
    assert rows(node) == 0
    assert node.append(b"new").offsets == [40]
    assert read_all(node.replica) == [(40, b"new")]


def test_by_bytes_the_newest_batches_stay(node: PartitionNode) -> None:
    each = node.replica.info_now().bytes // 20
    assert trim(node, retention_bytes=5 * each + each // 2)
    assert node.replica.start_offset == 30
    assert node.replica.info_now().bytes == 5 * each
    assert not trim(node, retention_bytes=5 * each)


def test_by_bytes_one_batch_stays_even_if_it_is_too_large(node: PartitionNode) -> None:
    assert trim(node, retention_bytes=1)
    assert [offset for offset, _ in read_all(node.replica)] == [38, 39]
    assert not trim(node, retention_bytes=1)


def test_the_stricter_rule_wins(node: PartitionNode) -> None:
    each = node.replica.info_now().bytes // 20
    assert trim(node, retention_ms=105, retention_bytes=3 * each)
    assert node.replica.start_offset == 34
    assert not trim(node, retention_ms=105, retention_bytes=100 * each)


def test_nothing_is_trimmed_without_a_reason(node: PartitionNode) -> None:
    assert not trim(node)
    assert not trim(node, retention_ms=10**9, retention_bytes=10**9)
    assert node.replica.start_offset == 0


def test_a_follower_plans_nothing(node: PartitionNode) -> None:
    node.step_down()
    assert not trim(node, retention_ms=1)


def test_what_a_member_still_lacks_is_kept(node: PartitionNode, monkeypatch: pytest.MonkeyPatch) -> None:
    first = node.group.last_index - 19
    monkeypatch.setattr(node.group, "safe_trim_index", lambda: first + 4)
    assert trim(node, retention_ms=1)
    assert node.replica.start_offset == 10


def test_a_reader_below_the_start_continues_at_the_start(node: PartitionNode) -> None:
    reader = node.replica.open_reader(Earliest(), lambda: None)
    assert [offset for offset, _ in flat(reader.poll(3, EVERYTHING))] == [0, 1, 2]
    trim(node, retention_ms=55)
    assert [offset for offset, _ in flat(reader.poll(4, EVERYTHING))] == [30, 31, 32, 33]
    late = node.replica.open_reader(After(3), lambda: None)
    assert late.position == 30
    assert read_all(node.replica, offset=0)[0] == (30, b"015-0")


def test_a_trim_survives_a_restart(node: PartitionNode) -> None:
    trim(node, retention_ms=55)
    digest = node.replica.digest()
    node.crash()
    assert node.replica.start_offset == 30
    assert node.replica.digest() == digest
    assert [offset for offset, _ in read_all(node.replica)] == list(range(30, 40))
    assert rows(node) == 5
    assert node.append(b"x").offsets == [40]


def test_entries_after_the_last_checkpoint_are_applied_again_to_the_same_effect(tmp_path: Path) -> None:
    """A kill between the application of a trim and the next checkpoint: rows come back, and go again."""
    with PartitionNode(tmp_path, options=RaftOptions(checkpoint_entries=10**6)) as node:
        fill(node)
        node.replica.group.trim = lambda index: None  # type: ignore[method-assign]  # it would force a checkpoint
        trim(node, retention_ms=105)
        fill(node, 5)
        expected = read_all(node.replica)
        state = node.replica.digest()
        assert node.disk.get(b"c" + GROUP.to_bytes(8, "big")) is None
        node.crash()
        assert node.replica.digest() == state
        assert read_all(node.replica) == expected
        assert rows(node) == 15
        assert entries(node) <= 20  # the trim of entries, which the kill forgot, was asked for again


def test_trimming_goes_on_in_many_small_steps(tmp_path: Path) -> None:
    with PartitionNode(tmp_path) as node:
        for step in range(30):
            fill(node, 5)
            trim(node, retention_ms=85)
            found = [offset for offset, _ in read_all(node.replica)]
            assert found == list(range(found[0], node.replica.next_offset))
            assert len(found) <= 18
            if step % 10 == 9:
                node.crash()
        assert rows(node) <= 9


def test_only_one_trim_is_under_way(node: PartitionNode) -> None:
    assert node.replica.enforce_retention(node.now_ms, 55, None) is not None
    assert node.replica.enforce_retention(node.now_ms, 55, None) is None
    node.turns()
    assert node.replica.start_offset == 30


def test_the_index_of_a_deleted_partition_is_erased_and_no_other(node: PartitionNode) -> None:
    other = group_range(GROUP + 1)[0] + bytes(8)
    batch = node.disk.batch()
    batch.put(other, b"x")
    erase(GROUP, batch)
    node.disk.write(batch)
    assert rows(node) == 0
    assert node.disk.get(other) == b"x"
    assert OffsetIndex(GROUP, node.disk).row_at(5) is None


def test_a_trim_never_reaches_beyond_what_every_member_holds(node: PartitionNode) -> None:
    """Entries that are no events may lie between the last that a member holds and the next batch that stays. (Found by
    the simulation: a replica that lacked those was locked out of its group.)"""
    last_held = node.group.last_index
    for _ in range(5):
        node.group.propose(OpenProducer(7, None, None, node.now_ms).encode(), lambda _: None)
    node.append(b"behind them")
    index = OffsetIndex(GROUP, node.disk)
    plan = plan_trim(
        node.replica._machine.state, index, now_ms=node.now_ms, retention_ms=None, retention_bytes=1,
        safe_index=last_held, stable_offset=40,
    )  # fmt: skip
    assert plan is not None
    assert plan.offset == 40, "all twenty batches go"
    assert plan.index == last_held


def test_an_entry_of_several_batches_goes_whole_or_stays(tmp_path: Path) -> None:
    with PartitionNode(tmp_path) as node:
        for entry in range(3):
            batches = [batch_of([b"%d%d" % (entry, place)], node.now_ms) for place in range(4)]
            node.group.propose(join(batches), lambda _: None)
            node.turns()
        batch_bytes = node.replica.info_now().bytes // 12
        assert not trim(node, retention_bytes=10 * batch_bytes), "the first entry has four batches, and two are wanted"
        assert trim(node, retention_bytes=7 * batch_bytes)
        assert node.replica.start_offset == 4
        assert trim(node, retention_bytes=1)
        assert node.replica.start_offset == 8, "the newest entry stays whole"
        assert [record for _, record in read_all(node.replica)] == [b"20", b"21", b"22", b"23"]
