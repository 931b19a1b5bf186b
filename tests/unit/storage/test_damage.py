"""A damaged store is refused with a message that helps, in whichever file the damage is; never opened half."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.storage import DiskFull, StorageDamaged, Store
from node.storage.rocksdb_options import DiskOptions
from tests.unit.storage.support import (
    SMALL,
    WHO,
    copy_as_killed,
    copy_files,
    cut,
    entry_key,
    fill,
    garble,
    newest,
    remove,
    rows,
)

Harm = Callable[[Path], None]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with tables and several segments of the journal, all synced, as a kill -9 left it."""
    home = tmp_path_factory.mktemp("store")
    with Store(home / "data", WHO, SMALL) as disk:
        fill(disk, 0, 120)
        disk.sync()
        disk._db.flush()
        fill(disk, 120, 20)
        disk.sync()
        return copy_as_killed(disk, home / "killed")


@pytest.fixture
def store(killed: Path, tmp_path: Path) -> Path:
    return copy_files(killed, tmp_path / "copy")


def test_unharmed_it_opens(store: Path) -> None:
    with Store(store, WHO, SMALL) as disk:
        assert sum(1 for _ in disk.scan(b"e", b"f")) == 140


@pytest.mark.parametrize("harm", [garble, cut, remove])
@pytest.mark.parametrize("file", ["db/MANIFEST-*", "db/*.sst", "db/CURRENT", "journal/*.seg"])
def test_damage_to_any_file_is_refused_with_advice(store: Path, file: str, harm: Harm) -> None:
    harm(newest(store / file.split("/")[0], file.split("/")[1]))
    for _ in range(2):  # an attempt to open must not heal it by forgetting
        with pytest.raises(StorageDamaged, match=r"is damaged: .*Replace the node") as caught:
            Store(store, WHO, SMALL)
        assert str(store) in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.99])
def test_a_journal_cut_short_anywhere_is_no_torn_tail(store: Path, share: float) -> None:
    cut(newest(store / "journal", "*.seg"), share)
    for _ in range(2):
        with pytest.raises(StorageDamaged, match=r"was durable up to|head is not"):
            Store(store, WHO, SMALL)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99])
def test_a_manifest_cut_short_is_refused(store: Path, share: float) -> None:
    """RocksDB itself opens with less, in silence."""
    cut(newest(store / "db", "MANIFEST-*"), share)
    for _ in range(2):
        with pytest.raises(StorageDamaged, match="were durable before"):
            Store(store, WHO, SMALL)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.99])
def test_what_a_watermark_does_not_know_is_made_up_for_or_refused(
    store: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of power it may say too little. Then the journal gives back what is missing, or shows that it
    cannot; never is less there in silence."""
    with Store(copy_files(store, store.parent / "whole"), WHO, SMALL) as disk:
        whole = rows(disk)
    monkeypatch.setattr("node.storage.store.check_manifest", lambda mark, database: None)
    cut(newest(store / "db", "MANIFEST-*"), share)
    for _ in range(2):
        try:
            with Store(store, WHO, SMALL) as disk:
                assert rows(disk) == whole
        except StorageDamaged:
            continue


@pytest.mark.parametrize("harm", [garble, cut, remove])
def test_damage_to_a_segment_in_the_middle_is_refused(store: Path, harm: Harm) -> None:
    """It is not read for recovery any more, but entries stand in it."""
    harm(sorted((store / "journal").glob("*.seg"))[1])
    with pytest.raises(StorageDamaged):
        Store(store, WHO, SMALL)


def test_a_segment_under_another_name_is_noticed(store: Path) -> None:
    segments = sorted((store / "journal").glob("*.seg"))
    segments[-1].rename(segments[-1].with_name("00000077.seg"))
    with pytest.raises(StorageDamaged):
        Store(store, WHO, SMALL)


@pytest.mark.parametrize("harm", [garble, cut, remove])
def test_damage_to_the_watermark_is_refused(store: Path, harm: Harm) -> None:
    harm(store / "synced")
    with pytest.raises(StorageDamaged, match="synced"):
        Store(store, WHO, SMALL)


def test_a_lost_format_file_does_not_make_it_a_new_store(store: Path) -> None:
    (store / "format").unlink()
    (store / "db" / "CURRENT").unlink()
    with pytest.raises(StorageDamaged):
        Store(store, WHO, SMALL)


def test_damage_beyond_what_is_checked_at_open_shows_when_it_is_read(store: Path) -> None:
    """Not as a missing entry: the caller must not take damage for the end of the log."""
    garble(sorted((store / "journal").glob("*.seg"))[0])
    with Store(store, WHO, DiskOptions(verify_at_open_bytes=0)) as disk:
        with pytest.raises(StorageDamaged):
            list(disk.scan(b"e", b"f"))
        with pytest.raises(StorageDamaged):
            [disk.get(entry_key(1, index)) for index in range(140)]


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 24 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk_stops_writing_and_loses_nothing(small_file_system: Path) -> None:
    disk = Store(small_file_system / "data", WHO, SMALL)
    written: dict[bytes, bytes] = {}

    def write_for_ever() -> None:
        for index in range(5000):
            pairs = fill(disk, index, 1)
            disk.sync()
            written.update(pairs)

    with pytest.raises(DiskFull, match=r"free space .* then start the node again"):
        write_for_ever()
    assert disk.free_bytes() < 1 << 20
    with pytest.raises(DiskFull):
        disk.sync()
    disk.close()

    subprocess.run(["mount", "-o", "remount,size=96m", str(small_file_system)], check=True)
    with Store(small_file_system / "data", WHO, SMALL) as again:
        stored = rows(again)
        assert written.items() <= stored.items()
        assert len(stored) <= len(written) + 2  # the write that failed may be there: nobody was told either way
