"""What runs beside a test, in its own thread: keeps what went wrong in it, and ends with the test, even if it fails.

A producer that a failed test leaves behind would go on for the rest of the run: it takes processor time from the tests
that follow, and numbers from the `random` that hypothesis watches.
"""

from __future__ import annotations

import threading
import time
from typing import Self

END_WITHIN_S = 180.0

_begun: list[Beside] = []


class Beside:
    """`begin` it, then `join` it, in the way of its own that it has for that."""

    def __init__(self, name: str) -> None:
        self.failure: BaseException | None = None
        self._over = threading.Event()  # it is asked to end
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def begin(self) -> Self:
        _begun.append(self)
        self._thread.start()
        return self

    def _guarded(self) -> None:
        try:
            self._main()
        except BaseException as error:  # noqa: BLE001 - raised by join
            self.failure = error

    def _main(self) -> None:
        raise NotImplementedError

    def join(self, within_s: float = END_WITHIN_S) -> None:
        """Until it has ended; raises what went wrong in it."""
        self._thread.join(within_s)
        if self.failure is not None:
            raise self.failure
        assert not self._thread.is_alive(), f"{self._thread.name} did not end within {within_s:g} s"

    def let_go(self) -> None:
        """It need not finish its work: nobody waits for it any more."""
        self._over.set()


def end_all() -> None:
    """Of what this test began, whatever still runs ends."""
    left = [one for one in _begun if one._thread.is_alive()]
    _begun.clear()
    for one in left:
        one.let_go()
    deadline_s = time.monotonic() + END_WITHIN_S
    for one in left:
        one._thread.join(max(0.0, deadline_s - time.monotonic()))
