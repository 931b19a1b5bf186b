"""A wall clock that is wrong on order, for real processes.

Problem: what a node does when its clock is wrong can be shown only with a clock that is; the system's belongs to all
processes of the machine, and a time namespace of Linux shifts the other clocks, not this one. So Python is told another
time: a module that it imports at its start (`injected/sitecustomize.py`) shifts `time.time_ns`, which is what a node
asks for the time of day, by what a file says, and looks there each time. Everything else (timers, the monotonic clock,
libraries in C) goes right, as it does while somebody sets a clock. `time.time` goes right, too: gRPC makes deadlines of
it for its part in C, and the two must have one clock. Rejected: a library in front of the C library's clocks. Timeouts
that are handed to the kernel as times of day would then be wrong, which no wrong clock does.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

VARIABLE = "CHAOS_CLOCK"
INJECTED = Path(__file__).resolve().parent / "injected"


class OffsetClock:
    """Of the processes that are started with `environment()`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(struct.pack("<q", 0))

    def environment(self) -> dict[str, str]:
        """For a process that runs Python, beside what else it needs."""
        others = [path for path in (os.environ.get("PYTHONPATH"),) if path]
        return {VARIABLE: str(self._file), "PYTHONPATH": os.pathsep.join([str(INJECTED), *others])}

    def set_wrong(self, by_ms: int) -> None:
        """From now on; 0: right again."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", by_ms))
