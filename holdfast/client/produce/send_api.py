"""Ways to send events: those of a producer, of its transactions, and of members of transaction groups.

Rules never broken:
 - what is wrong with an event, or with its place, raises before anything of it is taken in; of a list, before anything
   of its piece is;
 - between the last check whether events are taken in, and the taking in, nobody else has a turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES
from holdfast.client.errors import BufferFullError, ConfigurationError, InvalidOperationError
from holdfast.client.events import Event, as_event, encode_event, key_section
from holdfast.client.produce.accumulator import Accumulator, BatchSender
from holdfast.client.produce.batch_queue import fitting
from holdfast.client.produce.delivery import Delivery, DeliveryResult, Done, claim
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.produce.partition_routing import Partitions
from holdfast.records.record_batch import with_heads

# A call of any number of events is taken in by pieces; between them others get their turn, and room is awaited.
PIECE_EVENTS = 1024
PIECE_BYTES = 512 * 1024
BODIES = frozenset({bytes, str})
Records = tuple[str, Sequence[bytes], Sequence[Event | None]]
"""A partition, what goes there, and the objects that learn their numbers, by place; or none at all."""
MAX_MESSAGE_BYTES = (1 << 32) - 1 - MAX_HEAD_BYTES  # lengths are 32 bits wide wherever they are written


class Sending(ABC):
    """Sends events to the partitions of one log."""

    _partitions: Partitions
    _accumulator: Accumulator
    _barred = False  # `_check_takes` has something to say, perhaps: one flag to look at for each event
    _numbered = False  # an `Event` that is given learns its number
    _named = False  # the program has named the producer in each partition, by the rules of Event Hubs

    # ---------------------------------------------------------------- what differs

    @abstractmethod
    def _check_takes(self) -> None:
        """Raise if no event is taken in."""

    @abstractmethod
    def _sender(self, partition: str) -> BatchSender | None:
        """Return the sender to which events are given now. None: `_open` has to open it. Raises if it takes none."""

    async def _open(self, partition: str) -> None:
        raise NotImplementedError

    async def _wait_for_room(self) -> None:
        await self._accumulator.wait_for_room()

    @abstractmethod
    def _took_a_part(self) -> None:
        """Note that the first events of a call were taken in, and the others are not."""

    # ---------------------------------------------------------------- single events

    async def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event, waiting for room if need be. What became of it: await the `Delivery` that is returned, or
        give `done`: it is called with None (confirmed) or with the error. Under a transaction it counts with the
        commit, which waits for all. The next calls of a producer raise what failed where nobody asked, until `flush`
        has."""
        accumulator = self._accumulator
        if not accumulator.has_room:
            await self._wait_for_room()
        if self._barred or accumulator.failures.stopped:
            self._check_takes()
        record, is_body, place, given = self._encoded(event, key, partition, properties)
        sender = self._sender(place) or await self._opened(place)
        delivery = self._take_one(sender, record, given, done, body=is_body)
        if accumulator.turn_is_over:
            await accumulator.give_way()
        return delivery

    def send_nowait(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event as `send` does, or raise `BufferFullError`: there is no room, or a transaction has to open
        its link to the partition first."""
        self._check_takes()
        self._accumulator.check_room()
        record, is_body, place, given = self._encoded(event, key, partition, properties)
        sender = self._sender(place)
        if sender is None:
            raise BufferFullError(f"the link to partition {place} is not open yet")
        return self._take_one(sender, record, given, done, body=is_body)

    def _take_one(
        self, sender: BatchSender, record: bytes, given: Event | None, done: Done | None, *, body: bool
    ) -> Delivery:
        if given is not None and self._named:
            claim([given])
        delivery = sender.queue.add(record, body=body, done=done, given=given)
        self._accumulator.took_in(sender, 1, len(record))
        return delivery

    async def send_and_confirm(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> DeliveryResult:
        """Send one event and return when it is stored; raises if it is not."""
        return await (await self.send(event, key=key, partition=partition, properties=properties))

    # ---------------------------------------------------------------- many

    async def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> Delivery:
        """Buffer these events, waiting for room if need be: what `send` of each does, in the same order, at a fraction
        of its cost where the events are `bytes`. What became of them all: await what is returned. They go to one
        partition, but for events with keys of their own, where none is named. Cancelled while it waits, it has taken
        in the first ones; a transaction that this happens to can only be rolled back."""
        accumulator = self._accumulator
        self._check_takes()
        if isinstance(events, str | bytes | bytearray | memoryview) or not isinstance(events, Sequence):
            raise ConfigurationError(
                f"send_many takes a list of events, not a {type(events).__name__}",
                advice="send() takes a single event; of an iterator, make lists of some hundred events",
            )
        listed: list[Any] = list(events)  # the caller may change its own while this call waits
        kinds = set(map(type, listed))
        are_bodies = kinds <= BODIES
        first_of = self._bodies if are_bodies else self._any
        have_keys = not are_bodies and _have_keys(listed)
        self._check_place(partition, keyed=have_keys or key is not None)
        by_keys = have_keys and key is None and partition is None
        place = None if by_keys else self._partitions.place_for(key, partition)
        if key is None and partition is None and place is not None:
            self._partitions.turn_passes()
        parts: list[Delivery] = []
        taken = 0
        try:
            while taken < len(listed):
                if not accumulator.has_room:
                    await self._wait_for_room()
                    self._check_takes()
                if place is not None:  # before events are claimed
                    sender = await self._opened(place)
                    if are_bodies and not parts:
                        sender.queue.check_sizes(listed)
                piece = listed[taken : taken + PIECE_EVENTS]
                if str in kinds:
                    piece = [event.encode() if isinstance(event, str) else event for event in piece]
                for to, records, given in first_of(piece, key, place):
                    sender = self._sender(to) or await self._opened(to)
                    parts += self._take(sender, records, given, bodies=are_bodies and key is None)
                    taken += len(records)
                if accumulator.turn_is_over:
                    await accumulator.give_way()
                    if taken < len(listed):
                        self._check_takes()
        except BaseException:
            if parts:
                self._took_a_part()
            raise
        return Delivery.of(parts, place or "")

    def _bodies(self, bodies: list[bytes], key: str | None, place: str | None) -> list[Records]:
        """The first of these, as many as make a piece. No step is made for each of them."""
        assert place is not None, "bodies have no keys of their own"
        records = bodies = bodies[: _piece(list(map(len, bodies)))]
        if key is not None:
            front = key_section(key)
            records = [front + message for message in with_heads(bodies)]
        return [(place, records, ())]

    def _any(self, events: list[Event | bytes | str], key: str | None, place: str | None) -> list[Records]:
        """The first of these, as many as make a piece, by where they go."""
        whole = [as_event(event, key, None) for event in events]
        whole = whole[: _piece([len(one.body) for one in whole])]
        by_place: dict[str, tuple[list[bytes], list[Event | None]]] = {}
        for event, one in zip(events, whole, strict=False):
            to = self._partitions.place_for(one.key, None) if place is None else place
            messages, given = by_place.setdefault(to, ([], []))
            messages.append(encode_event(one.body, one.key, one.properties))
            given.append(event if self._numbered and isinstance(event, Event) else None)
        if self._named:
            claim([event for _, given in by_place.values() for event in given if event is not None])
        return [(to, messages, given) for to, (messages, given) in by_place.items()]

    def _take(
        self, sender: BatchSender, records: Sequence[bytes], given: Sequence[Event | None], *, bodies: bool
    ) -> list[Delivery]:
        parts = sender.queue.extend(records, bodies=bodies, given=given)
        self._accumulator.took_in(sender, len(records), sum(map(len, records)))
        return parts

    async def send_batch(
        self,
        batch: EventBatch | Sequence[Event | bytes | str],
        *,
        partition: str | None = None,
        key: str | None = None,
    ) -> DeliveryResult:
        """Publish a batch, or a list of events, to one partition, and return when all of it is confirmed.

        An idempotent producer publishes it as a whole or raises; after a failure the same batch may be given again, and
        what had arrived is not stored twice. Another one may have stored single events (`UndeliveredError` tells how
        many). Under a transaction all of it counts, or nothing, as of all that is sent there."""
        self._check_takes()
        if isinstance(batch, EventBatch):
            if partition is not None or key is not None:
                raise ConfigurationError("a batch knows where it goes", advice="name the place in create_batch")
            if batch.named != self._named:
                raise InvalidOperationError(
                    "the batch was made by a producer of the other kind (with partition_options or without)",
                    advice="make it by create_batch of the producer that sends it",
                )
            partition, key = batch.partition, batch.key
        elif isinstance(batch, str | bytes | bytearray | Event) or not isinstance(batch, Iterable):
            raise ConfigurationError(
                f"send_batch takes a batch or a list of events, not a {type(batch).__name__}",
                advice="send() publishes a single event",
            )
        else:
            batch = list(batch)
            if self._named:
                self._check_place(partition, keyed=key is not None or _have_keys(batch))
        await self._wait_for_room()
        self._check_takes()
        place = self._partitions.place_for(key, partition)
        if not len(batch):
            return DeliveryResult(place, None, None, 0)
        return await self._send_together(batch, key, place)

    async def _send_together(
        self, batch: EventBatch | Sequence[Event | bytes | str], key: str | None, place: str
    ) -> DeliveryResult:
        if not isinstance(batch, EventBatch):
            return await (await self.send_many(batch, key=key, partition=place))
        batch.lock()
        try:
            sender = await self._opened(place)
            return await Delivery.of(self._take(sender, batch.contents, (), bodies=False), place)
        finally:
            batch.unlock()

    # ---------------------------------------------------------------- the way in

    async def _opened(self, partition: str) -> BatchSender:
        while (sender := self._sender(partition)) is None:
            await self._open(partition)
            self._check_takes()
        return sender

    def _encoded(
        self, event: Event | bytes | str, key: str | None, partition: str | None, properties: Mapping[str, Any] | None
    ) -> tuple[bytes, bool, str, Event | None]:
        """Return what is sent of an event, whether that is its body alone, its partition, and the object that learns
        its number."""
        given: Event | None = None
        if isinstance(event, bytes):
            body = event
        else:
            whole = as_event(event, key, properties)
            body, key, properties = whole.body, whole.key, whole.properties
            if self._numbered and isinstance(event, Event):
                given = event
        if len(body) > MAX_MESSAGE_BYTES:
            raise ConfigurationError(f"an event of {len(body)} bytes is more than any message holds")
        if self._named:
            self._check_place(partition, keyed=key is not None)
        place = self._partitions.place_for(key, partition)
        is_body = key is None and not properties
        return body if is_body else encode_event(body, key, properties), is_body, place, given

    def _check_place(self, partition: str | None, *, keyed: bool) -> None:
        """Raise ConfigurationError for what a producer with `partition_options` cannot do (Event Hubs, IP-2)."""
        if not self._named:
            return
        if keyed:
            raise ConfigurationError(
                "a producer with partition_options publishes to partitions, not by key",
                advice="name the partition, or leave partition_options out",
            )
        if partition is None:
            raise ConfigurationError(
                "a producer with partition_options must be told the partition",
                advice="give partition=..., see `partitions`",
            )


def _piece(sizes: list[int]) -> int:
    """Count those of these that go into a piece."""
    return max(1, fitting(sizes, PIECE_BYTES))


def _have_keys(events: Iterable[object]) -> bool:
    return any(isinstance(event, Event) and event.key is not None for event in events)
