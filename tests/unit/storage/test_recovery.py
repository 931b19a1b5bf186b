"""Whatever is torn off by a crash, what comes back is a state the store was in, and none from before the last sync."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from node.storage import DiskOptions, StorageDamaged, Store
from node.storage.wal import write_path
from tests.unit.storage.support import WHO, copy_as_killed, copy_files, entry_key, newest

TINY = DiskOptions(
    segment_bytes=6_000,
    separate_bytes=200,
    memtable_bytes=2_000,
    replay_bytes=20_000,
    unsynced_bytes=1 << 30,
    garbage_floor_bytes=4_000,
    garbage_share=0.3,
    move_bytes=1_000,
)

WAYS: Final = {"through the page cache": "never", "past it": "synced", "past it without a sync": "drained"}

State = dict[bytes, bytes]


def options(seed: int) -> DiskOptions:
    """Every other story is told on a file system that gets full: there entries move without other writes, too."""
    return replace(TINY, short_share=2.0 if seed % 2 else 0.0)


@pytest.fixture(autouse=True, params=list(WAYS))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """On which the records go to the disk."""
    monkeypatch.setattr(sys.modules[__name__], "TINY", replace(TINY, direct=WAYS[request.param]))
    monkeypatch.setattr(write_path, "SYNCED_FROM_BYTES", 2_000)
    monkeypatch.setattr(write_path, "DRAINED_FROM_BYTES", 2_000)
    return str(request.param)


def entries_of(group: int) -> tuple[bytes, bytes]:
    """Bounds of a group's entries, as those who erase it name them."""
    owner = entry_key(group, 0)[:9]
    return owner, owner + b"\xff" * 9


def contents(disk: Store) -> State:
    return {key: value for key, value in disk.scan(b"", b"\xff") if key != b"m"}


class Story:
    """Random writes as a node makes them, with the state after each, and how far a sync has come."""

    def __init__(self, disk: Store, seed: int) -> None:
        self.disk = disk
        self.chance = random.Random(seed)
        self.states: list[State] = [contents(disk)]
        self.durable = 0
        self.last = dict.fromkeys(range(4), 0)
        self.first = dict.fromkeys(range(4), 1)

    def step(self) -> None:
        steps = (self.write, self.trim, self.sync, self.reclaim, self.move, self.erase)
        self.chance.choices(steps, [24, 4, 6, 3, 4, 1])[0]()

    def write(self) -> None:
        batch, state = self.disk.batch(), dict(self.states[-1])
        self._fill(batch, state)
        self._write(batch, state)

    def erase(self) -> None:
        """A group is erased, and may be opened again by the same batch: its log begins anew."""
        batch, state = self.disk.batch(), dict(self.states[-1])
        group = self.chance.randrange(4)
        if self.chance.random() < 0.2:
            self._fill(batch, state)
        batch.delete_range(*entries_of(group))
        for key in [key for key in state if entries_of(group)[0] <= key < entries_of(group)[1]]:
            del state[key]
        self.first[group], self.last[group] = 1, 0
        if self.chance.random() < 0.5:
            self._fill(batch, state)
        self._write(batch, state)

    def _fill(self, batch: Any, state: State) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            # Group 3 is seldom written and never trimmed: it keeps a little in many segments.
            group = self.chance.choices(range(4), [10, 10, 5, 1])[0]
            if self.chance.random() < 0.1 and self.last[group] > self.first[group]:
                self.last[group] -= 1  # a conflict: the last entry is replaced
            self.last[group] += 1
            key = entry_key(group, self.last[group])
            state[key] = self.chance.randbytes(self.chance.choice([10, 150, 250, 900, 2500]))
            batch.put(key, state[key])
            hard = b"h" + bytes([group])
            state[hard] = self.chance.randbytes(20)
            batch.put(hard, state[hard])

    def trim(self) -> None:
        group = self.chance.randrange(3)
        up_to = self.chance.randrange(self.first[group], self.last[group] + 1) if self.last[group] else 1
        self.first[group] = max(self.first[group], up_to)
        batch = self.disk.batch()
        batch.delete_range(entry_key(group, 0), entry_key(group, up_to))
        batch.delete(b"h" + bytes([group]))
        gone = {key for key in self.states[-1] if entry_key(group, 0) <= key < entry_key(group, up_to)}
        gone.add(b"h" + bytes([group]))
        self._write(batch, {key: value for key, value in self.states[-1].items() if key not in gone})

    def _write(self, batch, state: State) -> None:  # type: ignore[no-untyped-def]
        self.disk.write(batch)
        self.states.append(state)

    def sync(self) -> None:
        self.disk.sync()
        self.durable = len(self.states) - 1

    def reclaim(self) -> None:
        self.disk.reclaim()
        self.durable = len(self.states) - 1

    def move(self) -> None:
        self.disk.move(self.chance.choice([1, 2_000, 20_000]))

    def check(self, recovered: State) -> int:
        """Which state it is; it must not be older than the last sync."""
        for number in range(len(self.states) - 1, self.durable - 1, -1):
            if self.states[number] == recovered:
                return number
        raise AssertionError(
            f"no state from {self.durable} to {len(self.states) - 1}; "
            f"older one: {[number for number, state in enumerate(self.states) if state == recovered]}"
        )


