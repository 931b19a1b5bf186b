"""The events of one `send_many`, cut into pieces on their way in.

Problem: a call may bring any number of events, and must neither hold up the event loop nor fill more of a buffer than
there is. So it is taken in piece by piece; between them others get their turn, and room is awaited.
Rule never broken: a piece is encoded, and its events are checked, before anything of it is taken in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from holdfast.client.errors import ConfigurationError, InvalidOperationError
from holdfast.client.events import Event, as_event, encode_event, key_section
from holdfast.records.record_batch import with_heads

PIECE_EVENTS = 1024
PIECE_BYTES = 512 * 1024


class Piece(NamedTuple):
    """Events that go to one partition."""

    partition: str
    records: Sequence[bytes]
    bodies: bool
    given: Sequence[Event | None]  # objects that learn their numbers, by place; or none at all


def claim(events: Sequence[Event]) -> None:
    """Note that they are published from now on; raises if one of them cannot be, and claims none then."""
    for event in events:
        if event.published_sequence_number is not None:
            raise InvalidOperationError(f"an event was published before, with number {event.published_sequence_number}")
        if event.being_published:
            raise InvalidOperationError("an event is being published already")
    if len(set(map(id, events))) < len(events):
        raise InvalidOperationError("an event stands in the list twice")
    for event in events:
        event.being_published = True


class Pieces:
    def __init__(
        self,
        events: Sequence[Event | bytes | str],
        key: str | None,
        partition: str | None,
        place_for: Callable[[str | None, str | None], str],
        *,
        numbered: bool = False,
        named: bool = False,
    ) -> None:
        """`place_for`: the partition of a key, or of a name. `numbered`: an `Event` learns its number. `named`: it
        belongs to the producer that takes it in."""
        if isinstance(events, str | bytes | bytearray | memoryview) or not isinstance(events, Sequence):
            raise ConfigurationError(
                f"send_many takes a list of events, not a {type(events).__name__}",
                advice="send() takes a single event; of an iterator, make lists of some hundred events",
            )
        self._events: list[Any] = list(events)  # the caller may change its own while this call waits
        self._key, self._numbered, self._named, self._place_for = key, numbered, named, place_for
        self._at = 0
        kinds = set(map(type, events))
        self._texts = str in kinds
        self.bare: Sequence[bytes | str] = self._events if kinds <= {bytes, str} else ()
        """The events, if all of them are bodies; else none."""
        named_places = bool(self.bare) or key is not None or partition is not None
        own_keys = not named_places and any(isinstance(one, Event) and one.key is not None for one in events)
        self.partition = None if own_keys else place_for(key, partition)
        """Where all of them go. None: the call names no place, and each event goes where its own key says."""

    @property
    def left(self) -> int:
        return len(self._events) - self._at

    def next(self) -> Sequence[Piece]:
        """The next piece, by where it goes."""
        events = self._events
        if self.left > PIECE_EVENTS or self._at:
            events = events[self._at : self._at + PIECE_EVENTS]
        return self._bodies(events) if self.bare else self._any(events)

    def _bodies(self, events: Sequence[Any]) -> Sequence[Piece]:
        """Cut bodies. No step is made for each of them, if they are bytes."""
        bodies = [one.encode() if isinstance(one, str) else one for one in events] if self._texts else events
        records = bodies = bodies[: _fitting(list(map(len, bodies)))]
        if self._key is not None:
            front = key_section(self._key)
            records = [front + message for message in with_heads(bodies)]
        self._at += len(bodies)
        assert self.partition is not None, "bodies have no keys of their own"
        return [Piece(self.partition, records, self._key is None, ())]

    def _any(self, events: Sequence[Event | bytes | str]) -> Sequence[Piece]:
        whole = [as_event(one, self._key, None) for one in events]
        whole = whole[: _fitting([len(one.body) for one in whole])]
        by_place: dict[str, tuple[list[bytes], list[Event | None]]] = {}
        for event, one in zip(events, whole, strict=False):
            place = self._place_for(one.key, None) if self.partition is None else self.partition
            messages, given = by_place.setdefault(place, ([], []))
            messages.append(encode_event(one.body, one.key, one.properties))
            if self._numbered:
                given.append(event if isinstance(event, Event) else None)
        if self._named:
            claim([event for _, given in by_place.values() for event in given if event is not None])
        self._at += len(whole)
        return [Piece(place, messages, False, given) for place, (messages, given) in by_place.items()]


def _fitting(sizes: list[int]) -> int:
    """Count those of these that go into a piece."""
    return len(sizes) if sum(sizes) <= PIECE_BYTES else max(1, bisect_right(list(accumulate(sizes)), PIECE_BYTES))
