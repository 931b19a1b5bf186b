"""A wall clock that is wrong on order, for real processes.

Only a wrong clock shows how a node behaves with a wrong clock. The system's clock belongs to all processes of the
machine, and a time namespace of Linux shifts only the other clocks. So a module that Python imports at its start
(`injected/sitecustomize.py`) shifts `time.time_ns`, which a node asks for the time of day. It reads the shift from a
file at each call. Everything else (timers, the monotonic clock, libraries in C) is right, as it is while somebody sets
a clock. `time.time` is right, too: gRPC computes deadlines from it for its part in C, and the two must use one clock.

Rejected: a library in front of the C library's clocks. Timeouts that the kernel takes as times of day would then be
wrong, too; no wrong clock causes that.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

VARIABLE = "CHAOS_CLOCK"
INJECTED = Path(__file__).resolve().parent / "injected"


class OffsetClock:
    """Wall clock of the processes that are started with `environment()`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(struct.pack("<q", 0))

    def environment(self) -> dict[str, str]:
        """Return the environment variables that a Python process needs to have this clock."""
        others = [path for path in (os.environ.get("PYTHONPATH"),) if path]
        return {VARIABLE: str(self._file), "PYTHONPATH": os.pathsep.join([str(INJECTED), *others])}

    def set_wrong(self, by_ms: int) -> None:
        """Shift the clock from now on; 0 makes it right again."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", by_ms))
