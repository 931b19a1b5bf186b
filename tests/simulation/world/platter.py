"""What the simulated disk holds of the files of a write-ahead log, after whatever syncs the production code has asked
for.

The rule is that of a real disk: a sync of a file makes its bytes durable, a sync of the directory its name, and nothing
else does. So a sync that is left out anywhere costs bytes or names at the next loss of power, in whichever segment.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from chaos.disk.sectors import mixed
from node.storage.fsync import System

NOISE = 0.2
"""The share of torn files that hold something else where nothing was synced: what the sectors held before."""


class Platter(System):
    """Of one directory. What it is told is what the write-ahead log tells the operating system."""

    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}  # name -> what was synced
        self._names: set[str] = set()

    def sync_data(self, file: int, path: Path) -> None:  # type: ignore[override]
        self._content[path.name] = os.pread(file, os.fstat(file).st_size, 0)

    def sync_directory(self, path: Path) -> None:  # type: ignore[override]
        self._names = {entry.name for entry in path.iterdir()}

    def forget_cached(self, file: int) -> None:  # type: ignore[override]
        """What a power loss takes is gone from the files at once."""

    def commit(self, path: Path, end: int) -> None:
        """A sync that took its time is over: it covers the bytes up to there."""
        known = self._content.get(path.name, b"")
        with open(path, "rb") as file:
            file.seek(len(known))
            self._content[path.name] = known + file.read(max(0, end - len(known)))

    def flip(self, path: Path, at: int, content: int) -> None:
        """A byte of what was synced becomes another."""
        known = self._content[path.name]
        self._content[path.name] = known[:at] + bytes([content]) + known[at + 1 :]

    def lose_power(self, directory: Path, randomness: random.Random) -> None:
        for path in sorted(directory.glob("*.seg")):
            if path.name not in self._names and randomness.random() < 0.5:
                path.unlink()
                continue
            known, cached = self._content.get(path.name, b""), path.read_bytes()
            if known == cached:
                continue
            content, _, _ = mixed(known, cached, [], randomness)
            if len(content) > len(known) and randomness.random() < NOISE:
                at = randomness.randrange(len(known), len(content))
                content = content[:at] + randomness.randbytes(len(content) - at)
            path.write_bytes(content)
