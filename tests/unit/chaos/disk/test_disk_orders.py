"""What the disk on order does to single calls."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

from chaos.disk import FaultyDisk
from chaos.disk.orders import Call
from tests.unit.chaos.disk.conftest import Run, begin


def test_the_third_sync_of_the_files_that_match_fails_and_each_open_file_is_told_once(
    disk: FaultyDisk, run: Run
) -> None:
    number = disk.orders.fail("sync", "*.seg", first=3)
    said = run("""
        one, other, two = made("a.seg", b"1"), os.open(at("a.seg"), os.O_RDWR), made("b.log", b"2")
        print([outcome(os.fsync, file) for file in (one, two, one)])
        os.write(one, b"lost")
        print([outcome(os.fdatasync, file) for file in (one, one, other, other, two)])
        print(outcome(os.fsync, os.open(at("a.seg"), os.O_RDWR)), open(at("a.seg")).read())
        sync_names()
    """)
    eio = errno.EIO
    assert said.splitlines() == ["[0, 0, 0]", f"[{eio}, 0, {eio}, 0, 0]", "0 1lost"]
    assert disk.orders.struck(number) == [("sync", "a.seg")]
    assert run('print(open(at("a.seg")).read(), outcome(os.fsync, made("a.seg")))') == "1lost 0\n"
    disk.lose_power()
    assert (disk.root / "a.seg").read_bytes() == b"1\0\0\0\0"  # the length is a matter of the file system


def test_a_sync_waits_for_what_another_one_writes_and_may_never_hear_that_it_failed(disk: FaultyDisk, run: Run) -> None:
    disk.orders.delay("sync", "a", 0.5, most=1)
    disk.orders.fail("sync", "a", first=2)
    said = run("""
        import time
        file, said = made("a", b"x"), []
        def sync(name): said.append((name, outcome(os.fdatasync, file)))
        first = threading.Thread(target=sync, args=("first",)); first.start()
        struck = os.path.join(os.environ["HOLDFAST_DISK_SIDE"], "struck")
        while not os.path.exists(struck): time.sleep(0.01)
        sync("second"); first.join(); sync_names()
        print(sorted(said))
    """)
    disk.lose_power()
    assert (disk.root / "a").read_bytes() == b"\0"
    assert said == f"[('first', 0), ('second', {errno.EIO})]\n" or said == f"[('first', {errno.EIO}), ('second', 0)]\n"


def test_what_another_sync_is_writing_is_there_when_a_sync_ends(disk: FaultyDisk, run: Run) -> None:
    disk.orders.delay("sync", "a", 0.5, most=1)
    run(
        """
        import time
        file = made("a"); sync_names(); os.write(file, b"x")
        threading.Thread(target=os.fdatasync, args=(file,)).start()
        struck = os.path.join(os.environ["HOLDFAST_DISK_SIDE"], "struck")
        while not os.path.exists(struck): time.sleep(0.01)
        os.fdatasync(file)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-signal.SIGKILL,
    )
    disk.lose_power()
    assert (disk.root / "a").read_bytes() == b"x"


def test_a_process_is_killed_at_the_call_that_was_ordered(disk: FaultyDisk, run: Run) -> None:
    disk.orders.kill_at("sync", "b", 2)
    run(
        """
        for name in ("a", "b", "c"): os.fsync(made("b", name.encode())); sync_names(); made(name)
    """,
        status=-signal.SIGKILL,
    )
    disk.lose_power()
    assert {path.name: path.read_bytes() for path in disk.root.iterdir()} == {"b": b"a"}


def test_a_synchronous_write_is_durable_alone_and_strikes_as_a_sync_does(disk: FaultyDisk, run: Run) -> None:
    disk.orders.fail("sync", "a", first=2)
    said = run("""
        plain, durable = made("a", b"p" * 65536), os.open(at("a"), os.O_RDWR | os.O_DSYNC); sync_names()
        print(outcome(os.pwrite, durable, b"durable,", 65536), outcome(os.pwrite, durable, b"failed", 65544))
    """)
    assert said == f"0 {errno.EIO}\n"
    disk.lose_power()
    found = (disk.root / "a").read_bytes()
    assert found[65536:65544] == b"durable,"
    assert found[:65536].count(b"p") < 65536, "of a hundred sectors that nobody synced chance leaves some out"
    assert b"failed" not in found


def test_what_is_written_anew_after_an_error_is_synced_again(disk: FaultyDisk, run: Run) -> None:
    disk.orders.fail("sync", "a")
    said = run("""
        file = made("a", b"x" * 6); outcome(os.fsync, file)
        os.pwrite(file, b"yy", 2); os.fsync(file); sync_names()
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED); print(os.pread(file, 6, 0))
    """)
    assert said == "b'\\x00\\x00yy\\x00\\x00'\n"
    disk.lose_power()
    assert (disk.root / "a").read_bytes() == b"\0\0yy\0\0"


