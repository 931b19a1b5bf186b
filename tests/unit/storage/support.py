"""A store as a kill -9 leaves it: the files are copied while it is open, so nothing is flushed or closed nicely."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

from node.storage import DiskOptions, NodeIdentity, RocksDisk

WHO = NodeIdentity("test", 1)
SMALL = DiskOptions(memtable_bytes=1 << 20, wal_bytes=4 << 20)


def entry_key(group: int, index: int) -> bytes:
    return b"e" + group.to_bytes(8, "big") + index.to_bytes(8, "big")


def fill(disk: RocksDisk, first: int, count: int, size: int = 20_000, group: int = 1) -> dict[bytes, bytes]:
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


def rows(disk: RocksDisk) -> dict[bytes, bytes]:
    """What `fill` wrote and nothing deleted."""
    return {**dict(disk.scan(b"e", b"f")), **dict(disk.scan(b"o", b"p"))}


def copy_as_killed(source: Path, target: Path) -> Path:
    """Copy a live directory; retried while a background job of the store replaces files."""
    for _ in range(50):
        try:
            shutil.copytree(source, target)
            return target
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(target, ignore_errors=True)
            time.sleep(0.02)
    raise AssertionError(f"{source} never stood still")


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
