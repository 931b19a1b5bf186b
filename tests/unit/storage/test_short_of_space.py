"""A file system that gets full: what is dead comes back sooner, without other writes, and within what room there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from node.storage import DiskOptions, Store, disk_space
from node.storage.wal import compaction
from node.storage.wal.compaction import Room, WalCompactor
from node.storage.wal.record_format import ValueLocation
from node.storage.wal.segment_usage import note
from node.storage.wal.write_ahead_log import WriteAheadLog
from tests.unit.storage.support import SMALL, WHO, copy_as_killed, entry_key, fill, rows

MIB = 1 << 20
SHORT = replace(SMALL, short_share=0.3)
GROUPS = 8
STEP_BYTES = 64 << 10


class SmallDisk:
    """A file system of a given size, on which nothing but the store lies."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes

    def free_bytes(self, path: Path) -> int:
        return max(0, self.capacity_bytes - disk_space.used_bytes(path))


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    small = SmallDisk(40 * MIB)
    monkeypatch.setattr(disk_space, "capacity_bytes", lambda path: small.capacity_bytes)
    monkeypatch.setattr(disk_space, "free_bytes", small.free_bytes)
    return small


def fill_interleaved(disk: Store, steps: int = 125) -> dict[bytes, bytes]:
    """Entries of all groups in turn, so that each segment has some of each: 2.1 MiB in 17 steps."""
    written: dict[bytes, bytes] = {}
    for step in range(steps):
        for group in range(1, GROUPS + 1):
            written |= fill(disk, step, 1, size=16_000, group=group)
    return written


def erase(disk: Store, group: int, kept: dict[bytes, bytes]) -> None:
    """Erase a group, as a node does whose replica has moved elsewhere."""
    batch = disk.batch()
    for kind in (b"e", b"o"):
        owner = kind + group.to_bytes(8, "big")
        batch.delete_range(owner, owner + b"\xff" * 9)
    disk.write(batch)
    for key in [key for key in kept if key[1:9] == group.to_bytes(8, "big")]:
        del kept[key]


def clean(disk: Store) -> int:
    """Clean as a node does, without any other write. Returns the bytes that moved."""
    moved = 0
    while True:
        done = disk.reclaim()
        if not (done.is_short and done.moving_bytes):
            return moved
        while size := disk.move(STEP_BYTES):
            moved += size


