"""Space comes back when entries are trimmed, in whole segments, also from between entries that stay."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.storage import Store
from node.storage.fsync import System, sync_directory
from node.storage.wal.compaction import WalCompactor
from node.storage.wal.write_ahead_log import WriteAheadLog
from tests.unit.storage.support import SMALL, WHO, copy_as_killed, entry_key, fill, rows


def trim(disk: Store, group: int, up_to: int) -> None:
    batch = disk.batch()
    for kind in (b"e", b"o"):
        batch.delete_range(kind + entry_key(group, 0)[1:], kind + entry_key(group, up_to)[1:])
    disk.write(batch)


def test_trimmed_segments_go_and_the_rest_stays(tmp_path: Path) -> None:
    with Store(tmp_path, WHO, SMALL) as disk:
        fill(disk, 0, 1000, size=16_000)
        kept = fill(disk, 1000, 150, size=16_000)  # in closed segments, too
        trim(disk, 1, 1000)
        assert disk.used_bytes() > 15_000_000
        done = disk.reclaim()
        assert done.segments >= 13
        assert done.freed_bytes > 14_000_000
        assert disk.used_bytes() < 5_000_000
        assert rows(disk) == kept
        assert disk.reclaim().segments == 0
    with Store(tmp_path, WHO, SMALL) as again:
        assert rows(again) == kept


class CountedSyncs(System):
    """Counts the segments that stand in the directory whenever it is synced."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def sync_directory(self, path: Path) -> None:  # type: ignore[override]
        sync_directory(path)
        self.counts.append(len(list(path.glob("*.seg"))))


def test_the_disk_takes_back_one_segment_at_once(tmp_path: Path) -> None:
    """A file system that discards what was deleted holds up every sync meanwhile."""
    system = CountedSyncs()
    wal = WriteAheadLog(tmp_path, system)
    for _ in range(6):
        wal.begin()
    system.counts.clear()
    for number in range(1, 6):
        wal.erase(number)
    assert system.counts == [5, 4, 3, 2, 1]
    wal.close()


def test_who_writes_does_not_wait_until_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that tells its disk of each freed block takes seconds for dozens of segments. Nothing is lost when
    the process is killed in the midst of it."""
    erase, half_way, written = WriteAheadLog.erase, threading.Event(), threading.Event()

    def slow(wal: WriteAheadLog, number: int) -> None:
        erase(wal, number)
        if number == 5:
            half_way.set()
            assert written.wait(20), "who writes waits for who removes files"

    monkeypatch.setattr(WriteAheadLog, "erase", slow)
    with Store(tmp_path / "data", WHO, SMALL) as disk, ThreadPoolExecutor(1) as worker:
        fill(disk, 0, 1000, size=16_000)
        trim(disk, 1, 1000)
        removing = worker.submit(disk.reclaim)
        assert half_way.wait(60)
        kept = fill(disk, 1000, 200, size=16_000)  # more than a segment
        disk.sync()
        assert not removing.done()
        killed = copy_as_killed(disk, tmp_path / "killed")
        written.set()
        assert removing.result(60).segments >= 13
        assert rows(disk) == kept
    with Store(killed, WHO, SMALL) as again:
        assert rows(again) == kept
        again.reclaim()
        assert again.used_bytes() < 6_000_000


def test_who_closes_the_store_waits_for_one_file_and_nobody_removes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next process would see files vanish that it has just found."""
    erase, begun, go_on = WriteAheadLog.erase, threading.Event(), threading.Event()
    erased: list[int] = []

    def slow(wal: WriteAheadLog, number: int) -> None:
        begun.set()
        assert go_on.wait(60)
        erase(wal, number)
        erased.append(number)

    monkeypatch.setattr(WriteAheadLog, "erase", slow)
    with ThreadPoolExecutor(2) as workers:
        disk = Store(tmp_path, WHO, SMALL)
        fill(disk, 0, 1000, size=16_000)
        trim(disk, 1, 1000)
        removing = workers.submit(disk.reclaim)
        assert begun.wait(60)
        closing = workers.submit(disk.close)
        while not disk._closing:
            time.sleep(0.001)
        with pytest.raises(TimeoutError):
            closing.result(0.2)
        go_on.set()
        closing.result(60)
        assert removing.result(60).segments == len(erased) == 1
    with Store(tmp_path, WHO, SMALL) as again:
        assert rows(again) == {}
        assert again.reclaim().segments >= 12


def test_a_retained_log_of_steady_size_takes_steady_space(tmp_path: Path) -> None:
    with Store(tmp_path, WHO, SMALL) as disk:
        for step in range(12):
            fill(disk, step * 100, 100, size=16_000)
            trim(disk, 1, step * 100)
            disk.reclaim()
            assert disk.used_bytes() < 7_000_000, f"step {step}"


def test_a_group_that_is_erased_gives_all_back(tmp_path: Path) -> None:
    with Store(tmp_path, WHO, SMALL) as disk:
        fill(disk, 0, 200, size=16_000, group=1)
        kept = fill(disk, 0, 10, size=16_000, group=2)
        trim(disk, 1, 2**63)
        disk.reclaim()
        assert disk.used_bytes() < 3_000_000
        assert rows(disk) == kept


