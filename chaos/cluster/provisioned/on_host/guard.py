"""Pause of a process, with a second process that resumes it even if this one dies."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import NoReturn

from chaos.cluster.provisioned.on_host.outliving import outlive_parent


def born(pid: int) -> str | None:
    """Return the start time of a process, which tells it from a later one with the same id; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


class Guard:
    """Pause of a process; a forked guard resumes it when this process is gone, or after a bound."""

    def __init__(self, pid: int, bound_s: float) -> None:
        self._pid, self._born = pid, born(pid)
        waits, self._held = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            self._watch(waits, bound_s)
        os.close(waits)
        self._signal(signal.SIGSTOP)

    def _watch(self, waits: int, bound_s: float) -> NoReturn:
        try:
            outlive_parent()
            os.close(self._held)
            select.select([waits], [], [], bound_s)
        finally:
            self._signal(signal.SIGCONT)
            os._exit(0)

    def _signal(self, number: signal.Signals) -> None:
        if self._born is not None and born(self._pid) == self._born:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def release(self) -> None:
        self._signal(signal.SIGCONT)
        os.close(self._held)
        os.waitpid(self._child, 0)
