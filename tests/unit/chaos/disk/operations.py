"""Random operations on files, and a model of what a disk may hold after them; it knows nothing of the library."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

Operation = tuple[str, ...]

NAMES = ("a", "b", "c", "d/a", "d/b")
SECTOR_BYTES = 512
LONGEST_BYTES = 3000


@dataclass
class File:
    seen: bytes = b""
    synced: bytes = b""
    versions: list[bytes] = field(default_factory=lambda: [b""])  # since the sync, that one too

    def become(self, content: bytes) -> None:
        self.seen = content
        self.versions.append(content)

    def sync(self) -> None:
        self.synced = self.seen
        self.versions = [self.seen]


@dataclass
class Model:
    files: dict[str, File] = field(default_factory=dict)
    names: dict[str, File] = field(default_factory=dict)  # durable ones
    maybe: dict[str, set[int]] = field(default_factory=dict)  # what else a name may stand for: ids of files; 0: none
    everything: dict[int, File] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._has_directory = False

    # ---- operations

    def draw(self, chance: random.Random, count: int) -> list[Operation]:
        """And go along with them."""
        operations: list[Operation] = []
        if not self._has_directory:
            self._has_directory = True
            operations += [("mkdir", "d"), ("sync-names", ".")]
        for _ in range(count):
            kind = chance.choice(
                ("write", "write", "append", "cut", "sync", "sync", "sync-names", "rename", "unlink", "fresh")
            )
            operation = getattr(self, f"_{kind.replace('-', '_')}")(chance)
            if operation:
                operations.append(operation)
        return operations

    def _open(self, name: str) -> File:
        if name not in self.files:
            self._set(name, self._known(File()))
        return self.files[name]

    def _known(self, file: File) -> File:
        self.everything[id(file)] = file
        return file

    def _set(self, name: str, file: File | None) -> None:
        if file is None:
            del self.files[name]
        else:
            self.files[name] = file
        self.maybe.setdefault(name, {id(self.names[name]) if name in self.names else 0})
        self.maybe[name].add(id(file) if file else 0)

    def _write(self, chance: random.Random) -> Operation:
        name, offset, data = chance.choice(NAMES), chance.randrange(LONGEST_BYTES), _data(chance)
        file = self._open(name)
        before = file.seen.ljust(offset, b"\0")
        file.become(before[:offset] + data + before[offset + len(data) :])
        return "write", name, str(offset), data.hex()

    def _append(self, chance: random.Random) -> Operation:
        name, data = chance.choice(NAMES), _data(chance)
        file = self._open(name)
        file.become(file.seen + data)
        return "append", name, data.hex()

    def _cut(self, chance: random.Random) -> Operation:
        name, size = chance.choice(NAMES), chance.randrange(LONGEST_BYTES)
        file = self._open(name)
        file.become(file.seen[:size].ljust(size, b"\0"))
        return "cut", name, str(size)

    def _fresh(self, chance: random.Random) -> Operation:
        """Opened so that what it held is gone."""
        name, data = chance.choice(NAMES), _data(chance)
        file = self._open(name)
        file.become(b"")
        file.become(data)
        return "fresh", name, data.hex()

    def _sync(self, chance: random.Random) -> Operation:
        name = chance.choice(NAMES)
        self._open(name).sync()
        return "sync", name

    def _sync_names(self, chance: random.Random) -> Operation:
        directory = chance.choice((".", "d"))
        for name in NAMES:
            if name.startswith("d/") == (directory == "d"):
                self.maybe.pop(name, None)
                self.names.pop(name, None)
                if name in self.files:
                    self.names[name] = self.files[name]
        return "sync-names", directory

    def _rename(self, chance: random.Random) -> Operation | None:
        before, after = chance.choice(NAMES), chance.choice(NAMES)
        if before not in self.files or before == after:
            return None
        file = self.files[before]
        self._set(after, file)
        self._set(before, None)
        return "rename", before, after

    def _unlink(self, chance: random.Random) -> Operation | None:
        name = chance.choice(NAMES)
        if name not in self.files:
            return None
        self._set(name, None)
        return "unlink", name

    # ---- what there is

    def seen(self) -> dict[str, bytes | None]:
        return self._tree({name: file.seen for name, file in self.files.items()})

    def durable(self) -> dict[str, bytes | None]:
        return self._tree({name: file.synced for name, file in self.names.items()})

    def _tree(self, files: dict[str, bytes]) -> dict[str, bytes | None]:
        below: dict[str, bytes | None] = {"d": None, **files}
        return dict(sorted(below.items()))

    def judge(self, after: dict[str, bytes | None]) -> None:
        """Whether the disk may hold this after a loss of power."""
        for name in NAMES:
            certain = {id(self.names[name]) if name in self.names else 0}
            candidates = self.maybe.get(name, certain)
            content = after.get(name)
            assert any(
                content is None if not file else content is not None and possible(self.everything[file], content)
                for file in candidates
            ), f"{name}: {content!r}"

    def continue_with(self, after: dict[str, bytes | None]) -> None:
        self.files = {name: self._known(File(data, data, [data])) for name, data in after.items() if data is not None}
        self.names, self.maybe = dict(self.files), {}


def possible(file: File, content: bytes) -> bool:
    """Each sector as of the sync, or as it was at some time after it."""
    longest = max(map(len, file.versions))
    if len(content) > longest:
        return False
    for at in range(0, len(content), SECTOR_BYTES):
        part = content[at : at + SECTOR_BYTES]
        versions = {version[at : at + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0") for version in file.versions}
        if not any(version.startswith(part) for version in versions):
            return False
    return True


def _data(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 1200))


def program(operations: list[Operation]) -> str:
    return f"""
operations = {operations!r}
flags = {{"append": os.O_APPEND, "fresh": os.O_TRUNC}}
for kind, *words in operations:
    if kind == "mkdir": os.mkdir(at(words[0]))
    elif kind == "sync-names": sync_names(words[0])
    elif kind == "rename": os.rename(at(words[0]), at(words[1]))
    elif kind == "unlink": os.unlink(at(words[0]))
    else:
        file = os.open(at(words[0]), os.O_RDWR | os.O_CREAT | flags.get(kind, 0), 0o644)
        if kind == "write": os.pwritev(file, [bytes.fromhex(words[2])], int(words[1]))
        elif kind in ("append", "fresh"): os.write(file, bytes.fromhex(words[1]))
        elif kind == "cut": os.ftruncate(file, int(words[1]))
        elif kind == "sync": os.fdatasync(file)
        os.close(file)
"""
