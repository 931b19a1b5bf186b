"""From what a program gives to what waits for its transfer: checked, encoded, with a place.

Rule never broken: what is wrong with an event, or with its place, raises before anything of it is taken in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from holdfast.client.errors import ConfigurationError
from holdfast.client.events import Event, as_event, encode_content, encode_event
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.accumulator import Accumulator
from holdfast.client.produce.chunk import Chunk
from holdfast.client.produce.delivery import ChunkDelivery, Delivery, Done
from holdfast.client.produce.idempotent.event_list import claim
from holdfast.client.produce.idempotent.partition_queue import PartitionQueue
from holdfast.client.produce.routes import Route

# A call is taken in by pieces of so many events and bytes; between them others get their turn, and room is awaited.
PIECE_EVENTS = 1024
PIECE_BYTES = 256 * 1024


class Intake:
    def __init__(self, accumulator: Accumulator, options: ProducerOptions) -> None:
        self._accumulator, self._idempotent = accumulator, options.idempotent

    def check_place(self, key: str | None, partition: str | None) -> None:
        """What an idempotent producer cannot do."""
        if not self._idempotent:
            return
        if key is not None:
            raise ConfigurationError(
                "an idempotent producer publishes to partitions, not by key",
                advice="choose the partition yourself, and name it",
            )
        if partition is None:
            raise ConfigurationError(
                "an idempotent producer must be told the partition", advice="give partition=..., see `partitions`"
            )

    def route(self, key: str | None, partition: str | None) -> Route:
        """Where events of this key, or for this partition, go."""
        if not self._idempotent:
            return self._accumulator.routes.route_for(key, partition)
        self.check_place(key, partition)
        assert partition is not None, "checked before"
        line = self._accumulator.routes.line_for(partition)
        line.check_usable()
        return line

    def one(
        self,
        event: Event | bytes | str,
        key: str | None,
        partition: str | None,
        properties: Mapping[str, Any] | None,
        done: Done | None,
    ) -> Delivery:
        """Take in one event."""
        given = event if isinstance(event, Event) else None
        if given is not None or not isinstance(event, bytes):
            whole = as_event(event, key, properties)
            body, key, properties = whole.body, whole.key, whole.properties
        else:
            body = event
        route: Route
        if not self._idempotent:
            route = self._accumulator.routes.route_for(key, partition)
            delivery = Delivery(encode_event(body, key, properties), route.partition, done)
        else:
            route = self.route(key, partition)
            delivery = Delivery(encode_content(body, properties), partition, done, given)
            if given is not None:
                claim([given])
        self._accumulator.take(route, delivery)
        return delivery

    def many(self, events: Sequence[Event | bytes | str], key: str | None, partition: str | None) -> Pieces:
        """To take in all of these, piece by piece."""
        return Pieces(self, self._accumulator, events, key, partition, numbered=self._idempotent)


class Pieces:
    """The events of one call, on their way in."""

    def __init__(
        self,
        intake: Intake,
        accumulator: Accumulator,
        events: Sequence[Event | bytes | str],
        key: str | None,
        partition: str | None,
        *,
        numbered: bool,
    ) -> None:
        if isinstance(events, str | bytes | bytearray | memoryview) or not isinstance(events, Sequence):
            raise ConfigurationError(
                f"send_many takes a list of events, not a {type(events).__name__}",
                advice="send() takes a single event; of an iterator, make lists of some hundred events",
            )
        intake.check_place(key, partition)
        self._intake, self._accumulator = intake, accumulator
        self._events = list(events)  # the caller may change its own while this call waits
        self._key = key
        self._numbered = numbered
        self._at = 0
        kinds = set(map(type, events))
        self._bare = kinds <= {bytes, str}
        self._texts = str in kinds
        # Events that say their own key, where the call names no place: each goes where its key says.
        self._by_key = not self._bare and key is None and partition is None and any(map(_key_of, events))
        self._route = None if self._by_key else intake.route(key, partition)
        if key is None and partition is None and not self._by_key:
            accumulator.routes.turn_passes()
        self.delivery = ChunkDelivery(len(events), accumulator.failed)
        self.delivery.partition = partition if self._route is None else self._route.partition

    @property
    def left(self) -> int:
        return len(self._events) - self._at

    def take_next(self) -> None:
        """The next piece."""
        events = self._events
        if self.left > PIECE_EVENTS or self._at:
            events = events[self._at : self._at + PIECE_EVENTS]
        self._at += self._take_bare(events) if self._bare else self._take_any(events)

    def _take_bare(self, events: Sequence[Any]) -> int:
        """Bodies: no step is made for each of them, if they are bytes."""
        bodies = [one.encode() if isinstance(one, str) else one for one in events] if self._texts else events
        bodies = bodies[: _fitting(list(map(len, bodies)))]
        self._put(self._usable_route(), Chunk.of_bodies(bodies, self._key, self.delivery, leads=not self._at))
        return len(bodies)

    def _take_any(self, events: Sequence[Event | bytes | str]) -> int:
        whole = [as_event(one, self._key, None) for one in events]
        whole = whole[: _fitting([len(one.body) for one in whole])]
        if self._numbered:
            contents = [encode_content(one.body, one.properties) for one in whole]
            given = [one if isinstance(one, Event) else None for one in events[: len(whole)]]
            route = self._usable_route()
            chunk = Chunk.of_messages(contents, self.delivery, leads=not self._at)
            claim([one for one in given if one is not None])
            chunk.given = given
            self._put(route, chunk)
            return len(whole)
        by_route: dict[Route, list[bytes]] = {}
        for one in whole:
            route = self._route or self._intake.route(one.key, None)
            by_route.setdefault(route, []).append(encode_event(one.body, one.key, one.properties))
        for place, (route, messages) in enumerate(by_route.items()):
            leads = not (self._at or place)
            if leads:
                self.delivery.partition = route.partition
            self._put(route, Chunk.of_messages(messages, self.delivery, leads=leads))
        return len(whole)

    def _usable_route(self) -> Route:
        assert self._route is not None, "they go to one place"
        if isinstance(self._route, PartitionQueue):
            self._route.check_usable()
        return self._route

    def _put(self, route: Route, chunk: Chunk) -> None:
        self._accumulator.take(route, chunk.whole())


def _key_of(event: Event | bytes | str) -> object:
    return event.key is not None if isinstance(event, Event) else None


def _fitting(sizes: list[int]) -> int:
    """How many of these go into a piece."""
    if sum(sizes) <= PIECE_BYTES:
        return len(sizes)
    return max(1, bisect_right(list(accumulate(sizes)), PIECE_BYTES))
