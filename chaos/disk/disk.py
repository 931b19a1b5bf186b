"""One faulty disk: a directory, the orders for it, and its loss of power."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from chaos.disk.library import build
from chaos.disk.names import NameHistory, Names
from chaos.disk.orders import Orders
from chaos.disk.sectors import mixed


@dataclass
class LostWrites:
    """Counts of what a loss of power undid."""

    names: int = 0  # changes of names that were not durable
    sectors: int = 0  # sectors of files that went back to their old bytes
    kept_sectors: int = 0  # sectors that were kept although no sync covered them


class FaultyDisk:
    """A disk for processes that are started with `environment()`, one at a time.

    `root`: the directory that they see; `side`: the library's own. If any other process changes files below `root`,
    call `format` afterwards.
    """

    def __init__(self, root: Path, side: Path, *, mirrors: bool = False) -> None:
        self.root, self._side = root.resolve(), side.resolve()
        assert not self._side.is_relative_to(self.root), "the side directory lies outside of the disk"
        self.root.mkdir(parents=True, exist_ok=True)
        self._side.mkdir(parents=True)
        self._library = build()
        self._mirrors = mirrors
        self.orders = Orders(self._side)
        self.format()

    def environment(self) -> dict[str, str]:
        """Return the environment variables for a process; call it right before the process starts."""
        self._catch_up()
        lines = [f"n\t{self._history.next_id}\n"]
        for path, file in self._history.cached.files.items():
            lines.append(f"c\t{file}\t{path}\n")
            lines += [f"l\t{file}\t{first}\t{end}\n" for first, end in self._history.lost.get(file, [])]
        (self._side / "names").write_text("".join(lines))
        return {
            "LD_PRELOAD": str(self._library),
            "HOLDFAST_DISK_ROOT": str(self.root),
            "HOLDFAST_DISK_SIDE": str(self._side),
        }

    # ------------------------------------------------------------------------------------------- what is there

    def format(self) -> None:
        """Make the present content durable, whoever wrote it. No process may use the disk."""
        for part in ("platter", "mirror"):
            shutil.rmtree(self._side / part, ignore_errors=True)
        (self._side / "platter").mkdir()
        if self._mirrors:
            (self._side / "mirror").mkdir()
        (self._side / "log").write_text("")
        self._history = NameHistory()
        files, directories = self._walk()
        for number, (path, inode) in enumerate(files.items(), 1):
            self._history.inodes[number] = inode
            self._history.cached.files[path] = number
            shutil.copyfile(self.root / path, self._platter(number))
            if self._mirrors:
                shutil.copyfile(self.root / path, self._side / "mirror" / str(number))
        self._history.next_id = len(files) + 1
        self._history.cached.directories = directories
        self._history.durable = self._history.cached.copy()

    def _platter(self, file: int) -> Path:
        return self._side / "platter" / str(file)

    def _walk(self) -> tuple[dict[str, int], set[str]]:
        files, directories = {}, set()
        for home, below, names in os.walk(self.root):
            for name in below:
                directories.add(os.path.relpath(os.path.join(home, name), self.root))
            for name in names:
                path = os.path.join(home, name)
                files[os.path.relpath(path, self.root)] = os.stat(path).st_ino
        return files, directories

    def _catch_up(self) -> None:
        """Apply what the last process did; it must be dead."""
        log = self._side / "log"
        self._history.read(log.read_text())
        self._history.look(*self._walk())
        log.write_text("")

    # ------------------------------------------------------------------------------------------- loss of power

    def lose_power(self, chance: random.Random | None = None) -> LostWrites:
        """Drop unsynced bytes and names, after the process was killed. Without `chance`, all of them are lost."""
        self._catch_up()
        loss = LostWrites(names=len(self._history.pending))
        names = self._history.after_power_loss(chance)
        rebuilt = self._side / "rebuilt"
        shutil.rmtree(rebuilt, ignore_errors=True)
        rebuilt.mkdir()
        for directory in sorted(names.directories):
            (rebuilt / directory).mkdir()
        seen = {file: path for path, file in self._history.cached.files.items()}
        for path, file in names.files.items():
            (rebuilt / path).write_bytes(self._after_power_loss(file, seen.get(file), chance, loss))
        self._replace_by(rebuilt, names)
        return loss

    def _after_power_loss(self, file: int, seen: str | None, chance: random.Random | None, loss: LostWrites) -> bytes:
        platter = self._platter(file).read_bytes() if self._platter(file).exists() else b""
        if seen is None:  # unlinked: only its synced bytes are known
            return platter
        cache = (self.root / seen).read_bytes()
        content, kept, lost = mixed(platter, cache, self._history.lost.get(file, []), chance)
        loss.kept_sectors += kept
        loss.sectors += lost
        return content

    def _replace_by(self, rebuilt: Path, names: Names) -> None:
        for entry in self.root.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        for entry in rebuilt.iterdir():
            entry.rename(self.root / entry.name)
        self.format()

    # ------------------------------------------------------------------------------------------- proof

    def unseen(self) -> list[str]:
        """List changes on the disk that did not go through the library. The process must be dead."""
        assert self._mirrors, "a disk that mirrors what it sees"
        self._history.read((self._side / "log").read_text())
        told = self._history.cached.copy()
        (self._side / "log").write_text("")
        files, directories = self._walk()
        found = [f"{path} is {'there' if path in files else 'gone'}" for path in told.files.keys() ^ files.keys()]
        found += [f"the directory {path}" for path in told.directories ^ directories]
        for path, file in told.files.items():
            mirror = self._side / "mirror" / str(file)
            if path in files and (self.root / path).read_bytes() != (mirror.read_bytes() if mirror.exists() else b""):
                found.append(f"bytes of {path}")
        return found
