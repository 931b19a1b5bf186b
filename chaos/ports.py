"""Ports for proxies and nodes of a run.

A port that is free when it is chosen may belong to another run by the time a node listens at it. So each process takes
ports from a range of its own, which it holds by a lock that ends with the process. It does not reuse a port soon.

The ranges are above those of `holdfast cluster up` and below the ephemeral ports, which the system gives to outgoing
connections. So a proxy that refuses for a while finds its port free again. And a client that dials a closed port never
gets that port as its own source port, which would connect it with itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

PORTS = range(24_000, 32_000)
STRETCH = 250

_given: dict[int, None] = {}  # oldest first; the oldest may be reused


@cache
def _own() -> range:
    """Lock and return the first range of ports that no other process holds."""
    directory = Path(tempfile.gettempdir()) / f"holdfast-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    for first in range(PORTS.start, PORTS.stop, STRETCH):
        held = os.open(directory / str(first), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return range(first, first + STRETCH)  # the open file keeps the lock until the process ends
        os.close(held)
    raise RuntimeError(f"all stretches of ports from {PORTS.start} to {PORTS.stop - 1} are held; what runs here?")


def free_port() -> int:
    """Return a port of this process's range at which no program listens."""
    own = _own()
    while len(_given) > STRETCH // 2:
        del _given[next(iter(_given))]
    for port in random.SystemRandom().sample(own, STRETCH):
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _given[port] = None
                return port
    raise RuntimeError(f"of the ports from {own.start} to {own.stop - 1} none is free; what uses them?")
