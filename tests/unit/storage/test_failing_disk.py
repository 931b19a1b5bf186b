"""The store on a disk that fails at the moments that matter: what it called durable is there, and what the platter
has not is never taken for durable."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from chaos.disk import FaultyDisk
from chaos.disk.orders import Call
from tests.disks import disk_on_order
from tests.unit.storage.on_order import Program, run


@pytest.fixture(params=["through the page cache", "past it"])
def disk(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    if request.param == "past it":
        monkeypatch.setenv("HOLDFAST_TEST_DIRECT", "synced")
    return disk_on_order(tmp_path)


THREE_DURABLE = "disk = Store(home, WHO); fill(disk, 0, 3); disk.sync(); when_told()"
CONTENT = "disk = Store(home, WHO); tell(entries(disk)); os._exit(0)"


RECORDS = """
    from node.storage.wal.write_ahead_log import WriteAheadLog
    from node.storage.wal.record_format import WalPosition
    tell(sum(1 for _ in WriteAheadLog(home / "journal").scan(WalPosition(0, 0), WalPosition(0, 0))))
"""
"""What the write-ahead log has, whatever the store thinks of it."""


@pytest.mark.parametrize("other", ["disk.sync", "disk.reclaim", "disk._sync_in_background"])
def test_an_error_that_another_thread_was_told_of_is_no_success(disk: FaultyDisk, other: str) -> None:
    """Two threads sync one file at once, and Linux tells one of them."""
    program = Program(
        disk,
        f"""
        {THREE_DURABLE}
        fill(disk, 3, 2)
        outcomes = []
        turn = threading.Thread(target=lambda: outcomes.append(outcome(disk.sync)))
        turn.start()
        while not struck.exists(): time.sleep(0.01)
        outcome({other})
        turn.join()
        tell(outcomes[0], outcome(disk.sync))
        os._exit(0)
    """,
    )
    program.wait_for("ready")
    disk.orders.delay("sync", "*.seg", 0.5, most=1)
    order = disk.orders.fail("sync", "*.seg", first=2)
    program.go_on()
    turn, after = program.end().split()
    disk.orders.withdraw(order)
    disk.lose_power()
    durable = int(run(disk, RECORDS)) - 1  # but for the first, with the node's identity
    assert durable == 5 if turn == "done" else durable >= 3
    assert after == "SyncFailed", "who was told once is told for ever"


@pytest.mark.parametrize("other", ["disk.sync", "fill, disk, 4, 1"], ids=["a sync", "a new segment"])
def test_who_waited_for_a_sync_that_failed_fails(disk: FaultyDisk, other: str) -> None:
    program = Program(
        disk,
        f"""
        disk = Store(home, WHO, SMALL); fill(disk, 0, 3); disk.sync(); when_told()
        fill(disk, 3, 1, size=SMALL.segment_bytes)  # the next write begins a segment
        outcomes = []
        first = threading.Thread(target=lambda: outcomes.append(outcome(disk.sync)))
        first.start()
        while not struck.exists(): time.sleep(0.01)
        outcomes.append(outcome({other}))
        first.join()
        tell(*outcomes, outcome(fill, disk, 5, 1), outcome(disk.sync))
        os._exit(0)
    """,
    )
    program.wait_for("ready")
    disk.orders.delay("sync", "*.seg", 0.5, most=1)
    disk.orders.fail("sync", "*.seg", first=1)
    program.go_on()
    assert "done" not in program.end()


def failed_sync(disk: FaultyDisk, pattern: str = "*.seg") -> None:
    """A store ends itself, since a sync has failed; the page cache has what the platter has not."""
    program = Program(
        disk,
        f"""
        {THREE_DURABLE}
        fill(disk, 3, 2)
        tell(outcome(disk.sync))
        disk.close()
    """,
    )
    program.wait_for("ready")
    order = disk.orders.fail("sync", pattern)
    program.go_on()
    assert program.end() == "SyncFailed\n"
    disk.orders.withdraw(order)


def test_after_a_failed_sync_nobody_goes_on_with_the_data(disk: FaultyDisk) -> None:
    failed_sync(disk)
    for _ in range(2):
        said = run(
            disk,
            """
            try: Store(home, WHO)
            except StorageError as error: tell(error)
        """,
        )
        for word in (r"data[^ ]*", "sync", "Input/output error", "disk", "Replace the node", "holdfast node readmit"):
            assert re.search(word, said), said


def test_where_the_failure_cannot_be_noted_the_platter_is_read_and_not_the_cache(disk: FaultyDisk) -> None:
    """What a start takes for durable is on the platter, although the page cache had more."""
    disk.orders.fail("write", "data/failed", most=0)
    disk.orders.fail("open", "data/failed", most=0)
    program = Program(
        disk,
        f"""
        {THREE_DURABLE}
        fill(disk, 3, 2)
        tell(outcome(disk.sync))
        disk.close()
    """,
    )
    program.wait_for("ready")
    disk.orders.fail("sync", "*.seg")
    disk.orders.fail("write", "data/synced", most=0)
    program.go_on()
    assert program.end() == "SyncFailed\n"
    disk.orders.withdraw()
    assert run(disk, CONTENT) == "[0, 1, 2]\n"
    disk.lose_power()
    assert run(disk, CONTENT) == "[0, 1, 2]\n"


@pytest.mark.parametrize("pattern", ["*.sst", "*/MANIFEST-*"])
def test_a_table_or_manifest_that_cannot_be_synced_ends_the_store(disk: FaultyDisk, pattern: str) -> None:
    program = Program(
        disk,
        """
        disk = Store(home, WHO, SMALL)
        fill(disk, 0, 3); disk.sync(); when_told()
        for number in range(3, 100):
            result = outcome(lambda: (fill(disk, number, 1, size=500_000), disk.sync()))
            if result != "done": break
        tell(result)
        os._exit(0)
    """,
    )
    program.wait_for("ready")
    number = disk.orders.fail("sync", pattern, most=1)
    program.go_on()
    assert program.end() == "SyncFailed\n"
    assert disk.orders.struck(number)
    assert "Failed" in run(disk, "tell(outcome(Store, home, WHO))")


@pytest.mark.parametrize("call", ["sync", "sync-directory", "open", "rename", "write"])
def test_a_first_start_may_lose_power_at_any_call(disk: FaultyDisk, call: Call) -> None:
    """The next one is a first start again, or goes on with what there is; it is never refused."""
    chance = random.Random(call)
    number = 1
    while True:
        order = disk.orders.kill_at(call, "*", number)
        began = run(disk, "Store(home, WHO); tell('done'); os._exit(0)", None)
        disk.orders.withdraw(order)
        if began:
            break
        if chance.random() < 0.5:
            disk.lose_power(chance)
            run(disk, "Store(home, WHO); os._exit(0)")
        disk.lose_power(chance)
        run(disk, "Store(home, WHO).close()")
        shutil.rmtree(disk.root / "data")
        disk.format()
        number += chance.randint(1, 4) if call.startswith("sync") else chance.randint(5, 20)
    assert number > 1
