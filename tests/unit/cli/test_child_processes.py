"""Children die with the process that asked for them, and not before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from holdfast.cli.local_cluster import child_processes
from tests.integration.clusters.cluster import wait_until

ROOT = Path(__file__).parents[3]
IDLE = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


def alive(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has waited for."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_child_outlives_the_thread_that_asked_for_it() -> None:
    made: list[subprocess.Popen[bytes]] = []

    def ask() -> None:
        child = child_processes.spawn(IDLE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        made.append(child)
        assert child.stdout is not None
        child.stdout.readline()  # it has asked the kernel by now

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    out, _ = made[0].communicate()  # a child that the kernel has killed does not end in peace
    assert (out, made[0].returncode) == (b"", 0)


def test_a_child_dies_with_the_process_that_asked_for_it() -> None:
    program = (
        "import subprocess, sys; from holdfast.cli.local_cluster import child_processes; "
        f"child = child_processes.spawn({IDLE!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE); "
        "child.stdout.readline(); print(child.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    wait_until(lambda: not alive(child), "the child to die with its parent")
