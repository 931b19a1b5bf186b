"""Many events that were given together, and stay together on their way: encoded as one piece of bytes, counted as one.

Problem: an object for each event, and a step of the book-keeping for each, cost more than everything else that is done
with a small event.
Rules never broken:
 - a run is cut between events, never within one, and its parts stand in the order of the whole;
 - each event of a chunk is settled once, by the run that it belongs to then.
Rejected: a list of encoded messages, joined when they go out. They are joined once anyway, and sent again as they are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from time import monotonic
from typing import Protocol

from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES, data_head
from holdfast.client.errors import HoldfastError
from holdfast.client.events import Event, encode_bodies
from holdfast.client.produce.chunks.delivery import Settled
from holdfast.client.produce.idempotent.producer_identity import following
from holdfast.records.digests import digests_of, digests_of_messages
from holdfast.records.lengths import ends_of, split
from holdfast.records.record_batch import DIGEST_BYTES, with_heads

# Lengths are 32 bits wide wherever they are written.
MAX_MESSAGE_BYTES = (1 << 32) - 1 - MAX_HEAD_BYTES


class Owner(Protocol):
    """Who is told what became of the events of a chunk."""

    def settle(self, part: Settled) -> None: ...


class Chunk:
    """Events for one place."""

    __slots__ = ("bodies", "data", "digests", "given", "largest", "leads", "more", "owner", "since_s", "sizes")

    def __init__(
        self,
        data: bytes,
        sizes: array[int],
        owner: Owner,
        *,
        leads: bool,
        bodies: bool = False,
        digests: bytes = b"",
    ) -> None:
        """`sizes`: of the encoded messages, which stand in `data`. `leads`: the first of them is that of the call.
        `bodies`: of each message, which is one data section, the body alone stands there. `digests`: of each, if it
        is an idempotent producer's."""
        self.data, self.sizes, self.bodies, self.digests = data, sizes, bodies, digests
        self.owner, self.leads = owner, leads
        self.more = len(data_head(max(sizes))) if bodies else 0
        """Bytes that the message of each has besides those that stand here, at most: a head."""
        self.largest = max(sizes) + self.more
        self.since_s = monotonic()  # it is here since then, in the time of the event loop
        self.given: Sequence[Event | None] = ()  # events that are to learn their numbers, by place; or none at all

    @classmethod
    def of_bodies(
        cls,
        bodies: Sequence[bytes],
        key: str | None,
        owner: Owner,
        *,
        leads: bool,
        numbered: bool,
        sizes: Sequence[int] = (),
    ) -> Chunk:
        """`numbered`: they are an idempotent producer's. `sizes`: of the bodies, from who has them."""
        if key is not None:
            data, lengths = encode_bodies(bodies, key)
            digests = digests_of_messages(split(data, 0, list(accumulate(lengths)))) if numbered else b""
            return cls(data, lengths, owner, leads=leads, digests=digests)
        sizes = sizes or list(map(len, bodies))
        digests = digests_of(bodies, sizes) if numbered else b""
        return cls(b"".join(bodies), array("I", sizes), owner, leads=leads, bodies=True, digests=digests)

    @classmethod
    def of_messages(cls, messages: Sequence[bytes], owner: Owner, *, leads: bool, numbered: bool = False) -> Chunk:
        digests = digests_of_messages(messages) if numbered else b""
        return cls(b"".join(messages), array("I", map(len, messages)), owner, leads=leads, digests=digests)

    def whole(self) -> Run:
        return Run(self, 0, len(self.sizes), 0, len(self.data))


