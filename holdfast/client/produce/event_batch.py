"""A batch: events for one place, gathered until there is no more room, published together.

What was added fits, and is encoded. Nothing is added while the batch is being published, since an idempotent producer
must not give its numbers to something that changes afterwards; they are given when it is sent.
"""

from __future__ import annotations

from holdfast.client.errors import BatchFullError, ConfigurationError, EventTooLargeError, InvalidOperationError
from holdfast.client.events import Event, encode_content, encode_event
from holdfast.records.record_batch import Numbering

MAX_BATCH_BYTES = 1 << 20  # the default; what one entry of the replicated log holds
MAX_BATCH_EVENTS = 4096
"""A node that is short of memory remembers so many events of each producer, so a batch that failed is still recognised
when it is sent once more."""


class EventBatch:
    """Made by `ProducerClient.create_batch`."""

    def __init__(self, partition: str | None, key: str | None, *, max_bytes: int, named: bool = False) -> None:
        """`named`: made by a producer with `partition_options`, which publishes a batch once and takes no keys."""
        self.partition, self.key, self.named = partition, key, named
        self.max_bytes = max_bytes
        self.doubted_as: Numbering | None = None
        self.size_bytes = 0
        self.starting_published_sequence_number: int | None = None
        self.contents: list[bytes] = []
        self._publishing = self._published = False

    @classmethod
    def of_encoded(cls, partition: str, contents: list[bytes]) -> EventBatch:
        """A batch of events that were encoded before, by a caller that keeps to the limits: nothing is added to it."""
        batch = cls(partition, None, max_bytes=0)
        batch.contents = contents
        batch.size_bytes = sum(map(len, contents))
        return batch

    def __len__(self) -> int:
        return len(self.contents)

    def __repr__(self) -> str:
        where = f"partition {self.partition!r}" if self.partition is not None else f"key {self.key!r}"
        return f"EventBatch({where}, {len(self)} events, {self.size_bytes} of {self.max_bytes} bytes)"

    @property
    def is_locked(self) -> bool:
        """True while it is published, and after a producer with `partition_options` has published it."""
        return self._publishing or (self.named and self._published)

    @property
    def is_published(self) -> bool:
        return self._published

    def try_add(self, event: Event | bytes | str) -> bool:
        """Add an event if there is room for it. An event that no batch has room for raises `EventTooLargeError`."""
        self._check_unlocked("it is locked")
        content = self._content(event)
        size = len(content)
        if size > self.max_bytes:
            raise EventTooLargeError(f"an event of {size} bytes is larger than a batch of {self.max_bytes}")
        if self.size_bytes + size > self.max_bytes or len(self) >= MAX_BATCH_EVENTS:
            return False
        self.contents.append(content)
        self.size_bytes += size
        return True

    def _content(self, event: Event | bytes | str) -> bytes:
        if isinstance(event, bytes):  # the usual case, for which no Event is made
            return encode_content(event) if self.key is None else encode_event(event, self.key)
        event = event if isinstance(event, Event) else Event(event)
        if event.key is not None and (self.named or self.key not in (None, event.key)):
            raise ConfigurationError(f"an event with the key {event.key!r} does not belong into {self!r}")
        key = self.key if event.key is None else event.key
        return encode_event(event.body, key, event.properties)

    def add(self, event: Event | bytes | str) -> None:
        """Add an event or raise `BatchFullError`."""
        if not self.try_add(event):
            raise BatchFullError(
                f"no room: {len(self)} events with {self.size_bytes} of {self.max_bytes} bytes are in the batch"
            )

    def _check_unlocked(self, therefore: str) -> None:
        if self.is_locked:
            how = "is being published" if self._publishing else "was published before"
            raise InvalidOperationError(f"the batch {how}: {therefore}")

    # ---------------------------------------------------------------- from the producer

    def lock(self) -> None:
        """Publishing begins."""
        self._check_unlocked("it cannot be published anew")
        self._publishing, self._published = True, False

    def published(self, starting_number: int | None) -> None:
        """Note that it stands in the log."""
        self._publishing = False
        self._published, self.doubted_as = True, None
        self.starting_published_sequence_number = starting_number

    def unlock(self) -> None:
        """Note that it is not known to stand in the log: to publish it is a new request."""
        self._publishing = False
