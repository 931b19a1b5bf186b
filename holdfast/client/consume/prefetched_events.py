"""Events that a program iterates over: those that it has seen are handed out, the others can be taken back.

Problem: a program that commits within its loop, or leaves it, has done nothing with the events that it was not given
yet. To count each event as it is given costs more than to give it, and a program on another thread would wait for the
consumer's at each one.
Rules never broken: an event is either given to the program or taken back, also when both are tried at once, by two
threads; how many were given can be asked at any time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.client.events import ReceivedEvent

if TYPE_CHECKING:
    from holdfast.client.consume.partition_receiver import PartitionReceiver


class LentEvents:
    """Some events of one partition, iterated over once."""

    def __init__(self, reader: PartitionReceiver, events: list[ReceivedEvent]) -> None:
        self.reader = reader
        self._events, self._rest, self._back = events, deque(events), 0
        self._counted = 0
        self._looking = threading.Lock()  # not for giving

    def __iter__(self) -> Iterator[ReceivedEvent]:
        give = self._rest.popleft  # one step, whatever another thread does
        while True:
            try:
                event = give()
            except IndexError:
                return
            yield event

    @property
    def is_done(self) -> bool:
        return not self._rest

    @property
    def offset(self) -> str | None:
        """Offset of the last event given."""
        given = self._given()
        return self._events[given - 1].offset if given else None

    def count(self) -> str | None:
        """The offset of the last one given, if any was given since this was asked last."""
        given = self._given()
        if given == self._counted:
            return None
        self._counted = given
        return self._events[given - 1].offset

    def take_back(self) -> list[ReceivedEvent]:
        """Take back the events that were not given yet, and will not be."""
        back: list[ReceivedEvent] = []
        with self._looking:
            try:
                while True:
                    back.append(self._rest.pop())
            except IndexError:
                self._back += len(back)
        return back[::-1]

    def _given(self) -> int:
        with self._looking:
            return len(self._events) - self._back - len(self._rest)
