"""Questions of one transaction that arrive when the next one of their writer is open.

Those of one kind are held back at times; whoever asked asks again, so the transaction goes on and ends; and when its
coordinator has let the next one begin, what was held arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

HELD = 0.3
LOOK_EVERY_S = 0.005


class Delays:
    def __init__(self, schedule: Schedule, kind: str) -> None:
        """`kind`: of the question; "": none is held back."""
        self._schedule, self._kind = schedule, kind
        self._held: list[tuple[int, int, Callable[[], None]]] = []
        if kind:
            self._look()

    def takes(self, kind: str, about: Any, arrive: Callable[[], None]) -> bool:
        schedule = self._schedule
        begun = schedule.chaos_begun and not schedule.chaos_over
        if kind != self._kind or not begun or schedule.randomness.random() >= HELD:
            return False
        if kind == "append":  # about a batch, by its head, and about what begins with it
            self._held.append((about[0].producer_id, about[0].producer_epoch, arrive))
        else:
            self._held.append((about.producer_id, about.epoch, arrive))
        return True

    def _look(self) -> None:
        schedule, ledger = self._schedule, self._schedule.ledger
        schedule.at(schedule.now + LOOK_EVERY_S, self._look)
        assert ledger is not None
        waiting, self._held = self._held, []
        for producer_id, epoch, arrive in waiting:
            if ledger.opened.get(producer_id, -1) > epoch:
                schedule.count(f"{self._kind} in the next transaction")
                arrive()
            else:
                self._held.append((producer_id, epoch, arrive))
