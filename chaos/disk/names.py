"""Names on the disk now and after a loss of power, from the log of names.c.

A change of a name is *pending* until its directory is synced. A loss of power keeps the first few pending changes of
each directory: file systems write a directory's changes in order.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

BEFORE_THIS_PROCESS = 0
ROOT = "."


@dataclass
class Change:
    """One atomic change of a directory's names."""

    number: int
    removes: list[str]
    adds: dict[str, int]  # path -> id of the file
    directories: dict[str, bool] = field(default_factory=dict)  # path -> made, or removed

    @property
    def directory(self) -> str:
        return _parent(next(iter([*self.removes, *self.adds, *self.directories])))


@dataclass
class Names:
    """Files and directories by path, relative to the root."""

    files: dict[str, int] = field(default_factory=dict)  # path -> id
    directories: set[str] = field(default_factory=set)

    def apply(self, change: Change) -> None:
        for path in change.removes:
            self.files.pop(path, None)
        self.files.update(change.adds)
        for path, is_made in change.directories.items():
            (self.directories.add if is_made else self.directories.discard)(path)

    def copy(self) -> Names:
        return Names(dict(self.files), set(self.directories))

    def reachable(self) -> Names:
        """Return the names without those below a directory that does not exist."""
        directories: set[str] = set()
        for path in sorted(self.directories):
            if _parent(path) in directories | {ROOT}:
                directories.add(path)
        files = {path: file for path, file in self.files.items() if _parent(path) in directories | {ROOT}}
        return Names(files, directories)


def _parent(path: str) -> str:
    return posixpath.dirname(path) or ROOT


@dataclass
class NameHistory:
    """Changes of names. `cached`: the names that the program sees; `durable`: those that survive a loss of power."""

    cached: Names = field(default_factory=Names)
    durable: Names = field(default_factory=Names)
    pending: list[Change] = field(default_factory=list)
    inodes: dict[int, int] = field(default_factory=dict)  # id -> inode
    lost: dict[int, list[list[int]]] = field(default_factory=dict)  # id -> ranges; see platter.c
    next_id: int = 1

    # ---- what the library says

    def read(self, log: str) -> None:
        """Apply the log of one process, from its begin on."""
        for change in self.pending:
            change.number = BEFORE_THIS_PROCESS
        number = 0
        for line in log.splitlines():
            kind, *words = line.split("\t")
            if kind in "curmk":
                number += 1
                self._changed(number, kind, words)
            elif kind == "s":
                self._synced(words[0], int(words[1]))
            else:
                self._lost_or_found(kind, *map(int, words))

    def _changed(self, number: int, kind: str, words: list[str]) -> None:
        if kind == "c":
            file, inode, path = int(words[0]), int(words[1]), words[2]
            self.inodes[file] = inode
            self.next_id = max(self.next_id, file + 1)
            self.change(Change(number, [], {path: file}))
        elif kind == "u":
            self.change(Change(number, [words[0]], {}))
        elif kind == "r":
            self._renamed(number, *words)
        else:
            self.change(Change(number, [], {}, {words[0]: kind == "m"}))

    def _renamed(self, number: int, before: str, after: str) -> None:
        file = self.cached.files[before]
        if _parent(before) == _parent(after):
            self.change(Change(number, [before], {after: file}))
        else:  # two directories, each with a sync of its own
            self.change(Change(number, [], {after: file}))
            self.change(Change(number, [before], {}))

    def change(self, change: Change) -> None:
        self.cached.apply(change)
        self.pending.append(change)

    def _synced(self, directory: str, up_to: int) -> None:
        waiting: list[Change] = []
        for change in self.pending:
            if change.directory == directory and change.number <= up_to:
                self.durable.apply(change)
            else:
                waiting.append(change)
        self.pending = waiting

    def _lost_or_found(self, kind: str, file: int, first: int, end: int) -> None:
        ranges = self.lost.setdefault(file, [])
        if kind == "l":
            ranges.append([first, end])
        else:
            self.lost[file] = [part for old in ranges for part in _without(old, first, end)]

    # ---- what the disk shows

    def look(self, files: dict[str, int], directories: set[str]) -> None:
        """Add changes that a killed process made but did not log. `files`: path -> inode."""
        for path in sorted(directories - self.cached.directories):
            self.change(Change(BEFORE_THIS_PROCESS, [], {}, {path: True}))
        known = {path: self.inodes[file] for path, file in self.cached.files.items()}
        vanished = {known[path]: path for path in known if path not in files}
        for path, inode in files.items():
            if known.get(path) == inode:
                continue
            if inode in vanished:
                self._renamed(BEFORE_THIS_PROCESS, vanished.pop(inode), path)
            else:
                self.inodes[self.next_id] = inode
                self.change(Change(BEFORE_THIS_PROCESS, [], {path: self.next_id}))
                self.next_id += 1
        for path in vanished.values():
            self.change(Change(BEFORE_THIS_PROCESS, [path], {}))
        for path in sorted(self.cached.directories - directories, reverse=True):
            self.change(Change(BEFORE_THIS_PROCESS, [], {}, {path: False}))

    # ---- loss of power

    def after_power_loss(self, chance: random.Random | None) -> Names:
        """Draw the names that survive a loss of power; without `chance` only the durable ones do."""
        names = self.durable.copy()
        by_directory: dict[str, list[Change]] = {}
        for change in self.pending:
            by_directory.setdefault(change.directory, []).append(change)
        for changes in by_directory.values():
            for change in changes[: chance.randint(0, len(changes)) if chance else 0]:
                names.apply(change)
        return names.reachable()


def _without(old: list[int], first: int, end: int) -> Iterator[list[int]]:
    for part in ([old[0], min(old[1], first)], [max(old[0], end), old[1]]):
        if part[0] < part[1]:
            yield part
