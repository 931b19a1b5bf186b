"""The events of one `send_many`, cut into pieces on their way in.

Problem: a call may bring any number of events, and must neither hold up the event loop nor fill more of a buffer than
there is. So it is taken in piece by piece; between them others get their turn, and room is awaited.
Rule never broken: a piece is encoded, and its events are checked, before anything of it is taken in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES
from holdfast.client.errors import ConfigurationError, InvalidOperationError
from holdfast.client.events import Event, as_event, encode_event, key_section
from holdfast.records.record_batch import with_heads

PIECE_EVENTS = 1024
PIECE_BYTES = 512 * 1024

MAX_MESSAGE_BYTES = (1 << 32) - 1 - MAX_HEAD_BYTES
"""Lengths are 32 bits wide wherever they are written."""

R = TypeVar("R")
"""Where events go, to those who send them."""


class Piece(NamedTuple, Generic[R]):
    """Events that go to one place."""

    route: R
    records: Sequence[bytes]
    bodies: bool
    given: Sequence[Event | None]  # objects that learn their numbers, by place; or none at all


def check_many(events: object) -> None:
    if isinstance(events, str | bytes | bytearray | memoryview) or not isinstance(events, Sequence):
        raise ConfigurationError(
            f"send_many takes a list of events, not a {type(events).__name__}",
            advice="send() takes a single event; of an iterator, make lists of some hundred events",
        )


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


class Pieces(Generic[R]):
    def __init__(
        self,
        events: Sequence[Event | bytes | str],
        key: str | None,
        partition: str | None,
        route: Callable[[str | None, str | None], R],
        *,
        numbered: bool = False,
        named: bool = False,
    ) -> None:
        """`route`: where events of a key, or for a partition, go. `numbered`: an `Event` learns its number. `named`: it
        belongs to the producer that takes it in."""
        self._events: list[Any] = list(events)  # the caller may change its own while this call waits
        self._key, self._numbered, self._named, self._route_for = key, numbered, named, route
        self._at = 0
        kinds = set(map(type, events))
        self._bare = kinds <= {bytes, str}
        self._texts = str in kinds
        own_keys = not self._bare and key is None and partition is None and any(map(_key_of, events))
        self.routes: tuple[R, ...] = () if own_keys else (route(key, partition),)
        """Where all of them go. Empty: the call names no place, and each event goes where its own key says."""

    @property
    def left(self) -> int:
        return len(self._events) - self._at

    @property
    def least_size(self) -> int:
        """The largest event has no fewer bytes than that; 0 where that is not known without looking at each."""
        return max(map(len, self._events), default=0) if self._bare else 0

    def __iter__(self) -> Iterator[Sequence[Piece[R]]]:
        while self.left:
            yield self.next()

    def next(self) -> Sequence[Piece[R]]:
        """The next piece, by where it goes."""
        events = self._events
        if self.left > PIECE_EVENTS or self._at:
            events = events[self._at : self._at + PIECE_EVENTS]
        return self._bodies(events) if self._bare else self._any(events)

    def _bodies(self, events: Sequence[Any]) -> Sequence[Piece[R]]:
        """Cut bodies. No step is made for each of them, if they are bytes."""
        bodies = [one.encode() if isinstance(one, str) else one for one in events] if self._texts else events
        bodies = bodies[: _fitting(list(map(len, bodies)))]
        records = bodies
        if self._key is not None:
            front = key_section(self._key)
            records = [front + message for message in with_heads(bodies)]
        self._at += len(bodies)
        return [Piece(self.routes[0], records, self._key is None, ())]

    def _any(self, events: Sequence[Event | bytes | str]) -> Sequence[Piece[R]]:
        whole = [as_event(one, self._key, None) for one in events]
        whole = whole[: _fitting([len(one.body) for one in whole])]
        by_route: dict[R, tuple[list[bytes], list[Event | None]]] = {}
        for event, one in zip(events, whole, strict=False):
            route = self.routes[0] if self.routes else self._route_for(one.key, None)
            messages, given = by_route.setdefault(route, ([], []))
            messages.append(encode_event(one.body, one.key, one.properties))
            if self._numbered:
                given.append(event if isinstance(event, Event) else None)
        if self._named:
            claim([event for _, given in by_route.values() for event in given if event is not None])
        self._at += len(whole)
        return [Piece(route, messages, False, given) for route, (messages, given) in by_route.items()]


def _key_of(event: Event | bytes | str) -> object:
    return event.key is not None if isinstance(event, Event) else None


def _fitting(sizes: list[int]) -> int:
    """Count those of these that go into a piece."""
    if sum(sizes) <= PIECE_BYTES:
        return len(sizes)
    return max(1, bisect_right(list(accumulate(sizes)), PIECE_BYTES))
