"""Ports for local nodes: those asked for, or ones that are free now.

Rules never broken: a port that was asked for is used or refused with a reason, never silently replaced. Ports that we
choose lie below the range that the system hands to outgoing connections, so that a stopped node finds its port free
again. Two commands that choose at the same time choose different ones: a port that is free when it is chosen has no
listener for the seconds until its node is up, so each command holds what it chose, by a lock that ends with it.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

from holdfast.cli.shared.errors import CliError

USUAL_AMQP_PORT = 5672
USUAL_RPC_PORT = 7101
USUAL_MONITORING_PORT = 9101
_CHOOSE_FROM = range(20_000, 24_000)
"""The chaos runs take theirs above (`chaos/ports.py`)."""
_ATTEMPTS = 200

_held: dict[int, int] = {}
"""Port -> open file whose lock says that this process chose it."""


def is_free(port: int) -> bool:
    """True if a listener on loopback could have the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def consecutive(first: int, count: int, usual: int | None, what: str) -> list[int]:
    """Find `count` free ports from `first` on. first = 0: from `usual` on if it is given and they are free, else
    anywhere."""
    if first:
        ports = list(range(first, first + count))
        if ports[-1] > 65535:
            raise CliError(f"{what} ports {first}..{ports[-1]} do not exist; the last port is 65535")
        taken = [port for port in ports if not is_free(port)]
        if taken:
            raise CliError(
                f"{what} port {taken[0]} is in use", advice="choose other ports, or end what uses it (ss -ltnp)"
            )
        return ports
    starts = [] if usual is None else [usual]
    starts += random.sample(_CHOOSE_FROM[: -count or None], _ATTEMPTS)
    for start in starts:
        ports = list(range(start, start + count))
        # Held first: a node of another command may come up on a free port, and its command let go, between the two.
        if all(_hold(port) and is_free(port) for port in ports):
            return ports
    raise CliError(f"no {count} consecutive free ports were found for {what}")


def _hold(port: int) -> bool:
    """Hold a port for this process. False: it was chosen before, by this process or by one that runs now."""
    if port in _held:
        return False
    directory = Path(tempfile.gettempdir()) / f"holdfast-local-ports-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(directory / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    _held[port] = lock
    return True
