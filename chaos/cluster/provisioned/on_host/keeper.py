"""Another process, which knows what the agent has done and not yet undone, and undoes it should the agent be killed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, NoReturn

from chaos.cluster.provisioned.on_host.outliving import outlive_parent

TRIES_S = 300.0
"""For what cannot be undone at once: a service manager that is busy, a proxy that does not answer."""
PAUSE_S = 1.0


class UndoKeeper:
    """Made by a process with one thread. `undo`: of what was noted last; raises `failures` where it has to be tried
    again. What this process has open (the host's lock) stays open until all is undone."""

    def __init__(self, undo: Callable[[dict[str, Any]], None], failures: tuple[type[Exception], ...]) -> None:
        reads, self._writes = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            self._keep(reads, undo, failures)
        os.close(reads)

    def note(self, done: dict[str, Any]) -> None:
        """Before something is done, and when it has been undone. {}: there is nothing to undo."""
        data = json.dumps(done).encode() + b"\n"
        while data:
            data = data[os.write(self._writes, data) :]

    def end(self) -> None:
        os.close(self._writes)
        os.waitpid(self._child, 0)

    def _keep(
        self, reads: int, undo: Callable[[dict[str, Any]], None], failures: tuple[type[Exception], ...]
    ) -> NoReturn:
        try:
            outlive_parent()
            os.close(self._writes)
            if done := _last(reads):
                _until_undone(lambda: undo(done), failures)
        finally:
            os._exit(0)


def _last(reads: int) -> dict[str, Any]:
    """What was noted last, once nobody can note anything any more. A line without its end was never acted upon."""
    kept = b""
    while piece := os.read(reads, 1 << 16):
        whole, end, rest = (kept + piece).rpartition(b"\n")
        kept = whole.rpartition(b"\n")[2] + end + rest
    line = kept.rpartition(b"\n")[0]
    done: dict[str, Any] = json.loads(line) if line else {}
    return done


def _until_undone(undo: Callable[[], None], failures: tuple[type[Exception], ...]) -> None:
    deadline_s = time.monotonic() + TRIES_S
    while True:
        try:
            undo()
            return
        except failures:
            if time.monotonic() > deadline_s:
                return
        time.sleep(PAUSE_S)
