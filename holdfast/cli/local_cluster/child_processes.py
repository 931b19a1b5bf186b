"""Child processes that cannot outlive their parent, however it ends.

An application's tests, or a chaos run, must leave no node behind, even when they are killed. The kernel does that: with
PR_SET_PDEATHSIG a child dies when its parent does. But the "parent" is the *thread* that made the child. If a worker
thread of a pool started a node, the kernel would kill the node when the pool ends that thread. So one thread makes
every child, and lives as long as the process.

A small program asks for the signal and then becomes the wanted program. Rejected: a `preexec_fn`. It makes Python fork,
and in a process where threads of gRPC run the child may abort before its exec.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_ASK = (
    "import ctypes, os, signal, sys; "
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0); "  # PR_SET_PDEATHSIG outlives exec
)
_EXEC = "os.execvp(sys.argv[1], sys.argv[1:])"

BECOME = _ASK + _EXEC
"""Code for `python -c`: it becomes the program named by the arguments, which dies with the thread that started it."""

_maker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="makes-processes")
"""Executor whose one thread makes all child processes; the thread ends with the interpreter."""


def spawn(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a program that dies with this process. The options are those of `subprocess.Popen`."""
    orphaned = f"os.getppid() == {os.getpid()} or os._exit(1); "  # a parent that died before sends no signal
    # Without site packages it starts faster.
    words = [sys.executable, "-I", "-S", "-c", _ASK + orphaned + _EXEC, *command]
    return _maker.submit(lambda: subprocess.Popen(words, **options)).result()
