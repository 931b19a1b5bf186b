"""Named places at which a test may end the process, as a power failure would.

The problem: what is decided in several steps must survive a crash between any two of them, and a crash that comes at a
moment of the clock's choosing hits the gap of a millisecond once in a thousand runs. The rule: without the environment
variable, which only tests set, a place costs one comparison and does nothing. In a simulation, where many nodes are
one process, a test takes the places over with `intercepted`.

The variable names a directory. A process that reaches a place while a file of its name is there, and is the one that
removes it, is killed by the kernel at once: no handler runs, nothing is flushed. So a test arms a place at any time, in
whichever process comes by first, and sees that it was reached.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

VARIABLE = "HOLDFAST_CRASH_POINTS"

_directory = os.environ.get(VARIABLE)


def crash_point(name: str) -> None:
    """End the process here if a test wants it to."""
    if _reached is not None:
        _reached(name)


def _die_if_armed(name: str) -> None:
    assert _directory is not None
    try:
        os.unlink(os.path.join(_directory, name))
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


_reached: Callable[[str], None] | None = None if _directory is None else _die_if_armed


@contextlib.contextmanager
def intercepted(reached: Callable[[str], None]) -> Iterator[None]:
    """Have `reached` called with the name of each place that is passed."""
    global _reached
    before, _reached = _reached, reached
    try:
        yield
    finally:
        _reached = before
