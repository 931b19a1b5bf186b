"""A second process that knows the agent's open faults and undoes them if the agent is killed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, NoReturn

from chaos.cluster.provisioned.on_host.outliving import outlive_parent

TRIES_S = 300.0
"""Time for retries if a fault cannot be undone at once: a service manager is busy, a proxy does not answer."""
PAUSE_S = 1.0


class UndoKeeper:
    """A forked process that undoes the faults that were noted last, once this process is gone.

    The process that makes it must have one thread. `undo` takes the last note; it raises one of `failures` if it must
    be tried again. Files that this process has open (the host's lock) stay open until everything is undone."""

    def __init__(self, undo: Callable[[dict[str, Any]], None], failures: tuple[type[Exception], ...]) -> None:
        reads, self._writes = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            self._keep(reads, undo, failures)
        os.close(reads)

    def note(self, done: dict[str, Any]) -> None:
        """Replace the note: before each fault, and after it was undone. {} means that there is nothing to undo."""
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
    """Return the last note, once no writer is left. A note without its newline is ignored: its fault did not begin."""
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
