"""Past the page cache: the file has what was added, in whole blocks; until then it is read from the writer."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.storage import DiskFull, DiskOptions, StorageError, Store, SyncFailed, fsync, store
from node.storage.wal import segment_writer, write_ahead_log, write_path
from node.storage.wal.segment_writer import BLOCK_BYTES, BUFFER_BYTES, DirectWriter
from node.storage.wal.write_path import WritePath
from tests.unit.storage.support import SMALL, WHO, copy_as_killed, copy_files, entry_key, fill, rows

HEAD = b"head of the segment"
SIZES = (0, 1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, BUFFER_BYTES - 7, BUFFER_BYTES, 2 * BUFFER_BYTES + 9)


def writer_of(path: Path) -> DirectWriter:
    path.write_bytes(HEAD)
    return DirectWriter(path, os.open(path, os.O_RDWR), HEAD, WritePath(is_synced=True))


@pytest.fixture
def past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is little goes past the page cache."""
    monkeypatch.setattr(write_path, "SYNCED_FROM_BYTES", 0)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4), max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.sampled_from([0, write_path.SYNCED_FROM_BYTES]),
)
def test_the_file_has_what_was_added_and_at_most_zeros_behind_it(
    tmp_path: Path, records: list[list[int]], drained: list[bool], direct_from: int
) -> None:
    with mock.patch.object(write_path, "SYNCED_FROM_BYTES", direct_from):
        check_file(tmp_path, records, drained)


def check_file(tmp_path: Path, records: list[list[int]], drained: list[bool]) -> None:
    path = tmp_path / "segment"
    writer, wanted, starts = writer_of(path), bytearray(HEAD), []
    for record, drain in zip(records, drained, strict=False):
        pieces = [os.urandom(size) for size in record]
        starts.append((len(wanted), pieces))
        writer.add(len(wanted), pieces)
        wanted += b"".join(pieces)
        if drain:
            writer.drain()
            written = path.read_bytes()
            assert written[: len(wanted)] == wanted
            assert not any(written[len(wanted) :])
            assert len(written) < len(wanted) + BLOCK_BYTES
            starts.clear()
        for at, waiting in starts:
            for piece in filter(None, waiting):
                assert writer.find(at, len(piece)) == piece
                at += len(piece)
    writer.drain()
    assert path.read_bytes()[: len(wanted)] == wanted
    assert writer.find(len(HEAD), 1) is None, "it is in the file"
    writer.close()
    writer.close()


@pytest.mark.usefixtures("past")
def test_a_short_write_is_continued_with_the_block_that_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.pwritev, []

    def short(file: int, pieces: list[memoryview], at: int) -> int:
        calls.append(at)
        return real(file, [pieces[0][: 2 * BLOCK_BYTES]], at) - (512 if len(pieces[0]) > 2 * BLOCK_BYTES else 0)

    monkeypatch.setattr(segment_writer.os, "pwritev", short)
    path, body = tmp_path / "segment", os.urandom(9 * BLOCK_BYTES)
    writer = writer_of(path)
    writer.add(len(HEAD), [body])
    writer.drain()
    assert path.read_bytes()[: len(HEAD) + len(body)] == HEAD + body
    assert len(calls) > 5
    writer.close()


