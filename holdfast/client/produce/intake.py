"""From what a program gives to what waits for its transfer: checked, encoded, with a place.

Rule never broken: what is wrong with an event, or with its place, raises before anything of it is taken in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.client.errors import ConfigurationError
from holdfast.client.events import Event, as_event, encode_event
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.accumulator import Accumulator
from holdfast.client.produce.chunks.chunk import MAX_MESSAGE_BYTES
from holdfast.client.produce.chunks.delivery import Done
from holdfast.client.produce.chunks.pieces import Pieces, check_many
from holdfast.client.produce.chunks.single_events import Delivery
from holdfast.client.produce.idempotent.event_list import claim
from holdfast.client.produce.idempotent.partition_queue import PartitionQueue
from holdfast.client.produce.routes import Route


class Intake:
    def __init__(self, accumulator: Accumulator, options: ProducerOptions) -> None:
        self._accumulator, self._idempotent = accumulator, options.idempotent
        self.takes_keys = not options.partition_options  # else the program names producers: Event Hubs' rules hold

    def check_place(self, key: str | None, partition: str | None) -> None:
        """Raise ConfigurationError for what a producer with `partition_options` cannot do (Event Hubs, IP-2)."""
        if self.takes_keys:
            return
        if key is not None:
            raise ConfigurationError(
                "a producer with partition_options publishes to partitions, not by key",
                advice="name the partition, or leave partition_options out",
            )
        if partition is None:
            raise ConfigurationError(
                "a producer with partition_options must be told the partition",
                advice="give partition=..., see `partitions`",
            )

    def check_places(self, events: Iterable[Event | bytes | str], key: str | None, partition: str | None) -> None:
        """Do the same for the keys of single events."""
        self.check_place(key, partition)
        if not self.takes_keys:
            for event in events:
                if isinstance(event, Event):
                    self.check_place(event.key, partition)

    def route(self, key: str | None, partition: str | None) -> Route:
        """Where events of this key, or for this partition, go."""
        if self._idempotent:
            self.check_place(key, partition)
        route = self._accumulator.routes.route_for(key, partition)
        if isinstance(route, PartitionQueue):
            route.check_usable()
        return route

    def one(
        self,
        event: Event | bytes | str,
        key: str | None,
        partition: str | None,
        properties: Mapping[str, Any] | None,
        done: Done | None,
    ) -> Delivery:
        """Take in one event."""
        given: Event | None = None
        if isinstance(event, bytes):
            body = event
        else:
            whole = as_event(event, key, properties)
            body, key, properties = whole.body, whole.key, whole.properties
            if self._idempotent and isinstance(event, Event):
                given = event
        if len(body) > MAX_MESSAGE_BYTES:
            raise ConfigurationError(f"an event of {len(body)} bytes is more than any message holds")
        accumulator = self._accumulator
        staged = accumulator.staged(self.route(key, partition))
        bare = key is None and not properties and not staged.takes_messages
        content = body if bare else encode_event(body, key, properties)
        if given is not None:
            claim([given])
        return accumulator.take_one(staged, content, done, given, body=bare)

    def many(self, events: Sequence[Event | bytes | str], key: str | None, partition: str | None) -> Pieces[Route]:
        """To take in all of these, piece by piece."""
        check_many(events)
        self.check_places(events, key, partition)
        pieces = Pieces(events, key, partition, self.route, self._accumulator.failures.add, numbered=self._idempotent)
        if key is None and partition is None and pieces.routes:
            self._accumulator.routes.turn_passes()
        pieces.delivery.goes_to(pieces.routes[0].partition if pieces.routes else None)
        return pieces

    def take_next(self, pieces: Pieces[Route]) -> None:
        """The next piece of them."""
        for route in pieces.routes:
            if isinstance(route, PartitionQueue):
                route.check_usable()
        for route, chunk in pieces.next():
            if chunk.leads:
                pieces.delivery.goes_to(route.partition)
            self._accumulator.take(route, chunk.whole())
