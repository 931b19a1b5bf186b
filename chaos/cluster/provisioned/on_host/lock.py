"""Lock of a host for one run at a time: two runs would undo each other's faults.

The lock is an abstract socket name in the kernel, not a file, so it ends with its holder. A second name beside it tells
the holder.
"""

from __future__ import annotations

import contextlib
import socket

from chaos.cluster.provisioned.on_host.services import Trouble

NAME = "holdfast-chaos"
NAMES = "/proc/net/unix"
WHO_AT_MOST = 80
"""Most bytes of the holder's text; a socket name has room for 107."""


class Lock:
    """The held lock, until it is closed here and in every forked process. Raises Trouble if another run has it."""

    def __init__(self, who: str, name: str = NAME) -> None:
        told = "".join(one if one.isprintable() else "?" for one in who)
        said = told.encode("ascii", "replace")[:WHO_AT_MOST].decode("ascii")
        self._held = _bound(name)
        if self._held is None:
            raise Trouble("busy", f"another run is at work here, or what it did is still being undone: {holder(name)}")
        self._says = _bound(f"{name} of {said}")

    def close(self) -> None:
        for held in (self._held, self._says):
            if held is not None:
                held.close()


def _bound(name: str) -> socket.socket | None:
    """Bind an abstract socket name; None if another process has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(f"\0{name}")
    except OSError:
        held.close()
        return None
    return held


def holder(name: str = NAME) -> str:
    mark = f"@{name} of "
    with contextlib.suppress(OSError), open(NAMES, errors="replace") as file:
        for line in file:
            if mark in line:
                return line.partition(mark)[2].strip()
    return "it does not say whose"
