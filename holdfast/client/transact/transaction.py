"""A transaction as a program uses it: its events, the positions that move with it, and its one end.

After each failure a program must know whether to do its work again. It need not know where the failure was. And it must
never hear "committed" of a transaction that is not.

Rules:
 - the transaction asks for its commit only when every event was accepted;
 - after any failure it rolls back, whatever its owner asks for;
 - it ends once. `commit` returns only if the transaction was committed; its errors tell the outcome.

| state    | begin | send, commit_offsets | commit  | abort   | fails   |
| -------- | ----- | -------------------- | ------- | ------- | ------- |
| NEW      | OPEN  |                      |         |         |         |
| OPEN     |       | OPEN                 | ENDING  | ENDING  | DOOMED  |
| DOOMED   |       |                      | ENDING  | ENDING  | DOOMED  |
| ENDING   |       |                      |         |         | ENDING  |

and from ENDING to COMMITTED, ROLLED_BACK, or UNKNOWN. What the table leaves empty raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Any

from holdfast import protocol
from holdfast.amqp.links.delivery_states import Accepted, DeliveryState, OtherState, Rejected, Transactional
from holdfast.client.errors import (
    NO_ROOM,
    NO_ROOM_ADVICE,
    RETRIABLE_CONDITIONS,
    HoldfastError,
    InvalidOperationError,
    OwnershipLostError,
    ProducerFencedError,
    RejectedError,
    TimeoutExpiredError,
    TransactionOutcomeUnknownError,
    TransactionRolledBackError,
)
from holdfast.client.events import Event, as_event, encode_event
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.accumulator import EVENT_OVERHEAD_BYTES
from holdfast.client.produce.delivery import Delivery, DeliveryResult, PendingBatch
from holdfast.client.produce.event_batch import EventBatch, contents_of, place_of
from holdfast.client.produce.pieces import Piece, Pieces, check_many
from holdfast.client.transact.control_link import ROLLED_BACK
from holdfast.client.transact.positions import CommittablePosition, OffsetsConsumer, note_all
from holdfast.client.transact.transactional_sender import TransactionalSender
from holdfast.client.transact.transactor import Transactor, TransactorSession, pair_of

ATTACH_BOUND_S = 15.0
"""Bound of an attach; a node holds one up to 10 s while a partition has no leader."""

YIELD_EVENTS = 1024
"""Events after which a sending task yields to the event loop; else none would be sent until the buffer is full."""


class TransactionPhase(Enum):
    NEW = auto()
    OPEN = auto()
    DOOMED = auto()  # it can only be rolled back
    ENDING = auto()
    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


_NEXT: dict[TransactionPhase, frozenset[TransactionPhase]] = {
    TransactionPhase.NEW: frozenset({TransactionPhase.OPEN}),
    TransactionPhase.OPEN: frozenset({TransactionPhase.OPEN, TransactionPhase.ENDING, TransactionPhase.DOOMED}),
    TransactionPhase.DOOMED: frozenset({TransactionPhase.ENDING, TransactionPhase.DOOMED}),
    TransactionPhase.ENDING: frozenset(
        {TransactionPhase.COMMITTED, TransactionPhase.ROLLED_BACK, TransactionPhase.UNKNOWN}
    ),
    TransactionPhase.COMMITTED: frozenset(),
    TransactionPhase.ROLLED_BACK: frozenset(),
    TransactionPhase.UNKNOWN: frozenset(),
}


@dataclass(frozen=True)
class ProducerSide:
    """The part of a producer that its transactions need."""

    place: Callable[[str | None, str | None], str]  # of a key and a partition: where it goes
    turn_passes: Callable[[], None]  # the next event without a place goes to another partition than the last one
    begins: Callable[[Transaction], Awaitable[None]]  # raises InvalidOperationError while another one is open
    over: Callable[[Transaction], None]


class Transaction:
    """A transaction of a producer, made by `ProducerClient.transaction`.

    async with producer.transaction() as tx:
        await tx.send(b"...", key="IBM")
        await tx.commit_offsets(consumer)
    """

    def __init__(self, producer: ProducerSide, transactor: Transactor) -> None:
        self.txn_id = b""
        self._producer, self._transactor = producer, transactor
        self._options: ProducerOptions = transactor.options
        self._state = TransactionPhase.NEW
        self._session: TransactorSession | None = None
        self._why: HoldfastError | None = None  # why it is doomed
        self._touched = False  # something was sent under it, or is about to be
        self._unanswered = self._unanswered_bytes = self._this_turn = 0
        self._changed = asyncio.Event()
        self._positions: list[CommittablePosition] = []
        self._places: set[str] = set()  # that its events went to
        self._beginning = asyncio.Lock()
        self.ending: asyncio.Future[None] | None = None  # goes on even if its caller is cancelled

    # ---------------------------------------------------------------- life

    @property
    def is_open(self) -> bool:
        """True while events can be sent."""
        return self._state is TransactionPhase.OPEN

    @property
    def producer_id(self) -> int | None:
        """Producer id of the transaction; with `epoch`, its name in the cluster."""
        pair = pair_of(self.txn_id)
        return None if pair is None else pair[0]

    @property
    def epoch(self) -> int | None:
        pair = pair_of(self.txn_id)
        return None if pair is None else pair[1]

    async def begin(self) -> None:
        """Begin the transaction; `async with` does it."""
        self._check_new()
        await self._producer.begins(self)
        try:
            self._session, self.txn_id = await self._transactor.declare()
        except BaseException:
            self._producer.over(self)
            raise
        self._go(TransactionPhase.OPEN)

    async def __aenter__(self) -> Transaction:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state in (TransactionPhase.OPEN, TransactionPhase.DOOMED):
            if kind is None:
                await self.commit()
            else:
                await self.abort()

    def _check_new(self) -> None:
        if self._state is not TransactionPhase.NEW:
            raise InvalidOperationError("the transaction was begun before", advice="begin another one")

    def _check(self, wanted: TransactionPhase, what: str) -> None:
        if wanted not in _NEXT[self._state]:
            raise InvalidOperationError(
                f"the transaction is {self._state.name.lower().replace('_', ' ')}: it cannot be {what}",
                advice="begin another one: producer.transaction()",
            )

    def _go(self, state: TransactionPhase) -> None:
        assert state in _NEXT[self._state], f"{self._state} -> {state}"
        self._state = state

    # ---------------------------------------------------------------- sending

    async def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Delivery:
        """Buffer one event; wait for room if necessary.

        Await the `Delivery` to know that a partition has the event, which counts when the transaction is committed.
        `commit` waits for all deliveries."""
        whole = as_event(event, key, properties)
        place = self._producer.place(whole.key, partition)
        message = encode_event(whole.body, whole.key, whole.properties)
        sender = await self._ready_sender(place)
        sender.check_size(len(message))
        body = whole.key is None and not whole.properties
        record = whole.body if body else message
        self._counts(place, 1, len(record))
        [delivery] = sender.put((record,), self, bodies=body)
        await self._others_turn(1)
        return delivery

    async def send_many(
        self, events: Sequence[Event | bytes | str], *, key: str | None = None, partition: str | None = None
    ) -> Delivery:
        """Buffer these events, waiting for room if need be: what `send` of each does, in the same order, at a fraction
        of its cost. They go to one partition, but for events with keys of their own, where none is named. `commit`
        waits for all of them; await what is returned to hear that they have arrived, or why not."""
        check_many(events)
        self._check_usable("sent under")
        pieces = Pieces(events, key, partition, self._producer.place)
        if key is None and partition is None and pieces.routes:
            self._producer.turn_passes()
        for place in pieces.routes:
            (await self._ready_sender(place)).check_size(pieces.least_size)
        return Delivery.of(await self._put_all(pieces), pieces.routes[0] if pieces.routes else "")

    async def send_batch(
        self,
        batch: EventBatch | Sequence[Event | bytes | str],
        *,
        partition: str | None = None,
        key: str | None = None,
    ) -> DeliveryResult:
        """Send a batch, or a list of events, to one partition; return when the partition has all of them.

        They count when the transaction is committed. Raises the errors of `send`; if an event is too large, none was
        sent."""
        partition, key = place_of(batch, partition, key, named=False)
        place = self._producer.place(key, partition)
        if isinstance(batch, EventBatch):
            batch.lock()
        try:
            return await self._send_all(contents_of(batch, key), place)
        finally:
            if isinstance(batch, EventBatch):
                batch.unlock()

    async def _send_all(self, contents: list[bytes], place: str) -> DeliveryResult:
        if not contents:
            return DeliveryResult(place, None, None, 0)
        (await self._ready_sender(place)).check_size(max(map(len, contents)))
        parts = (contents[start : start + YIELD_EVENTS] for start in range(0, len(contents), YIELD_EVENTS))
        return await Delivery.of(await self._put_all([Piece(place, part, False, ())] for part in parts), place)

    async def _put_all(self, pieces: Iterable[Sequence[Piece[str]]]) -> list[Delivery]:
        """Buffer the events of one call. If some cannot be sent, the transaction rolls back, so none counts."""
        parts: list[Delivery] = []
        try:
            for those in pieces:
                for piece in those:
                    sender = await self._ready_sender(piece.route)
                    sizes = list(map(len, piece.records))
                    sender.check_size(max(sizes))
                    self._counts(piece.route, len(sizes), sum(sizes))
                    parts += sender.put(piece.records, self, bodies=piece.bodies)
                    await self._others_turn(len(sizes))
        except BaseException:
            if parts:
                self.fail(TransactionRolledBackError("only a part of the events of one call was sent under it"))
            raise
        return parts

    async def _others_turn(self, events: int) -> None:
        self._this_turn += events
        if self._this_turn >= YIELD_EVENTS:
            self._this_turn = 0
            await asyncio.sleep(0)

    async def _ready_sender(self, place: str) -> TransactionalSender:
        """Wait for room, then return the sender of a partition."""
        self._check_usable("sent under")
        await self._room()
        session = self._session
        sender = session.sender(place) if session is not None and session.ended is None else None
        if sender is None:
            sender = await self._sender(place)
        self._check_usable("sent under")
        return sender

    def _counts(self, place: str, events: int, size: int) -> None:
        """Count events that are about to be sent."""
        self._touched = True
        self._places.add(place)
        self._unanswered += events
        self._unanswered_bytes += size + events * EVENT_OVERHEAD_BYTES

    def _check_usable(self, what: str) -> None:
        if self._state is TransactionPhase.DOOMED:
            assert self._why is not None
            raise self._why.with_traceback(None)
        if self._state is TransactionPhase.NEW:
            raise InvalidOperationError("the transaction was not begun", advice="use `async with`, or await begin()")
        self._check(TransactionPhase.OPEN, what)

    async def _room(self) -> None:
        options = self._options
        while self._state is TransactionPhase.OPEN and (
            self._unanswered >= options.max_buffered_events or self._unanswered_bytes >= options.max_buffered_bytes
        ):
            await self._progress()

    async def _ready(self) -> TransactorSession:
        """Return the transaction's connection; if it broke before anything was sent, begin again on another one."""
        async with self._beginning:
            self._check_usable("used")
            assert self._session is not None
            if self._session.ended is not None:
                if self._touched:
                    self.fail(self._session.ended)
                    self._check_usable("used")
                self._session, self.txn_id = await self._transactor.declare()
            return self._session

    async def _sender(self, place: str) -> TransactionalSender:
        """Attach a link to the partition; retry, on a new connection only while nothing was sent and can be lost."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.delivery_timeout_s
        while True:
            session = await self._ready()
            try:
                return await session.attached(place, min(ATTACH_BOUND_S, max(0.1, deadline_s - loop.time())))
            except HoldfastError as error:
                if not error.retriable or loop.time() >= deadline_s:
                    raise
                if session.ended is not None:
                    continue  # `_ready` decides what to do
                await asyncio.sleep(0)  # the node has held the attach for as long as it may: try again

    # ---------------------------------------------------------------- positions of a consumer

    async def commit_offsets(self, consumer: OffsetsConsumer) -> None:
        """Add the consumer's positions to the transaction.

        If it commits, the group goes on after the events that the consumer has handed out. Raises OwnershipLostError if
        another member has one of the partitions by now and works on the same events; then the transaction can only be
        rolled back."""
        try:
            positions = consumer.handed_out()
        except OwnershipLostError as error:
            self.fail(error)
            raise
        if not positions:
            return
        session = await self._ready()
        self._touched = True
        bound_s = self._options.delivery_timeout_s
        for failure in await note_all(session.connection, self.txn_id, positions, bound_s):
            if isinstance(failure, HoldfastError):
                self.fail(failure)
            raise failure
        self._positions += positions

    # ---------------------------------------------------------------- from the links

    def answered(self, batch: PendingBatch, state: DeliveryState) -> None:
        outcome = state.outcome if isinstance(state, Transactional) else state
        if isinstance(outcome, Accepted) or (isinstance(outcome, OtherState) and outcome.code == protocol.STORED_CODE):
            self._settle(batch, None)
            return
        error = outcome.error if isinstance(outcome, Rejected) else None
        condition = "" if error is None else error.condition
        text = f"an event was not taken: {error if error is not None else type(outcome).__name__}"
        self._settle(batch, RejectedError(text, condition=condition))
        again = condition in ROLLED_BACK or condition in RETRIABLE_CONDITIONS or not isinstance(outcome, Rejected)
        advice = None if again else "correct the event; the same one would be refused again"
        if condition == NO_ROOM:
            advice = NO_ROOM_ADVICE
        self.fail(TransactionRolledBackError(text, condition=condition, retriable=again, advice=advice))

    def lost(self, batches: list[PendingBatch], why: HoldfastError) -> None:
        for batch in batches:
            self._settle(batch, why)
        self.fail(why)

    def _settle(self, batch: PendingBatch, error: HoldfastError | None) -> None:
        self._unanswered -= batch.events
        self._unanswered_bytes -= batch.size + batch.events * EVENT_OVERHEAD_BYTES
        batch.settle(error)
        self._changed.set()

    def fail(self, why: HoldfastError) -> None:
        """Doom the transaction, which can then only be rolled back; the program gets the first reason."""
        if self._why is None:
            known = isinstance(why, TransactionRolledBackError | ProducerFencedError | OwnershipLostError)
            self._why = why if known else TransactionRolledBackError(f"the transaction is rolled back: {why}")
        if self._state is TransactionPhase.OPEN:
            self._go(TransactionPhase.DOOMED)
        self._changed.set()

    async def _progress(self) -> None:
        """Wait for an answer; doom the transaction if none comes within the delivery timeout."""
        self._changed.clear()
        try:
            async with asyncio.timeout(self._options.delivery_timeout_s):
                await self._changed.wait()
        except TimeoutError:
            self.fail(TimeoutExpiredError(f"no event was taken for {self._options.delivery_timeout_s:g} s"))

    # ---------------------------------------------------------------- the end

    async def commit(self) -> None:
        """Commit the transaction: all of it counts when this returns.

        Raises TransactionRolledBackError (do the work again), ProducerFencedError (stop) or
        TransactionOutcomeUnknownError. Cancelling the call leaves the outcome open."""
        self._check(TransactionPhase.ENDING, "committed")
        self._go(TransactionPhase.ENDING)
        await self._to_its_end(self._commit())

    async def abort(self) -> None:
        """Roll the transaction back: none of it counts when this returns."""
        self._check(TransactionPhase.ENDING, "aborted")
        self._go(TransactionPhase.ENDING)
        await self._to_its_end(self._abort())

    async def _to_its_end(self, work: Awaitable[None]) -> None:
        """End the transaction, even if the caller is cancelled, since no other task can end it."""

        async def whole() -> None:
            try:
                await work
            finally:
                for sender in self._senders():
                    sender.forget(self)
                self._producer.over(self)

        self.ending = asyncio.ensure_future(whole())
        self.ending.add_done_callback(_heard)
        await asyncio.shield(self.ending)

    def _senders(self) -> list[TransactionalSender]:
        return [] if self._session is None else self._session.senders

    async def _commit(self) -> None:
        assert self._session is not None
        while self._unanswered and self._why is None:
            if self._session.ended is not None:
                self.fail(self._session.ended)
            else:
                await self._progress()
        if self._why is not None:
            await self._abort()
            raise (self._transactor.fenced or self._why).with_traceback(None)
        try:
            await self._transactor.commit(self._session, self.txn_id, empty=not self._touched)
        except TransactionOutcomeUnknownError:
            self._go(TransactionPhase.UNKNOWN)
            raise
        except BaseException:
            self._go(TransactionPhase.ROLLED_BACK)
            raise
        self._go(TransactionPhase.COMMITTED)
        self._transactor.wrote(self._session, self._places)
        for one in self._positions:
            one.committed()

    async def _abort(self) -> None:
        assert self._session is not None
        for sender in self._senders():
            sender.forget(self)
        try:
            await self._transactor.abort(self._session, self.txn_id)
        finally:
            self._go(TransactionPhase.ROLLED_BACK)


def _heard(task: asyncio.Future[None]) -> None:
    """Take the error of the task, so that asyncio does not log it if the caller was cancelled."""
    if not task.cancelled():
        task.exception()
