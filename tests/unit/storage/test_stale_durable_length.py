"""After a loss of power the watermark may be too old. What it does not say any more the write-ahead log itself says."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.storage import StorageDamaged, Store
from node.storage.wal.record_format import WalPosition
from node.storage.wal.write_ahead_log import WriteAheadLog
from tests.unit.storage.support import SMALL, WHO, copy_as_killed, copy_files, fill, newest, rows

BATCHES = 6


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All batches synced, each by itself; the watermark is the one of the process before."""
    home = tmp_path_factory.mktemp("store")
    with Store(home / "data", WHO, SMALL):
        stale = (home / "data" / "synced").read_bytes()
    with Store(home / "data", WHO, SMALL) as disk:
        for number in range(BATCHES):
            fill(disk, number, 1, size=3000)
            disk.sync()
        copy_as_killed(disk, home / "killed")
    (home / "killed" / "synced").write_bytes(stale)
    return home / "killed"


@pytest.fixture
def store(killed: Path, tmp_path: Path) -> Path:
    return copy_files(killed, tmp_path / "copy")


def starts(store: Path) -> list[int]:
    """Where the records of the last segment begin."""
    wal = WriteAheadLog(store / "journal")  # unharmed: looking changes nothing
    found = [record.start for record in wal.scan(WalPosition(0, 0), WalPosition(0, 0))]
    wal.close()
    return [start.offset for start in found if start.segment == found[-1].segment][-BATCHES:]


def spoil(store: Path, at: int, size: int = 512) -> None:
    """A sector that cannot be read as it was written."""
    with open(newest(store / "journal", "*.seg"), "r+b") as file:
        file.seek(at)
        file.write(bytes(size))


def test_unharmed_it_opens(store: Path) -> None:
    with Store(store, WHO, SMALL) as disk:
        assert len(rows(disk)) == 2 * BATCHES


@pytest.mark.parametrize("within", ["head", "value"])
@pytest.mark.parametrize("record", range(BATCHES - 1))
def test_a_durable_record_that_is_spoilt_is_damage_and_no_torn_tail(store: Path, record: int, within: str) -> None:
    spoil(store, starts(store)[record] + (0 if within == "head" else 1500))
    for _ in range(2):
        with pytest.raises(StorageDamaged, match="says it was durable"):
            Store(store, WHO, SMALL)


def test_several_sectors_are_no_better(store: Path) -> None:
    first, last = starts(store)[0], starts(store)[-1]
    spoil(store, first, last - first)
    with pytest.raises(StorageDamaged, match="says it was durable"):
        Store(store, WHO, SMALL)


def test_the_head_of_a_segment_that_has_records_was_durable(store: Path) -> None:
    spoil(store, 0, 20)
    with pytest.raises(StorageDamaged, match="head"):
        Store(store, WHO, SMALL)


def test_what_was_not_synced_may_be_torn_although_more_follows(tmp_path: Path) -> None:
    """A disk writes sectors in any order; a later record that is whole proves nothing by itself."""
    with Store(tmp_path / "data", WHO, SMALL) as disk:
        fill(disk, 0, 1, size=3000)
        disk.sync()
        fill(disk, 1, BATCHES - 1, size=3000)
        copy_as_killed(disk, tmp_path / "killed")
    for record in range(1, BATCHES):
        store = copy_files(tmp_path / "killed", tmp_path / str(record))
        spoil(store, starts(store)[record] + 1500)
        with Store(store, WHO, SMALL) as disk:
            assert len(rows(disk)) == 2 * record


def test_an_event_that_looks_like_records_proves_nothing(tmp_path: Path) -> None:
    """Somebody may send what stood in another store's journal."""
    with Store(tmp_path / "other", WHO, SMALL) as other:
        for number in range(BATCHES):
            fill(other, number, 1, size=100)
            other.sync()
    foreign = newest(tmp_path / "other" / "journal", "*.seg").read_bytes()
    with Store(tmp_path / "data", WHO, SMALL) as disk:
        batch = disk.batch()
        batch.put(b"o1", foreign)
        disk.write(batch)
        copy_as_killed(disk, tmp_path / "killed")
    spoil(tmp_path / "killed", starts(tmp_path / "killed")[-1])
    with Store(tmp_path / "killed", WHO, SMALL) as disk:
        assert disk.get(b"o1") is None
