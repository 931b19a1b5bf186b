"""Making data durable, and the meaning of a failure.

The problem: after a sync that failed nobody knows what the disk has. Linux counts the pages as clean all the same: they
are read as if they were there, and the next sync finds nothing to do and succeeds. Each open file is told of the error
once, at its first call. So a process that tries again, or that is started again, takes for durable what may be lost
with the next loss of power.

The rules:
 - every sync of the store goes through here, and its error is a SyncFailed: final for the store, and noted on the disk
   (durable_length.py), so that no later process goes on with that data;
 - a file that several threads sync has one lock around the call and the remembering of its error (write_ahead_log.py);
 - a name is durable when its directory has been synced;
 - what a start takes for durable it reads from the disk: the page cache is told to forget it first. So a node whose
   failure could not be noted, because the disk failed at that, too, finds what is really there. Pages that are dirty
   stay; they are no loss, since a sync still has to come for them.

Rejected: writing again what was not synced (to a disk that has just failed), and reading with O_DIRECT (it cannot be
had on every file system, and wants aligned buffers).
"""

from __future__ import annotations

import os
from pathlib import Path

from node.storage.errors import SyncFailed


def sync_data(file: int, path: Path) -> None:
    """Sync the content of a file, and its length."""
    try:
        os.fdatasync(file)
    except OSError as error:
        raise SyncFailed(path, str(error)) from error


def sync_directory(path: Path) -> None:
    """Sync the names in a directory."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        raise SyncFailed(path, str(error)) from error
    finally:
        os.close(file)


def forget_cached(file: int) -> None:
    """Drop the file's clean pages, so that they are read from the disk the next time."""
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


class System:
    """The calls of the write-ahead log to the keeper of its files: the operating system, or a simulated one."""

    sync_data = staticmethod(sync_data)
    sync_directory = staticmethod(sync_directory)
    forget_cached = staticmethod(forget_cached)


def make_directory(path: Path) -> None:
    """Make the directory and its missing parents; their names are durable when it returns."""
    missing = [part for part in (path, *path.parents) if not part.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for part in missing:
        sync_directory(part.parent)


def forget_cached_in(directory: Path) -> None:
    """Drop the clean pages of all files of a directory that no process has open."""
    for path in directory.iterdir():
        if path.is_file():
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                forget_cached(file)
            finally:
                os.close(file)
