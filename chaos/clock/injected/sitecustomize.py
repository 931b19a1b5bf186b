"""Shift of `time.time_ns` that Python imports at its start: see `chaos/clock/__init__.py`."""

from __future__ import annotations

import os
import time

if path := os.environ.get("CHAOS_CLOCK"):
    _file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    _true_ns = time.time_ns

    def time_ns() -> int:
        return _true_ns() + int.from_bytes(os.pread(_file, 8, 0), "little", signed=True) * 1_000_000

    time.time_ns = time_ns