@contextmanager
def story(path: Path, seed: int, steps: int) -> Iterator[Story]:
    with Store(path, WHO, options(seed)) as disk:
        told = Story(disk, seed)
        for _ in range(steps):
            told.step()
        yield told


class Synced:
    """What really was made durable, by the calls to the system: the store's own word is not taken for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lengths: dict[str, int] = {}
        self._sync, self._write = os.fdatasync, os.pwritev
        monkeypatch.setattr(os, "fdatasync", self._fdatasync)
        monkeypatch.setattr(os, "pwritev", self._pwritev)

    def _fdatasync(self, file: int) -> None:
        length = os.fstat(file).st_size
        self._sync(file)
        self._lengths[_path_of(file)] = length

    def _pwritev(self, file: int, pieces: list[bytes | memoryview], at: int) -> int:
        written = self._write(file, pieces, at)
        durably = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DSYNC
        if durably and self._lengths.get(_path_of(file), 0) >= at:  # of what is in front it makes nothing durable
            self._lengths[_path_of(file)] = at + written
        return written

    def length(self, path: Path) -> int:
        return self._lengths.get(str(path), 0)


def _path_of(file: int) -> str:
    return os.readlink(f"/proc/self/fd/{file}")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    return Synced(monkeypatch)


def tear(killed: Path, origin: Path, chance: random.Random, synced: Synced) -> None:
    """What a loss of power does to pages that were not synced: they are gone, or something else is there."""
    segment = newest(killed / "journal", "*.seg")
    size = os.path.getsize(segment)
    safe = synced.length(origin / "journal" / segment.name)
    if size <= safe:
        return
    at = chance.randrange(safe, size)
    how = chance.choice(["cut", "zeros", "noise"])
    if how == "cut":
        os.truncate(segment, at)
    else:
        with open(segment, "r+b") as file:
            file.seek(at)
            file.write(bytes(size - at) if how == "zeros" else chance.randbytes(size - at))


@pytest.mark.parametrize("seed", range(12))
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, seed: int, way: str) -> None:
    """Past the page cache it is as a loss of power, before something was written, too."""
    with story(tmp_path / "data", seed, 120) as told:
        if way == "past it" and seed % 2:
            written_out(told.disk)
            told.durable = len(told.states) - 1
        killed = copy_as_killed(told.disk, tmp_path / "killed")
        if way == "through the page cache":
            told.durable = len(told.states) - 1
        with Store(killed, WHO, TINY) as again:
            told.check(contents(again))


@pytest.mark.parametrize("seed", range(25))
def test_a_loss_of_power_loses_at_most_what_was_not_synced(tmp_path: Path, seed: int, synced: Synced) -> None:
    with story(tmp_path / "data", seed, 100 + seed) as told:
        for attempt in range(6):
            killed = copy_as_killed(told.disk, tmp_path / f"killed-{attempt}")
            tear(killed, told.disk.path, told.chance, synced)
            for _ in range(2):  # a second crash right after the recovery changes nothing
                with Store(killed, WHO, TINY) as again:
                    told.check(contents(again))
                    killed = copy_as_killed(again, killed.with_name(killed.name + "-again"))
            for _ in range(8):
                told.step()


@pytest.mark.parametrize("seed", range(6))
def test_life_goes_on_after_each_of_many_crashes(tmp_path: Path, seed: int, synced: Synced) -> None:
    """Also space: after everything was trimmed, only the segments in use are left."""
    path = tmp_path / "0"
    states: list[State] = [{}]
    for crash in range(8):
        with Store(path, WHO, options(crash)) as disk:
            told = Story(disk, seed * 100 + crash)
            assert told.states[0] in states
            for key in told.states[0]:
                if key[:1] == b"e":
                    group = int.from_bytes(key[1:9], "big")
                    told.last[group] = max(told.last[group], int.from_bytes(key[9:], "big"))
                    told.first[group] = 1
            for _ in range(60):
                told.step()
            states = told.states[told.durable :]
            path = copy_as_killed(disk, tmp_path / str(crash + 1))
            tear(path, disk.path, told.chance, synced)
    with Store(path, WHO, TINY) as disk:
        batch = disk.batch()
        batch.delete_range(b"e", b"f")
        disk.write(batch)
        for _ in range(3):
            disk.reclaim()
        assert disk.stats()["journal_segments"] <= 2
        assert disk.stats()["journal_live_bytes"] == 0


def test_every_cut_of_an_unsynced_tail_gives_a_prefix(tmp_path: Path) -> None:
    with Store(tmp_path / "data", WHO, replace(TINY, segment_bytes=1 << 20)) as disk:
        told = Story(disk, 1)
        told.write()
        told.sync()
        for _ in range(3):
            told.write()
        written_out(disk)
        killed = copy_as_killed(disk, tmp_path / "killed")
        synced, end = disk._synced.offset, disk._wal.end.offset
    segment = newest(killed / "journal", "*.seg")
    found = []
    for size in range(synced, end, 131):
        copy = copy_files(killed, tmp_path / f"cut-{size}")
        os.truncate(copy / "journal" / segment.name, size)
        with Store(copy, WHO, TINY) as again:
            found.append(told.check(contents(again)))
    assert found == sorted(found)
    assert set(found) == {1, 2, 3}


def written_out(disk: Store) -> None:
    """What the store holds to write it past the page cache is in its file, and not synced."""
    wal = disk._wal
    assert wal is not None
    wal.segment.drain()


class NoDisk:
    """Lets a story be told without a disk, to know what it says."""

    def batch(self) -> Any:
        return self

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def put(self, *row: bytes) -> None:
        """Story keeps the states itself."""

    delete = delete_range = put

    def write(self, batch: object) -> None:
        """Likewise."""

    def sync(self) -> None:
        """Likewise."""

    reclaim = sync

    def move(self, most_bytes: int) -> None:
        """Likewise."""


def tell_until_killed(path: Path, seed: int, direct: Any) -> None:
    """The child's side: a line for each step that is done."""
    write_path.SYNCED_FROM_BYTES = write_path.DRAINED_FROM_BYTES = 2_000  # this process was not patched
    with Store(path, WHO, replace(options(seed), direct=direct)) as disk:
        told = Story(disk, seed)
        while True:
            told.step()
            os.write(1, b"%d %d\n" % (len(told.states) - 1, told.durable))


