"""Ports for proxies and nodes of a run.

Problem: a port that is free when it is chosen may be another run's by the time a node listens at it. Rules: each
process takes ports from a stretch of its own, which it holds by a lock that ends with the process, and gives none out
again soon. All lie below those that the system gives to outgoing connections: a way that refuses for a while finds its
port free again, and who knocks at a closed port is never given that very port, which would connect it with itself.
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

_given: dict[int, None] = {}  # in the order given; the oldest ones may be given again


@cache
def _own() -> range:
    """The first stretch that no other process holds."""
    directory = Path(tempfile.gettempdir()) / f"holdfast-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    for first in range(PORTS.start, PORTS.stop, STRETCH):
        held = os.open(directory / str(first), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return range(first, first + STRETCH)  # the file stays open, and with it the lock, as long as the process
        os.close(held)
    raise RuntimeError(f"all stretches of ports from {PORTS.start} to {PORTS.stop - 1} are held; what runs here?")


def free_port() -> int:
    """That nobody listens at."""
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
