"""Several events that are published together without being an `EventBatch`.

Rule never broken: an event that has its number, or is about to get one, is not published by somebody else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.client.errors import InvalidOperationError
from holdfast.client.events import Event, as_event, encode_event
from holdfast.client.produce.idempotent.producer_identity import following


def claim(events: Sequence[Event]) -> None:
    """They are published from now on; raises if one of them cannot be, and claims none then."""
    for event in events:
        if event.published_sequence_number is not None:
            raise InvalidOperationError(f"an event was published before, with number {event.published_sequence_number}")
        if event.being_published:
            raise InvalidOperationError("an event is being published already")
    if len(set(map(id, events))) < len(events):
        raise InvalidOperationError("an event stands in the list twice")
    for event in events:
        event.being_published = True


class EventList:
    """Events given to an idempotent producer as a list."""

    def __init__(self, events: Iterable[Event | bytes | str], key: str | None) -> None:
        """`key`: that of the events that have none of their own."""
        self._events = [event if isinstance(event, Event) else Event(event) for event in events]
        self._key = key
        self.starting_published_sequence_number: int | None = None
        self.contents: list[bytes] = []

    def __len__(self) -> int:
        return len(self._events)

    def lock(self) -> None:
        claim(self._events)
        whole = [as_event(event, self._key, None) for event in self._events]
        self.contents = [encode_event(event.body, event.key, event.properties) for event in whole]

    def published(self, starting_number: int | None) -> None:
        self.starting_published_sequence_number = starting_number
        for place, event in enumerate(self._events):
            event.being_published = False
            if starting_number is not None:
                event.published_sequence_number = following(starting_number, place)

    def unlock(self) -> None:
        for event in self._events:
            event.being_published = False
