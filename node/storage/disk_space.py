"""Space on the disk of a node: what is free, and what its store takes."""

from __future__ import annotations

import os
from pathlib import Path

from node.storage.errors import translate


def free_bytes(path: Path) -> int:
    """Bytes that the file system still has for this process's user."""
    try:
        system = os.statvfs(path)
    except OSError as error:
        raise translate(error, path) from error
    return system.f_bavail * system.f_frsize


def capacity_bytes(path: Path) -> int:
    """Bytes of the file system."""
    try:
        system = os.statvfs(path)
    except OSError as error:
        raise translate(error, path) from error
    return system.f_blocks * system.f_frsize


def used_bytes(path: Path) -> int:
    """Bytes that the files of the store take."""
    total = 0
    for part in ("db", "journal"):
        with os.scandir(path / part) as entries:
            for entry in entries:
                try:
                    total += entry.stat().st_size
                except FileNotFoundError:  # removed meanwhile
                    continue
    return total
