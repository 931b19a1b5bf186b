"""What a node remembers of its peers' starts, on its own disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.stale_copy_detection import KnownStart
from node.startup.stored_boot_counters import KIND, StoredStarts
from node.storage import NodeIdentity, StorageDamaged, StorageError, Store


def opened(path: Path) -> Store:
    return Store(path, NodeIdentity("dev", 1))


async def test_it_outlives_the_process_and_belongs_to_an_incarnation(tmp_path: Path) -> None:
    with opened(tmp_path) as disk:
        starts = StoredStarts(disk, pytest.fail)
        await starts.remember(2, 77, KnownStart(4, 44))
        await starts.remember(3, 88, KnownStart(9, 99))
        await starts.remember(2, 77, KnownStart(5, 55))
    with opened(tmp_path) as disk:
        starts = StoredStarts(disk, pytest.fail)
        assert starts.latest(2, 77) == (5, 55)
        assert starts.latest(3, 88) == (9, 99)
        assert starts.latest(2, 78) == (0, 0), "of another directory"
        assert starts.latest(4, 77) == (0, 0)


async def test_it_is_synced_once_before_the_peer_is_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as disk:
        starts = StoredStarts(disk, pytest.fail)
        syncs: list[int] = []
        sync = disk.sync
        monkeypatch.setattr(disk, "sync", lambda: (syncs.append(1), sync()))
        await starts.remember(2, 77, KnownStart(4, 44))
        assert syncs == [1]
        await starts.remember(2, 77, KnownStart(4, 44))
        assert syncs == [1]
        await starts.remember(2, 77, KnownStart(5, 55))
        assert syncs == [1, 1]


async def test_a_disk_that_fails_ends_the_node_and_lets_nobody_in(tmp_path: Path) -> None:
    failures: list[Exception] = []
    disk = opened(tmp_path)
    starts = StoredStarts(disk, failures.append)
    disk.close()
    with pytest.raises(StorageError):
        await starts.remember(2, 77, KnownStart(4, 44))
    assert len(failures) == 1


async def test_a_damaged_row_is_not_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as disk:
        await StoredStarts(disk, pytest.fail).remember(2, 77, KnownStart(4, 44))
        [(key, value)] = disk.scan(KIND, KIND + b"\xff" * 5)
        batch = disk.batch()
        batch.put(key, bytes([value[0] ^ 1]) + value[1:])
        disk.write(batch)
        with pytest.raises(StorageDamaged, match="starts"):
            StoredStarts(disk, pytest.fail)