def test_a_resting_group_does_not_pin_the_dead_entries_of_a_busy_one(tmp_path: Path) -> None:
    """Twenty segments hold an entry or two of group 2 each. These move while the node writes on."""
    with Store(tmp_path / "data", WHO, SMALL) as disk:
        kept: dict[bytes, bytes] = {}
        for step in range(20):
            fill(disk, step * 60, 60, size=16_000, group=1)
            kept |= fill(disk, step, 1, size=16_000, group=2)
        trim(disk, 1, 1200)
        calls = 0
        while disk.stats()["journal_segments"] > 3:
            calls += 1
            assert calls < 20, f"no progress: {disk.stats()}"
            disk.reclaim()
            kept |= fill(disk, calls, 1, size=2_000, group=3)  # an ordinary write, with which entries move
        assert rows(disk) == kept
        killed = copy_as_killed(disk, tmp_path / "killed")
        trim(disk, 2, 20)
        disk.reclaim()
        assert {key[8] for key in rows(disk)} == {3}
    with Store(killed, WHO, SMALL) as again:
        assert rows(again) == kept


def test_an_entry_that_was_trimmed_while_it_waited_to_move_stays_gone(tmp_path: Path) -> None:
    with Store(tmp_path, WHO, SMALL) as disk:
        for step in range(6):
            fill(disk, step * 60, 60, size=16_000, group=1)
            fill(disk, step, 1, size=16_000, group=2)
        trim(disk, 1, 360)
        assert disk.reclaim().moving_bytes > 0
        trim(disk, 2, 6)  # moves them, and trims them, in this order
        assert rows(disk) == {}
        for _ in range(3):
            disk.reclaim()
            fill(disk, 9, 1, size=2_000, group=3)
        assert disk.stats()["journal_segments"] <= 3


def test_overwritten_entries_are_counted_until_the_front_passes_them(tmp_path: Path) -> None:
    """A new leader replaced the end of a follower's log."""
    with Store(tmp_path, WHO, SMALL) as disk:
        fill(disk, 0, 100, size=16_000)
        fill(disk, 50, 10, size=16_000)
        batch = disk.batch()
        batch.delete_range(entry_key(1, 60), entry_key(1, 2**63))
        disk.write(batch)
        assert [int.from_bytes(key[9:], "big") for key, _ in disk.scan(b"e", b"f")] == list(range(60))
        trim(disk, 1, 55)
        disk.reclaim()
        assert [int.from_bytes(key[9:], "big") for key, _ in disk.scan(b"e", b"f")] == list(range(55, 60))
        fill(disk, 60, 100, size=16_000)
        trim(disk, 1, 150)
        for _ in range(4):
            disk.reclaim()
            fill(disk, 200, 1, size=2_000, group=3)
        assert disk.used_bytes() < 4_000_000


def test_a_range_that_leaves_the_front_of_a_log_leaves_its_segments(tmp_path: Path) -> None:
    with Store(tmp_path, WHO, SMALL) as disk:
        kept = fill(disk, 0, 100, size=16_000)
        fill(disk, 100, 100, size=16_000)
        batch = disk.batch()
        for kind in (b"e", b"o"):
            batch.delete_range(kind + entry_key(1, 100)[1:], kind + entry_key(1, 0)[1:9] + b"\xff" * 9)
        disk.write(batch)
        disk.reclaim()
        assert rows(disk) == kept


def test_a_new_life_of_a_group_is_kept_that_began_while_segments_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had nothing when the first entries of all groups were looked up, and has a whole segment since then."""
    look = WalCompactor.first_needed
    kept: dict[bytes, bytes] = {}

    def and_then(compactor: WalCompactor, *arguments: Any) -> dict[bytes, int | None]:
        found = look(compactor, *arguments)
        kept.update(fill(disk, 0, 150, size=16_000, group=1))
        return found

    with Store(tmp_path, WHO, SMALL) as disk:
        fill(disk, 500, 100, size=16_000, group=1)
        batch = disk.batch()
        batch.delete_range(entry_key(1, 0), entry_key(1, 2**63))
        disk.write(batch)
        monkeypatch.setattr(WalCompactor, "first_needed", and_then)
        disk.reclaim()
        monkeypatch.setattr(WalCompactor, "first_needed", look)
        disk.reclaim()
        assert {key: value for key, value in rows(disk).items() if key in kept} == kept


def test_without_anyone_asking_for_syncs_memory_and_page_cache_stay_bounded(tmp_path: Path) -> None:
    """Durability "replicated": the loop never syncs entries."""
    with Store(tmp_path, WHO, replace(SMALL, unsynced_bytes=200_000)) as disk:
        fill(disk, 0, 400, size=16_000)
        numbers = disk.stats()
        assert numbers["memory_bytes"] < 4_000_000
        assert disk._switched.segment > 1, "RocksDB was never flushed"
        disk._syncing.submit(lambda: None).result()
        assert disk._synced.segment > 1, "nothing was synced in the background"
