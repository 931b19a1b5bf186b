"""Loss of power on the disk on order: what was synced is there, and of the rest whatever chance leaves."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.disk import FaultyDisk
from tests.unit.chaos.disk.conftest import Run, begin
from tests.unit.chaos.disk.operations import Model, program


def tree(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


def test_what_was_synced_is_there_and_nothing_else(disk: FaultyDisk, run: Run) -> None:
    run("""
        file = made("kept", b"synced,"); os.fdatasync(file); sync_names()
        os.write(file, b"not synced")
        made("nameless", b"its bytes only")
        os.fsync(made("no-name-either"))
    """)
    loss = disk.lose_power()
    assert tree(disk.root) == {"kept": b"synced,"}
    assert (loss.names, loss.sectors) == (2, 1)


def test_a_killed_process_loses_nothing_before_the_power_goes(disk: FaultyDisk, run: Run) -> None:
    run('made("a", b"in the page cache"); os.kill(os.getpid(), signal.SIGKILL)', status=-signal.SIGKILL)
    assert run('print(open(at("a")).read())') == "in the page cache\n"
    disk.lose_power()
    assert tree(disk.root) == {}


def test_the_next_process_syncs_what_the_one_before_left(disk: FaultyDisk, run: Run) -> None:
    run('made("a", b"of the first")')
    run('os.fsync(made("a")); sync_names()')
    disk.lose_power()
    assert tree(disk.root) == {"a": b"of the first"}


def test_names_change_when_their_directory_is_synced(disk: FaultyDisk, run: Run) -> None:
    run("""
        os.mkdir(at("d")); sync_names()
        for name in ("d/a", "d/b", "d/c"): os.fsync(made(name, name.encode()))
        sync_names("d")
        os.rename(at("d/a"), at("d/z")); os.unlink(at("d/b")); os.replace(at("d/c"), at("e"))
    """)
    disk.lose_power()
    assert tree(disk.root) == {"d": None, "d/a": b"d/a", "d/b": b"d/b", "d/c": b"d/c"}
    run('os.rename(at("d/a"), at("d/z")); os.unlink(at("d/b")); sync_names("d")')
    disk.lose_power()
    assert tree(disk.root) == {"d": None, "d/z": b"d/a", "d/c": b"d/c"}


def test_a_rename_over_a_file_leaves_the_old_one_or_the_new(disk: FaultyDisk, run: Run) -> None:
    run('os.fsync(made("a", b"old")); sync_names()')
    found = set()
    for seed in range(20):
        run('os.fsync(made("a.new", b"new")); os.rename(at("a.new"), at("a"))')
        disk.lose_power(random.Random(seed))
        found.add((disk.root / "a").read_bytes())
        (disk.root / "a.new").unlink(missing_ok=True)
        (disk.root / "a").write_bytes(b"old")
        disk.format()
    assert found == {b"old", b"new"}


def test_what_lies_below_a_name_that_is_lost_is_lost(disk: FaultyDisk, run: Run) -> None:
    run('os.mkdir(at("d")); os.fsync(made("d/a", b"a")); sync_names("d")')
    disk.lose_power()
    assert tree(disk.root) == {}


@pytest.mark.parametrize("seed", range(12))
def test_any_operations_leave_what_a_model_says(make_disk: Callable[..., FaultyDisk], seed: int) -> None:
    """Random operations, killed at a random one; a model that was written without the library says what may be left."""
    chance = random.Random(seed)
    disk = make_disk(mirrors=True)
    model = Model()
    for life in range(4):
        operations = model.draw(chance, count=60)
        process = begin(disk, program(operations))
        process.communicate(timeout=240)
        assert process.returncode == 0
        assert disk.unseen() == []
        assert tree(disk.root) == model.seen()
        if life % 2:
            continue
        loss = disk.lose_power(chance if seed % 3 else None)
        after = tree(disk.root)
        if seed % 3 == 0:
            assert after == model.durable()
            assert loss.kept_sectors == 0
        else:
            model.judge(after)
        model.continue_with(after)


def test_what_passes_by_the_library_is_found(make_disk: Callable[..., FaultyDisk]) -> None:
    disk = make_disk(mirrors=True)
    process = begin(
        disk,
        """
        import mmap
        file = made("a", bytes(4096)); made("b", b"seen")
        mmap.mmap(file, 4096)[:6] = b"unseen"
        """,
    )
    process.communicate(timeout=240)
    assert process.returncode == 0
    assert disk.unseen() == ["bytes of a"]
