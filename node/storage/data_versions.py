"""Versions whose layouts a data directory holds, in its file `versions`.

The problem: a program must find out whether it knows all that stands in a directory before it opens, and perhaps
changes, anything there. The rules: the file names a version before anything of that version is written; it names the
oldest one that may be left until all is rewritten; it is replaced as a whole, and durable before what depends on it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from node.storage.errors import OtherVersion, StorageDamaged, translate
from node.storage.fsync import sync_data, sync_directory

FILE = "versions"
_TEXT = re.compile(rb"holdfast-versions (\d{1,9}) (\d{1,9})\n")

BEFORE_THE_FILE = 14
"""Version of data without the file."""


@dataclass(frozen=True, slots=True)
class DataVersions:
    """The oldest version of which layouts may be left in a directory, and the newest of which any may be there."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"version {self.newest}" if self.oldest == self.newest else f"versions {self.oldest} to {self.newest}"

    def require(self, oldest: int, newest: int, path: Path) -> None:
        """Raise OtherVersion if a program that knows the versions from `oldest` to `newest` does not know all."""
        program = f"this program knows {DataVersions(oldest, newest)}"
        if self.newest > newest:
            raise OtherVersion(
                f"{path} holds data of {self}, and {program}: install the release that wrote them, or a later one. "
                "Nothing was changed"
            )
        if self.oldest < oldest:
            raise OtherVersion(
                f"{path} holds data of {self}, and {program}: install an earlier release that knows version "
                f"{self.oldest}, and let it run until `holdfast node status` shows no data of that version. "
                "Nothing was changed"
            )


def read(path: Path) -> DataVersions | None:
    """Read the versions of a data directory, and change nothing. None: there is no complete one."""
    try:
        if not (path / "format").exists():
            return None
        found = (path / FILE).read_bytes()
    except FileNotFoundError:
        return DataVersions(BEFORE_THE_FILE, BEFORE_THE_FILE)
    except OSError as error:
        raise translate(error, path) from error
    match = _TEXT.fullmatch(found)
    if match is None or int(match[1]) > int(match[2]):
        raise StorageDamaged(path / FILE, f"it begins with {found[:40]!r}")
    return DataVersions(int(match[1]), int(match[2]))


def write(path: Path, versions: DataVersions) -> None:
    """Replace the file. Durable when this returns. Raises StorageError."""
    fresh = path / f"{FILE}.new"
    try:
        with open(fresh, "wb") as file:
            file.write(b"holdfast-versions %d %d\n" % (versions.oldest, versions.newest))
            file.flush()
            sync_data(file.fileno(), fresh)
        os.replace(fresh, path / FILE)
        sync_directory(path)
    except OSError as error:
        raise translate(error, path) from error