@pytest.mark.parametrize("seed", range(4))
def test_a_real_kill_in_the_middle_of_everything(tmp_path: Path, seed: int, way: str) -> None:
    """Flushes, compactions and removals included: a process is killed while it works at full speed."""
    program = (
        "from pathlib import Path; from tests.unit.storage.test_recovery import tell_until_killed; "
        f"tell_until_killed(Path({str(tmp_path)!r}), {seed}, {WAYS[way]!r})"
    )
    root = Path(__file__).parents[3]
    chance = random.Random(seed)
    with subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(chance.randrange(50, 300))]
        assert lines[-1], "the child died by itself"
        child.kill()
        lines += child.stdout.read().splitlines(keepends=True)
    written, durable = map(max, zip(*(map(int, line.split()) for line in lines if line.endswith(b"\n")), strict=True))

    told = Story(NoDisk(), seed)  # type: ignore[arg-type]
    while len(told.states) <= written + 2:
        told.step()
    told.durable = durable if way == "past it" else written  # a kill takes nothing from the page cache
    with Store(tmp_path, WHO, TINY) as again:
        told.check(contents(again))


@pytest.mark.parametrize("seed", range(5))
def test_rocksdb_never_knows_what_the_journal_could_still_forget(tmp_path: Path, seed: int, synced: Synced) -> None:
    """A flush makes tables durable; the journal up to there must be durable before, also if nobody asks for syncs."""
    with Store(tmp_path / "data", WHO, replace(TINY, segment_bytes=200_000)) as disk:
        told = Story(disk, seed)
        flushed = disk._switched
        for _ in range(400):
            told.chance.choices([told.write, told.trim], [9, 1])[0]()
            if disk._switched != flushed:
                flushed = disk._switched
                assert synced.length(disk._wal.path(flushed.segment)) >= flushed.offset
        assert flushed.offset > 36
        killed = copy_as_killed(disk, tmp_path / "killed")
        tear(killed, disk.path, told.chance, synced)
        with Store(killed, WHO, TINY) as again:
            told.check(contents(again))