@pytest.mark.usefixtures("past")
def test_what_comes_while_it_writes_waits_for_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on while a thread drains."""
    path = tmp_path / "segment"
    writer, real = writer_of(path), os.pwritev
    writer.add(len(HEAD), [b"first"])

    def meanwhile(*call: object) -> int:
        if len(calls) == 0:
            writer.add(len(HEAD) + 5, [b"second"])
        calls.append(call)
        assert len(calls) > 1 or writer.find(len(HEAD), 5) == b"first", "it may not be there yet"
        return real(*call)  # type: ignore[arg-type]

    calls: list[object] = []
    monkeypatch.setattr(segment_writer.os, "pwritev", meanwhile)
    writer.drain()
    assert (writer.find(len(HEAD), 5), writer.find(len(HEAD) + 5, 6)) == (None, b"second")
    writer.drain()
    assert path.read_bytes().startswith(HEAD + b"firstsecond")
    writer.close()


@pytest.mark.usefixtures("past")
def test_after_an_error_the_writer_does_not_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "segment"
    writer = writer_of(path)
    writer.add(len(HEAD), [b"x"])
    with monkeypatch.context() as patched:
        patched.setattr(segment_writer.os, "pwritev", full)
        with pytest.raises(OSError, match="No space"):
            writer.drain()
    with pytest.raises(OSError, match="No space"):
        writer.drain()
    assert path.read_bytes() == HEAD
    writer.close()


def test_after_an_error_nothing_is_written_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "data", WHO, DiskOptions(direct="synced")) as disk:
        before = fill(disk, 0, 3)
        disk.sync()
        fill(disk, 3, 1, size=write_path.SYNCED_FROM_BYTES)
        with monkeypatch.context() as patched:
            patched.setattr(segment_writer.os, "pwritev", full)
            with pytest.raises(DiskFull):
                disk.sync()
        with pytest.raises(DiskFull):
            disk.sync()
        with pytest.raises(DiskFull):
            fill(disk, 4, 1)
    left = copy_files(tmp_path / "data", tmp_path / "left")  # RocksDB's own lock lasts until the process ends
    with Store(left, WHO, DiskOptions(direct="synced")) as again:
        assert rows(again) == before, "what the store could not write is in no table of RocksDB's either"


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken(*_: object) -> int:
    raise OSError(errno.EIO, "Input/output error")


def assert_fails_for_good(
    disk: Store,
    call: Callable[[], object],
    error: type[StorageError],
    pwritev: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call does, while the disk behaves so, and everything after it, however it behaves then."""
    with monkeypatch.context() as patched:
        patched.setattr(segment_writer.os, "pwritev", pwritev)
        with pytest.raises(error):
            call()
    for step in (disk.drain, disk.sync, lambda: fill(disk, 100, 1)):
        with pytest.raises(error):
            step()


