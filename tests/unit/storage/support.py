"""A store as a kill -9 leaves it: the files are copied while it is open, so nothing is flushed or closed nicely."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
from pathlib import Path

from node.storage import DiskOptions, NodeIdentity, Store

WHO = NodeIdentity("test", 1)
SMALL = DiskOptions(
    segment_bytes=1 << 20,
    memtable_bytes=64 << 10,
    replay_bytes=1 << 20,
    garbage_floor_bytes=1 << 20,
    short_share=0.0,  # whatever the disk is like on which tests run
)


def entry_key(group: int, index: int) -> bytes:
    return b"e" + group.to_bytes(8, "big") + index.to_bytes(8, "big")


def fill(disk: Store, first: int, count: int, size: int = 20_000, group: int = 1) -> dict[bytes, bytes]:
    """Entries as the log writes them, one batch each with an index row; returns what was written."""
    noise = random.Random(first * 1000 + group)
    written: dict[bytes, bytes] = {}
    for index in range(first, first + count):
        batch = disk.batch()
        value = noise.randbytes(size)
        batch.put(entry_key(group, index), value)
        row = b"o" + group.to_bytes(8, "big") + index.to_bytes(8, "big")
        batch.put(row, b"r" * 20)
        disk.write(batch)
        written[entry_key(group, index)] = value
        written[row] = b"r" * 20
    return written


def rows(disk: Store) -> dict[bytes, bytes]:
    """What `fill` wrote and nothing deleted."""
    return {**dict(disk.scan(b"e", b"f")), **dict(disk.scan(b"o", b"p"))}


def copy_as_killed(disk: Store, target: Path) -> Path:
    """What a kill -9 would leave now. Background jobs must not run while the files are copied one after the other: a
    real kill stops them all at once (test_recovery.py has one of those too)."""
    db = disk._db
    assert db is not None
    jobs = ("num-immutable-mem-table", "num-running-flushes", "num-running-compactions", "compaction-pending")
    for _ in range(2000):
        if not any(db.property_int_value(f"rocksdb.{job}") for job in jobs):
            before = _listing(disk.path)
            shutil.copytree(disk.path, target, ignore_dangling_symlinks=True, copy_function=_copy_if_there)
            if _listing(disk.path) == before:
                return target
            shutil.rmtree(target)
        time.sleep(0.005)
    raise AssertionError(f"{disk.path} never stood still")


def _listing(path: Path) -> list[tuple[str, int]]:
    return sorted((str(file), file.stat().st_size) for file in path.rglob("*") if file.exists())


def _copy_if_there(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(source, target)


def copy_files(source: Path, target: Path) -> Path:
    """Of a store that nobody has open."""
    shutil.copytree(source, target)
    return target


def newest(directory: Path, pattern: str) -> Path:
    return max(directory.glob(pattern), key=lambda path: path.name)


def garble(path: Path, share: float = 0.5) -> None:
    """Invert bytes from a point on; a byte that was there is never what stands there afterwards."""
    with open(path, "r+b") as file:
        file.seek(int(os.path.getsize(path) * share))
        start = file.tell()
        old = file.read(64)
        file.seek(start)
        file.write(bytes(byte ^ 0xA5 for byte in old))


def cut(path: Path, share: float = 0.5) -> None:
    os.truncate(path, int(os.path.getsize(path) * share))


def remove(path: Path) -> None:
    path.unlink()