def test_a_quarter_that_is_dead_comes_back_when_space_is_short_and_nothing_is_written(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    small_disk.capacity_bytes = 18 * MIB
    with Store(tmp_path, WHO, SHORT) as disk:
        kept = fill_interleaved(disk)
        for group in (1, 2):
            erase(disk, group, kept)
        before = disk.used_bytes()
        clean(disk)
        assert disk.used_bytes() < before - 5 * MIB // 2
        free = small_disk.free_bytes(tmp_path)
        assert disk.garbage_bytes() <= 0.25 * free or not disk.is_short()
        assert rows(disk) == kept
    with Store(tmp_path, WHO, SHORT) as again:
        assert rows(again) == kept


def test_nothing_moves_by_itself_while_there_is_space(tmp_path: Path, small_disk: SmallDisk) -> None:
    small_disk.capacity_bytes = 28 * MIB
    with Store(tmp_path, WHO, SHORT) as disk:
        kept = fill_interleaved(disk)
        for group in (1, 2, 3):
            erase(disk, group, kept)
        assert disk.reclaim().moving_bytes == 0
        for group in (4, 5):
            erase(disk, group, kept)
        done = disk.reclaim()
        assert (done.is_short, done.moving_bytes > 0) == (False, True)
        fill(disk, 9000, 1, size=2_000, group=9)
        assert disk.reclaim().segments > 0, "they moved with the write"


def test_a_large_disk_that_gets_full_keeps_no_more_dead_than_one_with_space(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    """A quarter of what is free may be more than half of the segments."""
    small_disk.capacity_bytes = 400 * MIB
    with Store(tmp_path, WHO, replace(SHORT, short_share=1.0)) as disk:
        kept = fill_interleaved(disk)
        for group in range(1, 6):
            erase(disk, group, kept)
        done = disk.reclaim()
        assert (done.is_short, done.moving_bytes > 0) == (True, True)


def test_while_space_is_short_no_write_of_clients_carries_what_moves(tmp_path: Path, small_disk: SmallDisk) -> None:
    """Its pace is the node's to choose."""
    small_disk.capacity_bytes = 18 * MIB
    with Store(tmp_path, WHO, SHORT) as disk:
        kept = fill_interleaved(disk)
        erase(disk, 1, kept)
        moving = disk.reclaim().moving_bytes
        before = disk.stats()["journal_bytes"]
        kept |= fill(disk, 0, 20, size=2_000, group=9)
        assert disk.stats()["journal_bytes"] < before + 60_000
        moved = 0
        while cost := disk.move(STEP_BYTES):
            moved += cost
        assert moved >= moving > 0
        assert rows(disk) == kept


def test_the_fuller_the_disk_the_less_of_it_is_dead(tmp_path: Path, small_disk: SmallDisk) -> None:
    left = []
    for capacity in (24 * MIB, 21 * MIB, 18 * MIB):
        small_disk.capacity_bytes = capacity
        with Store(tmp_path / str(capacity), WHO, SHORT) as disk:
            kept = fill_interleaved(disk)
            erase(disk, 1, kept)
            clean(disk)
            left.append(disk.garbage_bytes())
    assert left[0] > left[1] > left[2]


def test_segments_with_the_most_dead_bytes_are_emptied_first(tmp_path: Path, small_disk: SmallDisk) -> None:
    small_disk.capacity_bytes = 19 * MIB
    with Store(tmp_path, WHO, SHORT) as disk:
        kept = fill_interleaved(disk, 100)
        kept |= fill(disk, 0, 40, size=16_000, group=20)
        kept |= fill(disk, 0, 110, size=16_000, group=21)
        erase(disk, 20, kept)
        erase(disk, 1, kept)
        disk.reclaim()
        thin = {move.segment for move in disk._compactor._moves}
        assert thin
        dead = disk._compactor._dead()
        assert min(dead[segment] for segment in thin) >= max(dead[segment] for segment in dead.keys() - thin)


def test_what_moves_fits_into_what_is_free(tmp_path: Path, small_disk: SmallDisk) -> None:
    with Store(tmp_path, WHO, SHORT) as disk:
        kept = fill_interleaved(disk)
        erase(disk, 1, kept)
        small_disk.capacity_bytes = disk.used_bytes() + 3 * MIB // 2
        assert disk.reclaim().moving_bytes == 0, "half of what is free takes no segment"
        small_disk.capacity_bytes = disk.used_bytes() + 2 * MIB
        assert 0 < disk.reclaim().moving_bytes <= MIB
        least = small_disk.free_bytes(tmp_path)
        while size := disk.move(STEP_BYTES):
            assert size <= 2 * STEP_BYTES
            least = min(least, small_disk.free_bytes(tmp_path))
        assert least >= 3 * MIB // 4, "with what RocksDB writes meanwhile"
        clean(disk)
        assert disk.used_bytes() < small_disk.capacity_bytes - 2 * MIB
        assert rows(disk) == kept


def test_a_process_that_is_killed_while_entries_move_has_them_all(tmp_path: Path, small_disk: SmallDisk) -> None:
    small_disk.capacity_bytes = 18 * MIB
    copies = []
    with Store(tmp_path / "data", WHO, SHORT) as disk:
        kept = fill_interleaved(disk)
        erase(disk, 1, kept)
        for number in range(6):
            disk.reclaim()
            for _ in range(3):
                disk.move(STEP_BYTES)
            copies.append(copy_as_killed(disk, tmp_path / f"killed-{number}"))
            while disk.move(STEP_BYTES):
                pass
    for killed in copies:
        with Store(killed, WHO, SHORT) as again:
            assert rows(again) == kept
            clean(again)
            assert rows(again) == kept


def test_what_moves_next_was_read_before_by_whoever_may_wait_for_a_disk(
    tmp_path: Path, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_disk.capacity_bytes = 18 * MIB
    warmed: list[ValueLocation] = []
    moved: list[ValueLocation] = []
    warm, read = WriteAheadLog.warm, WriteAheadLog.read

    def warming(wal: WriteAheadLog, place: ValueLocation) -> None:
        warm(wal, place)
        warmed.append(place)

    def reading(wal: WriteAheadLog, place: ValueLocation) -> bytes:
        moved.append(place)
        return read(wal, place)

    with Store(tmp_path, WHO, SHORT) as disk:
        kept = fill_interleaved(disk)
        erase(disk, 1, kept)
        disk.reclaim()
        monkeypatch.setattr(WriteAheadLog, "warm", warming)
        monkeypatch.setattr(WriteAheadLog, "read", reading)
        for _ in range(5):
            disk.warm(STEP_BYTES)
            disk.move(STEP_BYTES)
            assert warmed == moved
        disk.warm(STEP_BYTES)
        (tmp_path / "journal" / f"{warmed[-1].segment:08}.seg").unlink()
        disk.warm(STEP_BYTES)  # whoever needs it says that it is missing


def test_what_is_erased_is_garbage_at_once_and_needed_no_more(tmp_path: Path, small_disk: SmallDisk) -> None:
    with Store(tmp_path, WHO, SHORT) as disk:
        kept = fill_interleaved(disk)
        live = disk.stats()["journal_live_bytes"]
        assert disk.garbage_bytes() < 2 * MIB
        erase(disk, 1, kept)
        assert disk.garbage_bytes() > 1.5 * MIB
        assert disk.stats()["journal_live_bytes"] == live - 125 * 16_000
        kept |= fill(disk, 500, 10, size=16_000, group=1)  # another life of the group
        assert disk.stats()["journal_live_bytes"] == live - 115 * 16_000
        for group in range(2, GROUPS + 1):
            erase(disk, group, kept)
        clean(disk)
        assert rows(disk) == kept


def test_what_is_dead_in_segments_that_stay_is_no_garbage(tmp_path: Path, small_disk: SmallDisk) -> None:
    """No cleaning gives it back, so no plan may count on it."""
    small_disk.capacity_bytes = 18 * MIB
    with Store(tmp_path, WHO, SHORT) as disk:
        kept: dict[bytes, bytes] = {}
        for step in range(30):
            kept |= fill(disk, step, 1, size=120_000, group=1) | fill(disk, step, 1, size=5_000, group=9)
        erase(disk, 9, kept)
        assert disk.stats()["journal_bytes"] - disk.stats()["journal_live_bytes"] > 140_000
        assert disk.garbage_bytes() == 0


def test_a_step_looks_at_few_rows_however_many_an_owner_has(
    tmp_path: Path, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that have moved lie beside new ones, and between both may be all others of their group."""
    looked_at = 0
    scan = compaction._rows

    def counted(*bounds: Any) -> Iterator[tuple[bytes, bytes]]:
        nonlocal looked_at
        for row in scan(*bounds):
            looked_at += 1
            yield row

    with Store(tmp_path, WHO, SHORT) as disk:
        kept = fill(disk, 0, 1, size=100_000, group=1)
        fill(disk, 0, 40, size=20_000, group=2)
        kept |= fill(disk, 9000, 1, size=100_000, group=1)
        kept |= fill(disk, 1, 3000, size=100, group=1)
        fill(disk, 0, 60, size=20_000, group=3)
        erase(disk, 2, kept)
        small_disk.capacity_bytes = disk.used_bytes() + MIB
        done = disk.reclaim()
        assert (done.is_short, done.moving_bytes >= 200_000) == (True, True)
        monkeypatch.setattr(compaction, "_rows", counted)
        steps, most = 0, 0
        while disk.move(STEP_BYTES):
            steps, most, looked_at = steps + 1, max(most, looked_at), 0
        assert steps > 3000 * compaction.ROW_COST_BYTES // STEP_BYTES
        assert most <= STEP_BYTES // compaction.ROW_COST_BYTES + 2
        assert rows(disk).items() >= kept.items()


def test_a_segment_from_before_a_kill_is_not_taken_for_an_empty_one(tmp_path: Path, small_disk: SmallDisk) -> None:
    """Its row comes with the first record after the kill, also if that is of entries that move. Without the row, the
    process after that would remove the segment."""
    small_disk.capacity_bytes = 18 * MIB
    with Store(tmp_path / "data", WHO, SHORT) as disk:
        kept = fill_interleaved(disk)
        erase(disk, 1, kept)
        killed = copy_as_killed(disk, tmp_path / "killed")
    with Store(killed, WHO, SHORT) as again:
        assert again.reclaim().moving_bytes > 0
        assert again.move(STEP_BYTES) > 0
    with Store(killed, WHO, SHORT) as third:
        third.reclaim()
        assert rows(third) == kept


@pytest.mark.parametrize(
    ("free_mib", "chosen_mib"),
    [(20, 6), (11, 2), (7, 2), (5, 2), (3, 0)],
    ids=["two fit", "the smaller fits", "none fits", "less than the reserve", "no room for one"],
)
def test_what_moves_fits_beside_the_reserve_or_is_the_least(free_mib: int, chosen_mib: int) -> None:
    wal = SimpleNamespace(segments={1: 16 * MIB, 2: 3 * MIB})
    compactor = WalCompactor(cast(WriteAheadLog, wal), DiskOptions(reserve_bytes=6 * MIB, short_share=1.0))
    for segment, live_mib in ((1, 4), (2, 2)):
        note(compactor.spans(segment), entry_key(segment, 0), live_mib * MIB)
        compactor.seal(segment)
    room = Room(free_mib * MIB, 100 * MIB)
    assert compactor.removed([], room).moving_bytes == chosen_mib * MIB