class Calls:
    """What the store asks of the system for the segment that is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        write, sync = os.pwritev, fsync.sync_data

        def pwritev(file: int, *rest: object) -> int:
            self.made.append("durable write" if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DSYNC else "write")
            return write(file, *rest)  # type: ignore[arg-type]

        def sync_data(file: int, path: Path) -> None:
            self.made.append("sync")
            sync(file, path)

        monkeypatch.setattr(segment_writer.os, "pwritev", pwritev)
        monkeypatch.setattr(fsync.System, "sync_data", staticmethod(sync_data))

    def taken(self) -> list[str]:
        made, self.made = self.made, []
        return made


def test_one_write_is_durable_by_itself_and_everything_else_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    much = write_path.SYNCED_FROM_BYTES
    with Store(tmp_path / "data", WHO, DiskOptions(direct="synced")) as disk:
        calls = Calls(monkeypatch)
        written = fill(disk, 0, 2, size=much)
        disk.sync()
        assert calls.taken() == ["durable write"]
        disk.sync()
        assert calls.taken() == ["sync"], "there was nothing to write; who asks for a sync gets one"
        written |= fill(disk, 10, 1, size=much)
        disk.drain()
        assert calls.taken() == ["write"], "nobody asked for more"
        written |= fill(disk, 20, 1, size=much)
        disk.sync()
        assert calls.taken() == ["write", "sync"], "what came before was not durable"
        written |= fill(disk, 30, 1, size=BUFFER_BYTES)
        disk.sync()
        assert calls.taken() == ["write", "write", "sync"], "several writes wait for the device once"
        written |= fill(disk, 40, 1, size=much)
        disk.sync()
        assert calls.taken() == ["durable write"]
        killed = copy_as_killed(disk, tmp_path / "killed")
    with Store(killed, WHO) as again:
        assert rows(again) == written


def test_a_durable_write_that_fails_is_a_sync_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "data", WHO, DiskOptions(direct="synced")) as disk:
        fill(disk, 0, 3)
        disk.sync()
        fill(disk, 3, 1, size=write_path.SYNCED_FROM_BYTES)
        assert_fails_for_good(disk, disk.sync, SyncFailed, broken, monkeypatch)
    left = copy_files(tmp_path / "data", tmp_path / "left")
    with pytest.raises(SyncFailed):
        Store(left, WHO, DiskOptions(direct="synced"))


def test_what_waits_is_read_and_a_sync_makes_it_survive_a_kill(tmp_path: Path) -> None:
    with Store(tmp_path / "data", WHO, DiskOptions(direct="synced")) as disk:
        written = fill(disk, 0, 10, size=200_000) | fill(disk, 10, 3)
        assert rows(disk) == written, "read before it is in any file"
        disk.sync()
        assert rows(disk) == written
        fill(disk, 20, 1)
        killed = copy_as_killed(disk, tmp_path / "killed")
    with Store(killed, WHO, DiskOptions(direct="synced")) as again:
        assert rows(again) == written


def test_who_syncs_nothing_drains_what_is_much_and_need_not_drain_what_is_little(tmp_path: Path) -> None:
    options = DiskOptions(direct="drained")
    with Store(tmp_path / "data", WHO, options) as disk:
        written = fill(disk, 0, 10)
        assert not disk.must_drain, "little is in its file at once"
        assert survivors(disk, tmp_path / "of little") == written
        much = fill(disk, 10, 1, size=write_path.DRAINED_FROM_BYTES)
        assert disk.must_drain
        assert survivors(disk, tmp_path / "before it is drained") == written
        assert rows(disk) == written | much, "read before it is in any file"
        disk.drain()
        assert not disk.must_drain
        assert survivors(disk, tmp_path / "of much") == written | much
        more = fill(disk, 20, 1)
        assert survivors(disk, tmp_path / "of little behind it") == written | much | more


def survivors(disk: Store, path: Path) -> dict[bytes, bytes]:
    with Store(copy_as_killed(disk, path), WHO) as killed:
        return rows(killed)


def test_another_thread_drains_while_segments_change_and_values_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_path, "DRAINED_FROM_BYTES", 40_000)
    monkeypatch.setattr(store, "DRAINED_FROM_BYTES", 40_000)
    options = replace(SMALL, direct="drained")
    over = threading.Event()
    with Store(tmp_path / "data", WHO, options) as disk, ThreadPoolExecutor(1) as pool:

        def drain() -> int:
            drains = 0
            while not over.is_set():
                disk.drain()
                drains += 1
            return drains

        draining = pool.submit(drain)
        try:
            written: dict[bytes, bytes] = {}
            for first in range(0, 240, 4):
                more = fill(disk, first, 3, size=30_000) | fill(disk, first + 3, 1, size=50_000)
                written |= more
                assert {key: disk.get(key) for key in more} == more
        finally:
            over.set()
        assert draining.result() > 0
        assert rows(disk) == written
        disk.drain()
        assert survivors(disk, tmp_path / "killed") == written


def test_a_store_that_cannot_drain_takes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "data", WHO, DiskOptions(direct="drained")) as disk:
        fill(disk, 0, 1, size=write_path.DRAINED_FROM_BYTES)
        assert_fails_for_good(disk, disk.drain, DiskFull, full, monkeypatch)


def test_who_reads_on_finds_that_the_system_has_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(
        write_ahead_log.os, "posix_fadvise", lambda file, start, length, advice: asked.append((start, start + length))
    )
    with Store(tmp_path / "data", WHO, DiskOptions(direct="drained")) as disk:
        written = fill(disk, 0, 20, size=1 << 20)
        disk.drain()
        entries = sorted(key for key in written if key[:1] == b"e")
        for key in reversed(entries):
            disk.get(key)
        assert not asked, "who reads backwards, or here and there, has no use for what follows"
        for key in entries:
            disk.get(key)
    assert asked
    assert all(start == end for (_, end), (start, _) in pairwise(asked)), "nothing is asked for twice, or left out"
    assert all(end - start <= write_ahead_log.AHEAD_BYTES for start, end in asked)
    assert asked[-1][1] > 20 << 20


def test_segments_change_and_space_comes_back(tmp_path: Path) -> None:
    options = DiskOptions(**{name: getattr(SMALL, name) for name in SMALL.__slots__} | {"direct": "synced"})
    with Store(tmp_path, WHO, options) as disk:
        fill(disk, 0, 300, size=16_000)
        batch = disk.batch()
        for kind in (b"e", b"o"):
            batch.delete_range(kind + entry_key(1, 0)[1:], kind + entry_key(1, 290)[1:])
        disk.write(batch)
        assert disk.reclaim().segments > 3
        kept = rows(disk)
        assert len(kept) == 20
    with Store(tmp_path, WHO, SMALL) as again:
        assert rows(again) == kept, "whoever opens it, and however that one writes"


def test_a_file_system_that_takes_nothing_past_the_page_cache_is_written_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.open

    def refused(path: object, flags: int, *more: object, **options: object) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(segment_writer.os, "open", refused)
    options = replace(SMALL, direct="synced")
    with caplog.at_level(logging.WARNING), Store(tmp_path / "data", WHO, options) as disk:
        written = fill(disk, 0, 150)
        killed = copy_as_killed(disk, tmp_path / "killed")
    assert len(list((killed / "journal").iterdir())) > 2
    assert caplog.text.count("past the page cache") == 1, "it is not asked again for each segment"
    with Store(killed, WHO) as again:
        assert rows(again) == written
