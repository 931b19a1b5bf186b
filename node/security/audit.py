"""Audit log of logins, refusals and administration: one JSON object a line, in a file of bounded size.

Rules never broken: two files of half the bound at most; a flood of unknown peers is counted, not written (LINES_PER_S),
so that it cannot wash away earlier lines; a disk that takes no more is told to the log once, and no client is refused
for it. No credential is ever written.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

log = logging.getLogger("holdfast.security")

MOST_BYTES = 64 * 1024 * 1024
LINES_PER_S = 100
"""Most lines of refusals in a second. Administration is always written."""


class AuditLog:
    def __init__(self, path: str = "", most_bytes: int = MOST_BYTES, now_s: Callable[[], float] = time.time) -> None:
        self._path = Path(path) if path else None
        self._half = most_bytes // 2
        self._now_s = now_s
        self._file: TextIO | None = None
        self._lock = threading.Lock()  # mechanisms refuse in threads
        self._second = 0
        self._written = 0
        self._left_out = 0
        self._told = False

    def note(self, event: str, *, often: bool = False, **facts: object) -> None:
        """Write a line. `often`: peers can cause the event as often as they like, so it is bounded."""
        if self._path is None:
            return
        with self._lock:
            if not often or self._has_room():
                self._write(event, facts)

    def _has_room(self) -> bool:
        second = int(self._now_s())
        if second != self._second:
            left_out, self._left_out = self._left_out, 0
            self._second, self._written = second, 0
            if left_out:
                self._write("left-out", {"lines": left_out})
        self._written += 1
        self._left_out += self._written > LINES_PER_S
        return self._written <= LINES_PER_S

    def _write(self, event: str, facts: dict[str, object]) -> None:
        now_s = self._now_s()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1000):03d}Z"
        line = json.dumps({"at": at, "event": event, **facts}, ensure_ascii=True, default=str) + "\n"
        try:
            self._open_for(len(line)).write(line)
        except OSError as error:
            if not self._told:
                self._told = True
                log.error("the audit log %s cannot be written, and lacks what happens now: %s", self._path, error)
        else:
            self._told = False

    def _open_for(self, size: int) -> TextIO:
        assert self._path is not None
        if self._file is not None and self._file.tell() + size > self._half:
            self._file.close()
            self._file = None
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        if self._file is None:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            self._file = os.fdopen(descriptor, "a", buffering=1, encoding="ascii")
        return self._file

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