def test_who_forgets_the_cache_reads_what_the_platter_has(disk: FaultyDisk, run: Run) -> None:
    disk.orders.fail("sync", "a", first=2)
    run("""
        file = made("a", b"1111"); os.fsync(file); os.write(file, b"2222"); outcome(os.fsync, file)
        os.write(file, b"3333")
    """)
    said = run("""
        file = made("a")
        print(os.pread(file, 20, 0))
        os.fdatasync(file); os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        print(os.pread(file, 20, 0))
    """)
    assert said.splitlines() == ["b'111122223333'", r"b'1111\x00\x00\x00\x003333'"]


def test_a_directory_that_cannot_be_synced_keeps_its_old_names(disk: FaultyDisk, run: Run) -> None:
    disk.orders.fail("sync-directory", ".")
    assert run('made("a"); print(outcome(sync_names))').split() == [str(errno.EIO)]
    disk.lose_power()
    assert list(disk.root.iterdir()) == []


def test_what_is_named_while_a_directory_is_synced_may_come_too_late(disk: FaultyDisk, run: Run) -> None:
    disk.orders.delay("sync-directory", ".", 0.5)
    run("""
        import time
        made("early")
        syncing = threading.Thread(target=sync_names); syncing.start()
        struck = os.path.join(os.environ["HOLDFAST_DISK_SIDE"], "struck")
        while not os.path.exists(struck): time.sleep(0.01)
        made("late"); syncing.join()
    """)
    disk.lose_power()
    assert [path.name for path in disk.root.iterdir()] == ["early"]


def test_there_is_room_for_so_much(disk: FaultyDisk, run: Run) -> None:
    number = disk.orders.leave_room("*", 10)
    said = run("""
        file = made("a")
        print(os.write(file, b"x" * 6), os.pwrite(file, b"y" * 6, 0), os.write(file, b"z" * 6))
        print(outcome(os.write, file, b"z"), outcome(os.pwrite, file, b"y", 0))
    """)
    assert said.splitlines() == ["6 6 4", f"{errno.ENOSPC} 0"]
    assert len(disk.orders.struck(number)) == 2
    disk.orders.withdraw(number)
    assert run('print(os.write(made("a"), b"w" * 20))') == "20\n"


def test_a_write_is_short_as_ordered_and_what_it_wrote_counts(disk: FaultyDisk, run: Run) -> None:
    disk.orders.shorten("a", 3, first=2)
    said = run("""
        file = made("a")
        print([os.pwritev(file, [b"ab", b"cd"], 4 * number) for number in range(3)])
        os.fsync(file); sync_names()
    """)
    assert said == "[4, 3, 4]\n"
    disk.lose_power()
    assert (disk.root / "a").read_bytes() == b"abcdabc\0abcd"


def test_any_kind_of_call_can_fail(disk: FaultyDisk, run: Run) -> None:
    calls: tuple[tuple[Call, str], ...] = (
        ("open", "o"),
        ("rename", "r"),
        ("unlink", "u"),
        ("truncate", "t"),
        ("read", "d"),
        ("write", "w"),
    )
    for call, name in calls:
        disk.orders.fail(call, name, errno.EROFS)
    said = run("""
        made("r"); made("u")
        print(outcome(made, "o"), outcome(os.rename, at("r"), at("x")), outcome(os.unlink, at("u")),
              outcome(os.ftruncate, made("t"), 3), outcome(os.read, made("d"), 3), outcome(made, "w", b"x"))
        print(sorted(os.listdir(root)))
    """)
    assert said.splitlines() == [" ".join([str(errno.EROFS)] * 6), "['d', 'r', 't', 'u', 'w']"]


def test_orders_change_while_the_process_runs(disk: FaultyDisk) -> None:
    process = begin(
        disk,
        """
        file = made("a")
        for line in sys.stdin:
            os.write(file, b"x")
            print(outcome(os.fsync, file), flush=True)
        """,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def sync() -> int:
        print("now", file=process.stdin, flush=True)
        assert process.stdout is not None
        return int(process.stdout.readline())

    assert sync() == 0
    number = disk.orders.fail("sync", "a", errno.ENOSPC, first=2, every=2, most=0)
    assert [sync() for _ in range(4)] == [0, errno.ENOSPC, 0, errno.ENOSPC]
    disk.orders.fail("sync", "elsewhere")  # what goes on keeps its count
    assert [sync() for _ in range(3)] == [0, errno.ENOSPC, 0]
    disk.orders.withdraw(number)
    assert [sync() for _ in range(2)] == [0, 0]
    process.stdin.close()
    process.stdout.close()
    assert process.wait(60) == 0


def test_what_lies_elsewhere_is_left_alone(disk: FaultyDisk, run: Run, tmp_path: Path) -> None:
    disk.orders.fail("open", "*", most=0)
    run(f'open({str(tmp_path / "elsewhere")!r}, "w").write("x"); os.close(os.open(at("../elsewhere"), os.O_RDONLY))')
    assert (tmp_path / "elsewhere").read_text() == "x"
