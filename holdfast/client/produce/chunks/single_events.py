"""Single events that go to one place in one turn of the loop, gathered into one chunk; what becomes of each.

Problem: a program that sends event by event asks seldom what became of one, and an object for each that is kept until
its outcome is known costs more than to send it.
Rules never broken:
 - each event is settled once, and its callback is called then, in the order of sending; a callback that raises is the
   program's fault, and stops nothing;
 - a failure that no callback hears of, and nobody has asked for, is told to the producer, event by event;
 - events are gathered in the order in which they came, those that are bodies apart from those that are whole messages:
   only the former travel as bodies.
Rejected: to keep what `send` returns, and to note the outcome there. A thousand kept objects for each batch are what
the garbage collector walks through, again and again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator

from holdfast.client.callbacks import FAULTS, report
from holdfast.client.errors import HoldfastError
from holdfast.client.events import Event
from holdfast.client.produce.chunks.chunk import Chunk, Run
from holdfast.client.produce.chunks.delivery import Done, Outcome, Settled, Waiters, wait_among, wake
from holdfast.client.produce.chunks.pieces import PIECE_BYTES, PIECE_EVENTS
from holdfast.client.produce.idempotent.producer_identity import following


class Delivery(Outcome):
    """One event on its way. Await it for the `DeliveryResult`; it raises if the event was not stored, or may not be."""

    __slots__ = ("_events", "_place")

    def __init__(self, events: GatheredEvents, place: int) -> None:
        self._events, self._place = events, place

    @property
    def count(self) -> int:
        return 1

    @property
    def failed(self) -> int:
        return 1

    @property
    def event(self) -> Event | None:
        """The object that an idempotent producer was given, and which learns its number; None: it was none."""
        return self._events.event_at(self._place)

    @property
    def is_done(self) -> bool:
        return self._events.settled_at(self._place) is not None

    @property
    def error(self) -> HoldfastError | None:
        part = self._events.settled_at(self._place)
        return None if part is None else part.error

    @property
    def claimed(self) -> bool:
        return self._place in self._events.asked

    @property
    def partition(self) -> str | None:
        part = self._events.settled_at(self._place)
        return self._events.partition if part is None or part.partition is None else part.partition

    @property
    def offset(self) -> int | None:
        part = self._events.settled_at(self._place)
        return None if part is None or part.offset is None else part.offset + self._place - part.start

    @property
    def sequence_number(self) -> int | None:
        part = self._events.settled_at(self._place)
        if part is None or part.sequence_number is None:
            return None
        return following(part.sequence_number, self._place - part.start)

    def _claim(self) -> None:
        self._events.asked.add(self._place)

    def _let_go(self) -> None:
        self._events.let_go(self._place)

    def _until_done(self) -> Generator[object, None, None]:
        return self._events.until_done(self._place)


class GatheredEvents:
    """Of one chunk: first what is sent together, then what became of it."""

    __slots__ = (
        "_contents", "_dones", "_end", "_given", "_parts", "_unclaimed", "_waiters", "asked", "bodies", "partition",
    )  # fmt: skip

    def __init__(self, partition: str | None, unclaimed: Callable[[Outcome], None], *, bodies: bool) -> None:
        """`unclaimed`: called with each that fails with nobody to tell. `bodies`: of each event, which is nothing else,
        the body is given, not the message."""
        self.partition, self.bodies = partition, bodies
        self.asked: set[int] = set()  # events whose outcome somebody asks for
        self._unclaimed = unclaimed
        self._contents: list[bytes] = []
        self._dones: list[Done | None] = []
        self._given: list[Event | None] = []  # none at all, or of each event the object that learns its number
        self._parts: list[Settled] = []  # by place
        self._end = 0  # nothing is settled from there on
        self._waiters: dict[int, Waiters] = {}  # by place, of those that are awaited

    def add(self, content: bytes, done: Done | None, given: Event | None) -> Delivery:
        place = len(self._dones)
        if given is not None or self._given:
            self._given += [None] * (place - len(self._given))
            self._given.append(given)
        self._contents.append(content)
        self._dones.append(done)
        return Delivery(self, place)

    def __len__(self) -> int:
        return len(self._dones)

    def run(self, *, numbered: bool) -> Run:
        """All of them, as they go out; nothing is added from now on."""
        contents, self._contents = self._contents, []
        if self.bodies:
            chunk = Chunk.of_bodies(contents, None, self, leads=False, numbered=numbered)
        else:
            chunk = Chunk.of_messages(contents, self, leads=False, numbered=numbered)
        chunk.given = self._given
        return chunk.whole()

    # ---------------------------------------------------------------- what became of them

    def event_at(self, place: int) -> Event | None:
        return self._given[place] if place < len(self._given) else None

    def settled_at(self, place: int) -> Settled | None:
        """What the event at this place was settled with; None: it was not."""
        at = bisect_right(self._parts, place, key=_start_of) - 1
        if at < 0:
            return None
        part = self._parts[at]
        return part if place < part.start + part.events else None

    def _insert(self, part: Settled) -> None:
        at = bisect_right(self._parts, part.start, key=_start_of)
        before_end = 0 if not at else self._parts[at - 1].start + self._parts[at - 1].events
        behind = self._parts[at].start if at < len(self._parts) else part.start
        assert before_end <= part.start, "an event was settled twice"
        assert part.start + part.events <= behind, "an event was settled twice"
        self._parts.insert(at, part)

    def let_go(self, place: int) -> None:
        """Who asked for the outcome of this one does not hear of it."""
        self.asked.discard(place)
        part = self.settled_at(place)
        if part is not None and part.error is not None:
            self._unclaimed(Delivery(self, place))

    def until_done(self, place: int) -> Generator[object, None, None]:
        return wait_among(self._waiters.setdefault(place, {}))

    def settle(self, part: Settled) -> None:
        """From the producer: of these events, once."""
        start, end = part.start, part.start + part.events
        if start >= self._end:  # for the most part they are settled in their order
            self._parts.append(part)
            self._end = end
        else:
            self._insert(part)
        if self._waiters:
            few = range(start, end) if part.events < len(self._waiters) else list(self._waiters)
            for place in few:
                if start <= place < end and (waiters := self._waiters.pop(place, None)):
                    wake(waiters)
        dones = self._dones[start:end]
        for place, done in enumerate(dones, start):
            if done is not None:
                self._dones[place] = None  # what a callback holds is not held for the sake of the others
                try:
                    done(part.error)
                except FAULTS as problem:
                    report("of a delivery", problem)
        if part.error is not None:
            for place, done in enumerate(dones, start):
                if done is None and place not in self.asked:
                    self._unclaimed(Delivery(self, place))


def _start_of(part: Settled) -> int:
    return part.start


class Staged:
    """What came for one place and has not gone out, in order: runs, the last single events still being gathered."""

    __slots__ = ("_gathered", "_numbered", "_partition", "_runs", "_size", "_unclaimed")

    def __init__(self, partition: str | None, unclaimed: Callable[[Outcome], None], *, numbered: bool) -> None:
        """`numbered`: by an idempotent producer. `unclaimed`: see `GatheredEvents`."""
        self._partition, self._unclaimed, self._numbered = partition, unclaimed, numbered
        self._runs: list[Run] = []
        self._gathered: GatheredEvents | None = None
        self._size = 0  # of what is being gathered, in bytes

    @property
    def takes_messages(self) -> bool:
        """Those that are being gathered are messages: what would else be given as a body joins them, or each change
        would be a chunk of its own."""
        return self._gathered is not None and not self._gathered.bodies

    def add(self, content: bytes, done: Done | None, given: Event | None, *, body: bool) -> Delivery:
        """One event: its message, or its body."""
        gathered = self._gathered
        if gathered is None or gathered.bodies is not body:
            self._close()
            gathered = self._gathered = GatheredEvents(self._partition, self._unclaimed, bodies=body)
        self._size += len(content)
        delivery = gathered.add(content, done, given)
        if self._size >= PIECE_BYTES or len(gathered) >= PIECE_EVENTS:
            self._close()
        return delivery

    def __bool__(self) -> bool:
        return bool(self._runs) or self._gathered is not None

    def append(self, run: Run) -> None:
        self._close()
        self._runs.append(run)

    def take(self) -> list[Run]:
        """All of it."""
        self._close()
        runs, self._runs = self._runs, []
        return runs

    def _close(self) -> None:
        if self._gathered is not None:
            self._runs.append(self._gathered.run(numbered=self._numbered))
            self._gathered, self._size = None, 0
