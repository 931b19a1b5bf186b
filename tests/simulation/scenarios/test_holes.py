"""Holes of the audit that no scenario script can show: callbacks, pickles, forks, file offsets. Named by their ids."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from unittest import mock

import pytest
from google.protobuf.message import DecodeError

from cluster.raft import Outcome, RaftMessage, RaftOptions
from cluster.raft.log.entry_cache import EntryCache
from cluster.raft.log.log_store import LogStore
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.log_view import LazySlice
from node.storage.row_format import (
    decode_position,
    encode_position,
    place_of,
    row_there,
)
from node.storage.wal.record_format import ValueLocation, WalPosition
from tests.simulation.scenarios.stage import GROUP, Stage
from tests.simulation.world.disk import SimDisk

ROOT = Path(__file__).resolve().parents[3]


def led_by_one(nodes: int = 3, options: RaftOptions | None = None) -> Stage:
    stage = Stage(nodes, options or RaftOptions())
    for node in stage.ids:
        stage.start(node)
    stage.settle()
    stage.campaign(1)
    stage.settle()
    stage.deliver_all()
    return stage


def test_a10_a_callback_that_raises_applies_nothing_twice() -> None:
    stage = led_by_one()

    def defective(outcome: Outcome) -> None:
        raise RuntimeError("a defect of the caller")

    stage.group(1).propose(b"\0a", defective)
    stage.propose(1, b"\0b")
    stage.live(0.3)
    assert [stage.machines[node].applied for node in stage.ids] == [[b"a", b"b"]] * 3
    assert any(line.startswith("1 answers b: Committed") for line in stage.lines)


def test_a17_nothing_that_arrives_is_unpickled() -> None:
    """What a pickle would do is not done: bytes of a peer are a protobuf message, or an error of the transport."""
    touched = []

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return touched.append, (1,)

    bomb = pickle.dumps({"type": "append_entries", "entries": [Bomb()]})
    with pytest.raises(DecodeError):
        RaftMessage.FromString(bomb)
    with mock.patch.object(pickle, "loads", side_effect=AssertionError("something was unpickled")):
        stage = led_by_one()
        stage.propose(1, b"\0" + bomb[:200].replace(b"\n", b""))
        stage.live(0.2)
    assert not touched
    assert len({tuple(machine.applied) for machine in stage.machines.values()}) == 1


def test_a17_no_code_of_ours_knows_pickle() -> None:
    users = [
        path
        for package in ("cluster", "node", "holdfast")
        for path in (ROOT / package).rglob("*.py")
        if "import pickle" in path.read_text(encoding="utf-8")
    ]
    assert users == []


def test_a18_checkpoints_and_trims_fork_nothing() -> None:
    forbidden = AssertionError("a node with threads must not fork")
    with mock.patch.object(os, "fork", side_effect=forbidden):
        stage = led_by_one(options=RaftOptions(checkpoint_entries=2))
        for number in range(10):
            stage.propose(1, b"\0%d" % number)
            stage.live(0.02)
        stage.group(1).trim(stage.group(1).applied_index - 2)
        stage.live(1.0)
    assert stage.group(1).first_index > 5


def test_l10_slices_of_the_log_read_no_entry() -> None:
    disk = SimDisk()
    batch = disk.batch()
    journal = LogStore(GROUP, disk, EntryCache(0), lambda: batch, lambda: None, lambda: None)
    journal.setCurrentTerm(1, None)
    for index in range(2, 1000):
        journal.add(b"\0x", index, 1)
    with mock.patch.object(LogStore, "data_at", side_effect=AssertionError("an entry was read")):
        tail = journal[5:]
        assert isinstance(tail, LazySlice)
        assert len(tail) == 994
        assert tail[0][1] == 6
        assert tail[-1][2] == 1


def test_l13_nothing_is_compacted_by_the_library() -> None:
    """It would pickle the object every 300 seconds, and raise in every tick from then on."""
    stage = led_by_one(1)
    with mock.patch.object(pickle, "dumps", side_effect=AssertionError("the group was pickled")):
        for _ in range(5):
            stage.clock.now += 301.0
            stage.settle()
            assert stage.group(1).is_leader
    assert Core._SyncObj__tryLogCompaction.__qualname__.startswith("Core.")


def test_l15_no_position_is_32_bits_wide() -> None:
    """In the store's files, and in the log."""
    far = WalPosition(1 << 40, 5 << 32)
    assert decode_position(encode_position(far)) == far
    place = ValueLocation(3, 5 << 32, 1024, 7)
    assert place_of(row_there(*place)) == place
    disk = SimDisk()
    batch = disk.batch()
    journal = LogStore(GROUP, disk, EntryCache(0), lambda: batch, lambda: None, lambda: None)
    journal.base_index = journal.last = journal.commit = 1 << 33
    journal.setCurrentTerm(1, None)
    journal.add(b"\0beyond", (1 << 33) + 1, 1)
    journal.put_checkpoint(1 << 33, b"")
    journal.flush()
    disk.write(batch)
    again = LogStore(GROUP, disk, EntryCache(0), disk.batch, lambda: None, lambda: None)
    assert (again.last, again.data_at(again.last)) == ((1 << 33) + 1, b"\0beyond")
