"""A process that stands still, and another one that lets it go on, whatever becomes of us."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import NoReturn

from chaos.cluster.provisioned.on_host.outliving import outlive_parent


def born(pid: int) -> str | None:
    """When a process was started, so that its number cannot be taken for another one's; None: there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


class Guard:
    """A process stands still from now on; another one lets it go on when we are gone, or after a bound."""

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
