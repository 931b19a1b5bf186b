"""Child processes that cannot outlive their parent, however it ends.

The problem: a test run or a chaos run that is itself killed must leave no node behind, and nobody is there then to kill
one. The kernel can: with PR_SET_PDEATHSIG a child dies when its parent does. Its trap: the "parent" is the *thread*
that made the child, so a node that a worker thread started is killed when the pool ends that thread, with the process
and the test in the best of health. The rule: one thread makes every child, and lives as long as the process.

The signal is asked for by a small program that then becomes the wanted one. Not by a `preexec_fn`: that makes Python
fork, and in a process where gRPC's threads run the child may abort before its exec.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

BECOME = (
    "import ctypes, os, signal, sys; "
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0); "  # PR_SET_PDEATHSIG outlives exec
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""For `python -c`: the program named by the arguments, which dies with the thread that started it."""

_maker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="makes-processes")
"""Its one thread ends when the interpreter does."""


def spawn(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start the program; it dies with this process. The options are those of `subprocess.Popen`."""
    words = [sys.executable, "-I", "-S", "-c", BECOME, *command]  # it needs no packages, and nobody waits for them
    return _maker.submit(lambda: subprocess.Popen(words, **options)).result()
