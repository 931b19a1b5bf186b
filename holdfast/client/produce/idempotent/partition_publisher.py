"""Idempotent publishing to one partition: numbered events, one publish at a time, the same numbers until it is decided.

Problem: whatever fails on the way (the link, the leader, the answer), what is sent again must be recognised; and what
was given up must not leave the numbers in a state that nobody can know.
Rules never broken:
 - one publish at a time: a batch, or as many buffered events as come without a pause; everybody else waits in line;
 - events get their numbers when they are sent first, and keep them until they are accepted or given up: whatever
   happens, what is unconfirmed is sent again, from the first unconfirmed one on, in order, with its numbers;
 - the state advances by what was accepted: for a batch when all of it was, for buffered events one by one;
 - a refusal that concerns the numbers ends this publisher for good. Those of other partitions go on.
Rejected: pipelining publishes. The first refusal would doom numbers that were promised to the next ones already.

A batch that was given up in doubt leaves the state where it was. Published again, it gets the same numbers again, and
the node recognises what it has; another batch in its place is refused by the node, if the first one did arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from holdfast import protocol
from holdfast.amqp.errors import NOT_ALLOWED, Error
from holdfast.amqp.links.delivery_states import (
    ACCEPTED,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from holdfast.batches.codec import Codec
from holdfast.client.errors import (
    FATAL_TO_PRODUCERS,
    ClosedError,
    HoldfastError,
    LinkRefusedError,
    LogDeletedError,
    NotFoundError,
    ProducerStateError,
    ProducerStolenError,
    RejectedError,
    TimeoutExpiredError,
)
from holdfast.client.produce.delivery import Delivery
from holdfast.client.produce.idempotent.producer_identity import PartitionPublishingOptions, ProducerIdentity, following
from holdfast.client.produce.idempotent.publish_source import PublishSource
from holdfast.client.produce.partition_sender import (
    PUMP_BYTES,
    PUMP_EVENTS,
    QUIESCE_BOUND_S,
    STALL_SHARE,
    ProducerStats,
)
from holdfast.client.produce.receipts import receipt_of, tell
from holdfast.client.transport.links import Sender
from holdfast.client.transport.network import Backoff, Network

FATAL = (ProducerStateError, ProducerStolenError, LogDeletedError)


class PartitionPublisher:
    """The line to one partition."""

    def __init__(
        self,
        network: Network,
        log: str,
        partition: str,
        options: PartitionPublishingOptions,
        *,
        window: int,
        codec: Codec,
        delivery_timeout_s: float,
        stats: ProducerStats,
    ) -> None:
        self.partition = partition
        self.identity = ProducerIdentity(options)
        self.turn = asyncio.Lock()  # who holds it publishes
        self._network, self._log = network, log
        self._window, self._codec = window, codec
        self._delivery_timeout_s, self._stats = delivery_timeout_s, stats
        self._sender: Sender | None = None
        self._implied: int | None = None  # the number that the link's next event has if it does not say
        self._closed_by: HoldfastError | None = None  # why the last link ended
        self._fatal: HoldfastError | None = None
        # Of the publish under way:
        self._source: PublishSource | None = None
        self._next = 0
        self._in_flight: dict[int, Delivery] = {}  # by the link's number, in the order sent
        self._returned: dict[int, tuple[Delivery, Error | None]] = {}  # not accepted; without an error: to send again
        self._again: deque[Delivery] = deque()  # numbered, and not sent on this link yet
        self._exhausted = False  # the source has nothing more
        self._counted = False  # the node of this link counts events that do not say their number
        self._decided = asyncio.Event()  # all is accepted, or something must be done first
        self._quiet = asyncio.Event()
        self._progress_s = 0.0
        self._loop = asyncio.get_running_loop()

    @property
    def what(self) -> str:
        return f"{self._log}, partition {self.partition}"

    def check_usable(self) -> None:
        """Raise what ended this publisher, if something did."""
        if self._fatal is not None:
            raise self._fatal.with_traceback(None)

    def end(self, error: HoldfastError) -> None:
        """Nothing is published any more."""
        self._fatal = self._fatal or error
        self._decided.set()

    async def close(self) -> None:
        self.end(ClosedError("the producer was closed"))
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()

    @property
    def in_doubt(self) -> bool:
        """Something was sent and is not accepted: to stop now would leave its outcome open."""
        return bool(self._in_flight or self._returned or self._again)

    # ---------------------------------------------------------------- publishing; for who has the turn

    async def ready(self) -> None:
        """Agree with the node who we are, if that has not been done."""
        if not self.identity.known:
            self._progress_s = self._loop.time()
            await self._open()

    async def publish(self, source: PublishSource, *, leave_in_doubt: bool = False) -> None:
        """Return when all that `source` gives is accepted; raise when it is given up. `leave_in_doubt`: cancelled when
        something was sent and is not accepted, it is not given up, but left for `resume`, which must follow at once."""
        self._progress_s = self._loop.time()
        try:
            await self._publish(source)
        except BaseException as error:
            if not (leave_in_doubt and isinstance(error, asyncio.CancelledError) and self.in_doubt):
                self._failed(source, error)
            raise

    def left_in_doubt(self, source: PublishSource) -> bool:
        return self._source is source

    async def resume(self, source: PublishSource) -> None:
        """Go on with what was left in doubt."""
        try:
            await self._publish(source)
        except BaseException as error:
            self._failed(source, error)
            raise

    def _failed(self, source: PublishSource, error: BaseException) -> None:
        if isinstance(error, FATAL):
            self.end(error)
        self._give_up(source)
        self._source = None

    async def _publish(self, source: PublishSource) -> None:
        backoff = Backoff()
        while True:
            accepted_before = self._stats.accepted
            if not (self._in_flight or self._returned):  # else it is resumed
                await self._send(source)
            await self._until_decided()
            if self._finished:
                self.identity.went_on_to(self._next)
                self._source = None
                return
            await self._take_back(source)
            if self._loop.time() >= self._deadline_s:
                raise TimeoutExpiredError(f"none was confirmed for {self._delivery_timeout_s:g} s")
            if self._stats.accepted != accepted_before:
                backoff.reset()
            await backoff.wait()

    async def _send(self, source: PublishSource) -> None:
        self.check_usable()
        self._decided.clear()
        self._exhausted = False
        if self._sender is None:
            await self._open()
        if self._source is None and self._sender is not None:
            source.check(self._sender.max_message_size)
            self._source, self._next = source, self.identity.next
        self._pump()

    @property
    def _finished(self) -> bool:
        """The source gave nothing more, and all that it gave is accepted."""
        return self._exhausted and not self.in_doubt and self._fatal is None

    @property
    def _deadline_s(self) -> float:
        return self._progress_s + self._delivery_timeout_s

    # ---------------------------------------------------------------- the link

    async def _open(self) -> None:
        identity, hint, self._closed_by = self.identity, self._closed_by, None
        try:
            sender = await self._network.attach_sender(
                self._log,
                self.partition,
                self,
                deadline_s=self._deadline_s,
                hint=hint,
                identity=identity.link_properties(),
                codec=self._codec,
            )
        except LinkRefusedError as error:
            raise self._of_refused_attach(error) from error
        try:
            self.check_usable()  # it may have been closed meanwhile
            identity.adopt(sender.properties, self.what)
        except HoldfastError:
            sender.abandon()
            raise
        self._implied = None
        self._counted = sender.properties.get(protocol.IMPLIED_NUMBERS) is True
        self._stats.attached += 1
        if self._closed_by is None:  # the node may have ended it in the same breath
            self._sender = sender

    def _of_refused_attach(self, error: LinkRefusedError) -> LinkRefusedError:
        """Who was open before and is refused now, or claims numbers that the node does not know, must begin anew."""
        if isinstance(error, FATAL):
            self.end(error)
        elif not isinstance(error, NotFoundError) and (self.identity.known or error.condition == NOT_ALLOWED):
            error = ProducerStateError(f"the node does not let us go on: {error}", condition=error.condition)
            self.end(error)
        return error

    def _pump(self) -> None:
        """Send what may be sent now."""
        sender, in_flight, source = self._sender, self._in_flight, self._source
        if sender is None or source is None or self._returned or self._fatal is not None:
            return
        while (count := min(sender.credit, self._window - len(in_flight), PUMP_EVENTS)) > 0:
            deliveries = self._next_ones(source, count)
            if not deliveries:
                break
            in_flight.update(zip(sender.send_many(self._payloads(deliveries)), deliveries, strict=True))
        if not in_flight and not self._again and not source.has_more:
            self._exhausted = True
            self._decided.set()

    def _payloads(self, deliveries: list[Delivery]) -> list[bytes]:
        """As they travel. On a link where the node counts them, only an event that does not follow the one before says
        its number: a hundred bytes on each of them would be a tenth of what is sent."""
        first, last, payload = _number_of(deliveries[0]), _number_of(deliveries[-1]), self.identity.payload
        expected, self._implied = self._implied, following(last)
        if not self._counted or following(first, len(deliveries) - 1) != last:
            return [payload(_number_of(one), one.content) for one in deliveries]
        payloads = [one.content for one in deliveries]
        if first != expected:
            payloads[0] = payload(first, payloads[0])
        return payloads

    def _next_ones(self, source: PublishSource, count: int) -> list[Delivery]:
        """Those to be sent again, then new ones; all with their numbers."""
        if self._again:
            deliveries = [self._again.popleft() for _ in range(min(count, len(self._again)))]
        else:
            deliveries = source.take(count, PUMP_BYTES)
        number = self._next
        for delivery in deliveries:
            if delivery.sequence_number is None:
                delivery.sequence_number = number
                number = following(number)
        self._next = number
        return deliveries

    def has_more(self, source: PublishSource) -> None:
        """If it is being published, and there is room, what came to it goes out at once."""
        if source is self._source and not self._exhausted:
            self._pump()

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        self._pump()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        in_flight, source = self._in_flight, self._source
        accepted: list[Delivery] = []
        for number, state in outcomes:
            row = None if state is ACCEPTED else receipt_of(state)
            if row is not None:
                tell(row, number, in_flight)
            delivery = in_flight.pop(number, None)
            if delivery is None:
                continue  # of a publish that was given up
            if state is ACCEPTED or row is not None:
                accepted.append(delivery)
            else:
                self._not_accepted(number, delivery, state)
        if accepted and source is not None:
            self._stats.accepted += len(accepted)
            self._progress_s = self._loop.time()
            if source.one_by_one:
                self.identity.last = following(self._first_open, -1)
            source.accepted(accepted)
        if not in_flight:
            self._quiet.set()
        self._pump()

    @property
    def _first_open(self) -> int:
        """The number of the first event that is not accepted. Answers need not come in order."""
        first = self._next
        if self._in_flight or self._returned:
            in_flight, returned = next(iter(self._in_flight), None), min(self._returned, default=None)
            if in_flight is not None and (returned is None or in_flight < returned):
                first = _number_of(self._in_flight[in_flight])
            elif returned is not None:
                first = _number_of(self._returned[returned][0])
        elif self._again:
            first = _number_of(self._again[0])
        return first

    def _not_accepted(self, number: int, delivery: Delivery, state: DeliveryState) -> None:
        error: Error | None = None
        if isinstance(state, Rejected):
            error = state.error or Error("amqp:not-allowed", "no reason given")
        elif isinstance(state, Released) or (isinstance(state, Modified) and not state.delivery_failed):
            self._stats.released += 1
        else:
            self._stats.resent += 1
        self._returned[number] = (delivery, error)
        self._decided.set()

    def on_closed(self, error: HoldfastError) -> None:
        self._sender, self._closed_by = None, error
        if isinstance(error, FATAL):
            self.end(error)
        self._decided.set()
        self._quiet.set()

    # ---------------------------------------------------------------- deciding

    async def _until_decided(self) -> None:
        """Or until the link has made no progress for too long."""
        patience_s, since_s = self._delivery_timeout_s * STALL_SHARE, self._loop.time()
        while not self._decided.is_set():
            idle_s = self._loop.time() - max(since_s, self._progress_s)
            if idle_s >= patience_s:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s - idle_s):
                    await self._decided.wait()

    async def _take_back(self, source: PublishSource) -> None:
        """Find out what is to be sent again, once no more answers come; raise if that would be in vain."""
        stalled = not self._decided.is_set()
        if self._in_flight and self._sender is not None and not stalled and self._fatal is None:
            self._quiet.clear()
            try:
                async with asyncio.timeout(QUIESCE_BOUND_S):
                    await self._quiet.wait()
            except TimeoutError:
                stalled = True
        if stalled and self._sender is not None:
            self._sender.abandon()
            self._sender, self._closed_by = None, TimeoutExpiredError(f"{self.what}: the link made no progress")
        self.check_usable()
        self._stats.resent += len(self._in_flight)
        unconfirmed = self._unconfirmed()
        self._again.extend(delivery for delivery, _ in unconfirmed)
        if unconfirmed and (error := unconfirmed[0][1]) is not None:
            self._refuse(source, unconfirmed[0][0], error)

    def _unconfirmed(self) -> list[tuple[Delivery, Error | None]]:
        """All that was taken and not accepted, in the order of sending, with the node's refusal if there is one."""
        sent: dict[int, tuple[Delivery, Error | None]] = {n: (one, None) for n, one in self._in_flight.items()}
        sent |= self._returned
        found = [entry for _, entry in sorted(sent.items(), key=lambda item: item[0])]
        found += [(delivery, None) for delivery in self._again]
        self._in_flight.clear()
        self._returned.clear()
        self._again.clear()
        return found

    def _refuse(self, source: PublishSource, first: Delivery, error: Error) -> None:
        """The first event that is not accepted was refused; what came behind it was refused for its sake."""
        message = f"{self.what}: event {first.sequence_number} refused: {error}"
        kind = ProducerStateError if error.condition == NOT_ALLOWED else FATAL_TO_PRODUCERS.get(error.condition)
        if kind is not None:
            raise kind(message, condition=error.condition)
        self._stats.rejected += 1
        rejected = RejectedError(message, condition=error.condition)
        if not source.one_by_one:
            raise rejected
        self._progress_s = self._loop.time()
        self._next = _number_of(first)
        self._again.popleft()
        for delivery in (first, *self._again):
            delivery.sequence_number = None
        source.refused(first, rejected)

    def _give_up(self, source: PublishSource) -> None:
        """What is unconfirmed loses its numbers. Answers that are still under way must not reach a later publish."""
        if (self._in_flight or self._fatal is not None) and self._sender is not None:
            self._sender.abandon()
            self._sender = None
        unconfirmed = [delivery for delivery, _ in self._unconfirmed()]
        for delivery in unconfirmed:
            delivery.sequence_number = None
        source.given_up(unconfirmed)


def _number_of(delivery: Delivery) -> int:
    assert delivery.sequence_number is not None, "it was sent"
    return delivery.sequence_number
