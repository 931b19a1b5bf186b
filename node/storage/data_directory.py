"""The data directory of a node as a whole: its format, completeness, and lock.

format    what this is, written last when the directory is made: without it nothing in here was ever acknowledged
lock      held while a process works on it
versions  which layouts may be in here; see data_versions.py
synced    how far it is durable, or that a sync failed; see durable_length.py
db/       RocksDB
journal/  see wal/write_ahead_log.py
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from node.storage.errors import AlreadyOpen, ForeignData, StorageDamaged
from node.storage.fsync import sync_data, sync_directory

FORMAT = b"holdfast-storage 8\n"
PARTS = (
    "db", "journal", "lock", "synced", "format.new", "versions", "versions.new",
    "discovery.json", "discovery.json.new", "discovery.lock",
)  # fmt: skip


def take_lock(path: Path) -> int:
    """Lock the directory. Returns the open lock file; closing it gives the lock back."""
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise AlreadyOpen(f"{path} is in use by another process; stop that one first") from error
    return lock


def is_complete(path: Path) -> bool:
    """Tell whether the directory was made completely before. Raises for one that is not ours or lacks a main part."""
    marker, database = path / "format", path / "db"
    if marker.exists():
        if marker.read_bytes() != FORMAT:
            raise ForeignData(f"{marker} names a format that this version does not know; use the version it names")
        for part in (database / "CURRENT", path / "journal", path / "synced"):
            if not part.exists():
                raise StorageDamaged(part, "it is missing")
        return True
    strange = [entry.name for entry in path.iterdir() if entry.name not in PARTS]
    if strange:
        raise ForeignData(f"{path} is not empty and no data directory of a node: it holds {strange[0]!r}")
    if not (database / "CURRENT").exists() and any(database.glob("*.sst")):  # RocksDB would remove them
        raise StorageDamaged(path, "its file `format` is missing, and so is CURRENT")
    return False


def finish(path: Path) -> None:
    """Mark the directory as complete. All that is in it is durable before its last file is made."""
    sync_directory(path)
    fresh = path / "format.new"
    with open(fresh, "wb") as marker:
        marker.write(FORMAT)
        marker.flush()
        sync_data(marker.fileno(), fresh)
    fresh.rename(path / "format")
    sync_directory(path)
