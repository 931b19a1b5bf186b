"""Failures of a producer that nobody has heard of, and what they stop.

Problem: a program that sends and goes on would store later events behind one that is missing, and never learn of it.
Rules never broken:
 - somebody has heard of a failure if its event has a callback, or is or was awaited; each other one is raised by
   `flush`, or `close`;
 - until then nothing more is taken in, and what has not gone out fails as well, unless the program chose to go on
   (`after_failure`).
"""

from __future__ import annotations

from collections import OrderedDict

from holdfast.client.errors import HoldfastError
from holdfast.client.produce.delivery import PendingBatch

MAX_KEPT = 100  # of a program that goes on; more are only counted

STOPPED = "this producer takes no more events until flush() has raised that: they would be stored behind a missing one"


class UnheardFailures:
    """Failures in the order in which they happened."""

    def __init__(self, *, stop: bool) -> None:
        """`stop`: sends are refused while there are any."""
        self.stopped = False  # perhaps; `first` knows
        self._stop = stop
        self._kept: OrderedDict[PendingBatch, None] = OrderedDict()
        self._not_kept = 0  # events

    def add(self, batch: PendingBatch) -> None:
        """Note a batch that failed, and of which nobody has asked for some events so far."""
        if self._stop:
            self.stopped = True
        elif len(self._kept) >= MAX_KEPT:
            self._not_kept += batch.unheard
            return
        self._kept[batch] = None

    def first(self) -> HoldfastError | None:
        """The oldest that nobody has heard of by now. None: there is none, and nothing is stopped."""
        kept = self._kept
        while (batch := next(iter(kept), None)) is not None:
            if batch.unheard:
                return batch.error
            del kept[batch]
        self.stopped = False
        return None

    def check(self) -> None:
        """Raise what has stopped the producer, if that stands."""
        if not self.stopped or (error := self.first()) is None:
            return
        if STOPPED not in getattr(error, "__notes__", ()):
            error.add_note(STOPPED)
        raise error.with_traceback(None)

    def tell(self) -> None:
        """Raise the first one, if there is one. Somebody has heard of all of them then."""
        error = self.first()
        count = self._not_kept + sum(batch.unheard for batch in self._kept)
        for batch in self._kept:
            batch.was_told()
        self._kept.clear()
        self._not_kept = 0
        self.stopped = False
        if error is None:
            return
        if count > 1:
            error.add_note(f"{count} events failed; this is the first failure")
        raise error.with_traceback(None)
