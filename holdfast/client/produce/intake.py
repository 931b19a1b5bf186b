"""The way from what a program gives to what waits for its transfer: checked, encoded, with a place.

Rule never broken: what is wrong with an event, or with its place, raises before anything of it is taken in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.client.errors import ConfigurationError
from holdfast.client.events import Event, as_event, encode_event
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.accumulator import Accumulator
from holdfast.client.produce.delivery import Delivery, Done
from holdfast.client.produce.partition_sender import PartitionSender
from holdfast.client.produce.pieces import MAX_MESSAGE_BYTES, Pieces, check_many, claim


class Intake:
    def __init__(self, accumulator: Accumulator, options: ProducerOptions) -> None:
        self._accumulator, self._idempotent = accumulator, options.idempotent
        self._named = bool(options.partition_options)

    def check_place(self, key: str | None, partition: str | None) -> None:
        """Raise ConfigurationError for what a producer with `partition_options` cannot do (Event Hubs, IP-2)."""
        if not self._named:
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
        if self._named:
            for event in events:
                if isinstance(event, Event):
                    self.check_place(event.key, partition)

    def sender(self, key: str | None, partition: str | None) -> PartitionSender:
        """The sender that events of this key, or for this partition, go to."""
        if self._idempotent:
            self.check_place(key, partition)
        sender = self._accumulator.partitions.sender_for(key, partition)
        sender.check_usable()
        return sender

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
        sender = self.sender(key, partition)
        bare = key is None and not properties
        record = body if bare else encode_event(body, key, properties)
        if given is not None and self._named:
            claim([given])
        return self._accumulator.take_one(sender, record, done, given, body=bare)

    def many(
        self, events: Sequence[Event | bytes | str], key: str | None, partition: str | None
    ) -> Pieces[PartitionSender]:
        """Cut these into pieces, to be taken in one by one."""
        check_many(events)
        self.check_places(events, key, partition)
        pieces = Pieces(events, key, partition, self.sender, numbered=self._idempotent, named=self._named)
        if key is None and partition is None and pieces.routes:
            self._accumulator.partitions.turn_passes()
        return pieces

    def take_next(self, pieces: Pieces[PartitionSender]) -> list[Delivery]:
        """The next piece of them."""
        for sender in pieces.routes:
            sender.check_usable()
        parts: list[Delivery] = []
        for piece in pieces.next():
            parts += self._accumulator.take(piece.route, piece.records, piece.given, bodies=piece.bodies)
        return parts
