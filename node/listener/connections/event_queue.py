"""Events of one connection's engine, handled in order.

The problem: one frame ends a session with thousands of links, each of which takes some ten microseconds to release. The
rule: when some are gone, the rest is put off to another turn of the loop, with all events that follow, and nothing is
taken in meanwhile: a link that attaches again finds nothing of its former self.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.amqp import Event, LinkDetached, Transfers
from node.listener.limits.fair_scheduling import Turns

DROPPED_A_TURN = 16
"""Links of a lost connection that are dropped in one turn of the loop, and as many that are released: each takes
some ten microseconds, of a consumer group a hundred. It also bounds the links of an ended session that are dropped
at once."""


class Handler(Protocol):
    """The connection."""

    def handle(self, event: Event) -> None:
        """Handle any event but transfers, which go to their links."""
        ...

    def handled(self) -> None:
        """Note that as many events as could be were handled."""
        ...

    def caught_up(self) -> None:
        """Note that no event is put off any more."""
        ...

    def fail(self, error: BaseException) -> None: ...


class EventQueue:
    """Implements `fair_scheduling.InputWaiter`."""

    def __init__(self, connection: Handler, turns: Turns) -> None:
        self._connection, self._turns = connection, turns
        self._put_off: list[Event] = []
        self._over = False

    def __bool__(self) -> bool:
        """True while events are put off."""
        return bool(self._put_off)

    def take(self, events: list[Event]) -> None:
        """Handle the events, after those that were put off."""
        if self._over:
            return
        if self._put_off:
            self._put_off += events
        else:
            self._handle(events)

    def end(self) -> list[Event]:
        """Return the events that were put off: the connection is gone, and they are not handled any more."""
        put_off, self._put_off, self._over = self._put_off, [], True
        del self._connection  # which has this: without the cycle it is freed at once
        return put_off

    def work_on(self) -> bool:
        """Handle one piece of the events that were put off; the rest waits again."""
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
