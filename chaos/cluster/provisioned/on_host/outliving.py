"""A child process that outlives its parent: what has to be undone is undone by it, however the parent went."""

from __future__ import annotations

import os
import signal


def outlive_parent() -> None:
    """Called in the child. What asks the parent to end does not end it, and it holds none of the connection's streams,
    which would not close as long as it does."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
