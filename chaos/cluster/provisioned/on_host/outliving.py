"""Child processes that outlive their parent, to undo its faults however it ended."""

from __future__ import annotations

import os
import signal


def outlive_parent() -> None:
    """Detach this process from its parent; called in the child.

    Signals that end the parent do not end it. And it holds none of the connection's streams, since they would not close
    while it does."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
