"""What the engine of one connection tells, handled in its order.

The problem: one frame ends a session with thousands of links, each of which takes some ten microseconds to let go. The
rule: when some are gone, the rest is put off to another turn of the loop, with all that comes behind it, and nothing is
taken in meanwhile: who attaches again finds nothing of its old link.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.amqp import Event, LinkDetached, Transfers
from node.listener.limits.turns import Turns

DROPPED_A_TURN = 16
"""Links of a lost connection that are let go in one turn of the loop, and as many at once that are released: each takes
some ten microseconds, of a consumer group a hundred. As many at once of those that a session takes along."""


class Handler(Protocol):
    """The connection."""

    def handle(self, event: Event) -> None:
        """Any but transfers, which go to their links."""
        ...

    def handled(self) -> None:
        """As many as could be now."""
        ...

    def caught_up(self) -> None:
        """Nothing is put off any more."""
        ...

    def fail(self, error: BaseException) -> None: ...


class EventQueue:
    """Implements `turns.Taker`."""

    def __init__(self, connection: Handler, turns: Turns) -> None:
        self._connection, self._turns = connection, turns
        self._put_off: list[Event] = []
        self._over = False

    def __bool__(self) -> bool:
        """Some are put off."""
        return bool(self._put_off)

    def take(self, events: list[Event]) -> None:
        """Handle them, behind those that were put off."""
        if self._over:
            return
        if self._put_off:
            self._put_off += events
        else:
            self._handle(events)

    def end(self) -> list[Event]:
        """The connection is gone. Those that were put off: nobody handles them any more."""
        put_off, self._put_off, self._over = self._put_off, [], True
        del self._connection  # which has this; what nothing points at any more is freed at once
        return put_off

    def work_on(self) -> bool:
        """What was put off, as far as a piece goes; it waits again if that was not all."""
        if self._over:
            return False
        events, self._put_off = self._put_off, []
        try:
            self._handle(events)
        except Exception as error:  # noqa: BLE001 - a bug met by one peer's links must not reach another peer
            self._connection.fail(error)
        if not self._put_off:
            self._connection.caught_up()
        return False

    def _handle(self, events: list[Event]) -> None:
        gone = 0
        for at, event in enumerate(events):
            if isinstance(event, Transfers):
                endpoint = event.link.context
                if endpoint is not None:
                    endpoint.on_transfers(event)
                continue
            if isinstance(event, LinkDetached):
                if gone == DROPPED_A_TURN:
                    self._put_off = events[at:]
                    self._turns.wait_to_take(self)
                    break
                gone += 1
            self._connection.handle(event)
        self._connection.handled()