def test_a_segment_stays_while_a_recovery_would_begin_before_it_was_unneeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB's flush is not done when `reclaim` looks: the tables that a crash would leave still need the segments."""
    with Store(tmp_path / "data", WHO, replace(TINY, memtable_bytes=1 << 20, replay_bytes=1 << 30)) as disk:
        for index in range(1, 40):
            batch = disk.batch()
            batch.put(entry_key(1, index), b"v" * 1000)
            disk.write(batch)
        batch = disk.batch()
        batch.delete_range(entry_key(1, 0), entry_key(1, 35))
        disk.write(batch)
        with monkeypatch.context() as slow:
            slow.setattr(disk, "_tables_written", lambda db: False)
            assert disk.reclaim().segments == 0
        assert disk.reclaim().segments > 3


def test_a_trim_that_is_not_durable_costs_no_entry(tmp_path: Path, synced: Synced) -> None:
    """`reclaim` syncs before it removes: a loss of power right after it must not bring rows without values back."""
    with Store(tmp_path / "data", WHO, TINY) as disk:
        batch = disk.batch()
        for index in range(1, 40):
            batch = disk.batch()
            batch.put(entry_key(1, index), b"v" * 1000)
            disk.write(batch)
        batch = disk.batch()
        batch.delete_range(entry_key(1, 0), entry_key(1, 35))
        disk.write(batch)
        assert disk.reclaim().segments > 3
        killed = copy_as_killed(disk, tmp_path / "killed")
        tear(killed, disk.path, random.Random(1), synced)
    with Store(killed, WHO, TINY) as again:
        assert [key for key, _ in again.scan(b"e", b"f")] == [entry_key(1, index) for index in range(35, 40)]


def test_a_missing_record_in_the_middle_is_damage_even_if_nobody_synced(tmp_path: Path) -> None:
    with Store(tmp_path / "data", WHO, TINY) as disk:
        for index in range(1, 30):
            batch = disk.batch()
            batch.put(entry_key(1, index), b"v" * 1000)
            disk.write(batch)
        killed = copy_as_killed(disk, tmp_path / "killed")
    segments = sorted((killed / "journal").glob("*.seg"))
    os.truncate(segments[-2], os.path.getsize(segments[-2]) - 2500)
    with pytest.raises(StorageDamaged):
        Store(killed, WHO, TINY)
