"""The store keeps what it took, gives ranges back in order, and knows whose it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from node.storage import AlreadyOpen, ForeignData, NodeIdentity, StorageError, Store
from tests.unit.storage.support import SMALL, WHO, copy_as_killed, fill, rows


@pytest.fixture
def disk(tmp_path: Path):
    with Store(tmp_path / "data", WHO, SMALL) as disk:
        yield disk


def put(disk: Store, **pairs: bytes) -> None:
    batch = disk.batch()
    for key, value in pairs.items():
        batch.put(key.encode(), value)
    disk.write(batch)


def keys(disk: Store, start: bytes, end: bytes, reverse: bool = False) -> list[bytes]:
    return [key for key, _ in disk.scan(start, end, reverse=reverse)]


def test_a_batch_is_visible_as_soon_as_it_is_written(disk: Store) -> None:
    batch = disk.batch()
    batch.put(b"xa", b"1")
    assert disk.get(b"xa") is None
    disk.write(batch)
    assert disk.get(b"xa") == b"1"
    assert disk.get(b"xb") is None


def test_later_calls_in_a_batch_win(disk: Store) -> None:
    batch = disk.batch()
    batch.put(b"xa", b"1")
    batch.delete_range(b"x", b"y")
    batch.put(b"xb", b"2")
    batch.put(b"xc", b"3")
    batch.delete(b"xc")
    disk.write(batch)
    assert dict(disk.scan(b"x", b"y")) == {b"xb": b"2"}


def test_scans_are_half_open_and_run_both_ways(disk: Store) -> None:
    put(disk, xa=b"", xb=b"", xc=b"", xd=b"")
    assert keys(disk, b"xb", b"xd") == [b"xb", b"xc"]
    assert keys(disk, b"xb", b"xd", reverse=True) == [b"xc", b"xb"]
    assert keys(disk, b"xaa", b"xz") == [b"xb", b"xc", b"xd"]
    assert keys(disk, b"x", b"xcc", reverse=True) == [b"xc", b"xb", b"xa"]
    assert keys(disk, b"xd", b"xb") == keys(disk, b"xd", b"xd") == []


def test_a_scan_is_lazy_and_sees_the_moment_it_began(disk: Store) -> None:
    put(disk, xa=b"", xb=b"")
    rows = disk.scan(b"x", b"y")
    assert next(rows)[0] == b"xa"
    put(disk, xba=b"")
    batch = disk.batch()
    batch.delete(b"xb")
    disk.write(batch)
    assert [key for key, _ in rows] == [b"xb"]
    assert keys(disk, b"x", b"y") == [b"xa", b"xba"]


def test_an_empty_range_deletes_nothing_and_spoils_nothing(disk: Store) -> None:
    put(disk, xa=b"1")
    batch = disk.batch()
    batch.delete_range(b"xa", b"xa")
    batch.delete_range(b"xz", b"xa")
    batch.put(b"xb", b"2")
    disk.write(batch)
    assert dict(disk.scan(b"x", b"y")) == {b"xa": b"1", b"xb": b"2"}


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    disk = Store(tmp_path, WHO, SMALL)
    disk.close()
    disk.close()
    with pytest.raises(StorageError, match="closed"):
        disk.get(b"x")


def test_what_was_synced_is_there_after_a_kill(tmp_path: Path) -> None:
    """Also across segments and flushes: 6 MB through segments of 1 MiB."""
    with Store(tmp_path / "data", WHO, SMALL) as disk:
        written = fill(disk, 0, 300)
        disk.sync()
        killed = copy_as_killed(disk, tmp_path / "killed")
    with Store(killed, WHO, SMALL) as again:
        assert rows(again) == written


def test_a_real_kill_loses_nothing_even_without_a_sync(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from node.storage import Store\n"
        "from tests.unit.storage.support import SMALL, WHO, fill\n"
        f"disk = Store(Path({str(tmp_path)!r}), WHO, SMALL)\n"
        "fill(disk, 0, 100)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == -9
    with Store(tmp_path, WHO, SMALL) as disk:
        assert sum(1 for _ in disk.scan(b"e", b"f")) == 100


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    Store(tmp_path, WHO, SMALL).close()
    for other in (NodeIdentity("test", 2), NodeIdentity("prod", 1)):
        with pytest.raises(ForeignData, match=r"belongs to node 1 of cluster 'test'.*Correct data_dir"):
            Store(tmp_path, other, SMALL)
    Store(tmp_path, WHO, SMALL).close()


def test_a_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ForeignData, match=r"thesis\.tex"):
        Store(tmp_path, WHO, SMALL)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    Store(tmp_path, WHO, SMALL).close()
    (tmp_path / "format").write_text("holdfast-storage 9\n")
    with pytest.raises(ForeignData, match="format"):
        Store(tmp_path, WHO, SMALL)


def test_a_second_opener_is_refused_and_the_first_unharmed(tmp_path: Path) -> None:
    with Store(tmp_path, WHO, SMALL) as disk:
        with pytest.raises(AlreadyOpen, match="another process"):
            Store(tmp_path, WHO, SMALL)
        put(disk, xa=b"1")
        assert disk.get(b"xa") == b"1"
    Store(tmp_path, WHO, SMALL).close()


def test_a_creation_that_was_killed_half_way_starts_over(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "synced").touch()
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "LOG").touch()
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "00000001.seg").write_bytes(b"HFjou")
    with Store(tmp_path, WHO, SMALL) as disk:
        put(disk, xa=b"1")
    with Store(tmp_path, WHO, SMALL) as disk:
        assert disk.get(b"xa") == b"1"


def test_free_space_and_numbers_are_told(disk: Store) -> None:
    fill(disk, 0, 10)
    assert disk.free_bytes() > 0
    numbers = disk.stats()
    assert numbers["journal_bytes"] > 200_000
    assert numbers["journal_live_bytes"] == 200_000
    assert numbers["background_errors"] == 0