class Run:
    """Consecutive events of a chunk. What waits, and what is under way, is made of runs."""

    __slots__ = ("_at", "_chunk", "_offset", "_partition", "_start", "events", "sequence_number", "size")

    def __init__(self, chunk: Chunk, start: int, events: int, at: int, size: int) -> None:
        """From the event `start` on, which begins at the byte `at`."""
        self._chunk, self._start, self._at = chunk, start, at
        self.events, self.size = events, size
        self.sequence_number: int | None = None  # of the first one
        self._offset: int | None = None  # of the first one, when a node has told
        self._partition: str | None = None

    @property
    def since_s(self) -> float:
        """Its events were taken in then, in the time of the event loop."""
        return self._chunk.since_s

    @property
    def largest(self) -> int:
        """Bytes of the largest message, here or elsewhere in the chunk."""
        return self._chunk.largest

    @property
    def bodies(self) -> bool:
        """What stands there are bodies."""
        return self._chunk.bodies

    @property
    def digests(self) -> bytes:
        """Of its messages, if they are an idempotent producer's."""
        return self._chunk.digests[self._start * DIGEST_BYTES : (self._start + self.events) * DIGEST_BYTES]

    @property
    def data(self) -> bytes | memoryview:
        """The messages, or bodies, one behind the other."""
        whole = self._chunk.data
        return whole if len(whole) == self.size else memoryview(whole)[self._at : self._at + self.size]

    @property
    def lengths(self) -> bytes:
        """Those of the messages, or bodies, as a record batch has them."""
        sizes = self._chunk.sizes[self._start : self._start + self.events]
        if sys.byteorder == "little":
            sizes.byteswap()
        return sizes.tobytes()

    def messages(self) -> list[bytes]:
        """Each for itself, for who cannot take them together."""
        if self.events == 1:
            alone = self._chunk.data[self._at : self._at + self.size]
            return [data_head(self.size) + alone if self.bodies else alone]
        found = split(self._chunk.data, self._at, ends_of(self.lengths))
        return with_heads(found) if self.bodies else found

    # ---------------------------------------------------------------- cut

    def weight(self, overhead: int) -> int:
        """Bytes on the way, at most; each event has this overhead."""
        return self.size + self.events * (overhead + self._chunk.more)

    def fitting(self, most_events: int, most_bytes: int, overhead: int) -> int:
        """How many of its events are no more than that, from the first one on; each has this overhead."""
        count = min(self.events, most_events)
        overhead += self._chunk.more
        if self.size + self.events * overhead <= most_bytes:
            return count
        found = 0
        for size in self._chunk.sizes[self._start : self._start + count]:
            most_bytes -= size + overhead
            if most_bytes < 0:
                break
            found += 1
        return found

    def cut(self, events: int) -> tuple[Run, Run]:
        """The first ones, and those behind them; there are some of either."""
        assert 0 < events < self.events, "a run without events"
        chunk, start, at = self._chunk, self._start, self._at
        size = sum(chunk.sizes[start : start + events])
        first = Run(chunk, start, events, at, size)
        rest = Run(chunk, start + events, self.events - events, at + size, self.size - size)
        if self.sequence_number is not None:
            first.sequence_number = self.sequence_number
            rest.sequence_number = following(self.sequence_number, events)
        return first, rest

    def singles(self, most: int) -> tuple[list[Run], Run | None]:
        """The first ones, so many at most, each for itself, and those behind them."""
        chunk, start, at, number = self._chunk, self._start, self._at, self.sequence_number
        count = min(most, self.events)
        found: list[Run] = []
        for place, size in enumerate(chunk.sizes[start : start + count]):
            one = Run(chunk, start + place, 1, at, size)
            if number is not None:
                one.sequence_number = following(number, place)
            found.append(one)
            at += size
        if count == self.events:
            return found, None
        rest = Run(chunk, start + count, self.events - count, at, self.size - (at - self._at))
        if number is not None:
            rest.sequence_number = following(number, count)
        return found, rest

    # ---------------------------------------------------------------- what becomes of them

    def stands_at(self, offset: int, partition: str) -> None:
        """Where they are stored, side by side."""
        self._offset, self._partition = offset, partition

    def settle(self, error: HoldfastError | None) -> None:
        """From the producer, once."""
        chunk, start, number = self._chunk, self._start, self.sequence_number
        if chunk.given:
            for place, event in enumerate(chunk.given[start : start + self.events]):
                if event is not None:
                    event.being_published = False
                    if error is None and number is not None:
                        event.published_sequence_number = following(number, place)
        leads = chunk.leads and not start
        chunk.owner.settle(Settled(start, self.events, error, self._partition, self._offset, number, leads))
