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

from holdfast.amqp.errors import NOT_ALLOWED, Error
from holdfast.amqp.links.delivery_states import (
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
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
from holdfast.client.produce.chunks.chunk import Run
from holdfast.client.produce.idempotent.producer_identity import (
    PartitionPublishingOptions,
    ProducerIdentity,
    following,
)
from holdfast.client.produce.idempotent.publish_source import PublishSource
from holdfast.client.produce.partition_sender import QUIESCE_BOUND_S, STALL_SHARE, ProducerStats
from holdfast.client.produce.round_trips import RoundTrips
from holdfast.client.produce.transfers import Transfer, UnderWay, next_transfers, room_of, runs_of, weight_of
from holdfast.client.transport.links import Sender
from holdfast.client.transport.network import Backoff, Network
from holdfast.records.codec import Codec

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
        self._closed_by: HoldfastError | None = None  # why the last link ended
        self._fatal: HoldfastError | None = None
        # Of the publish under way:
        self._source: PublishSource | None = None
        self._next = 0
        self._under_way = UnderWay()
        self._returned: dict[int, tuple[Transfer, Error | None]] = {}  # not accepted; without an error: to send again
        self._again: deque[Run] = deque()  # numbered, and not sent on this link yet
        self._defect: Exception | None = None  # of this client, found while sending
        self._exhausted = False  # the source has nothing more
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
        return bool(self._under_way or self._returned or self._again)

    @property
    def progress_s(self) -> float:
        """When it was told of anything last, or began."""
        return self._progress_s

    def sent(self) -> tuple[int, int]:
        """Events and bytes that were sent and are not accepted."""
        return weight_of(self._again, self._under_way.transfers, (transfer for transfer, _ in self._returned.values()))

    @property
    def round_trips(self) -> RoundTrips:
        return self._under_way.round_trips

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

    def publishes(self, source: PublishSource) -> bool:
        return self._source is source

    def gave_up(self, events: int, error: HoldfastError) -> None:
        """Of these, nobody knows whether they are stored."""
        if events and not isinstance(error, ClosedError):
            self._network.log_lines.given_up(events, self.what, error)

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
            if not (self._under_way or self._returned):  # else it is resumed
                await self._send(source)
            await self._until_decided()
            if self._defect is not None:
                self._raise_defect()
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

    def _raise_defect(self) -> None:
        """How much of it had left, nobody knows: not over this link again."""
        defect, self._defect = self._defect, None
        assert defect is not None
        if self._sender is not None:
            self._sender.abandon()
            self._sender = None
        raise defect

    async def _send(self, source: PublishSource) -> None:
        self.check_usable()
        self._decided.clear()
        self._defect = None  # one that was found while an earlier publish was given up is no news of this one
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
        sender, under_way, source = self._sender, self._under_way, self._source
        if sender is None or source is None or self._returned or self._fatal is not None:
            return
        while (room := min(sender.credit, self._window - under_way.events)) > 0:
            transfers: list[Transfer] = []
            try:
                transfers = self._next_ones(source, sender, room)
                if not transfers:
                    break
                under_way.send(sender, transfers, now_s=self._loop.time())
            except Exception as error:  # noqa: BLE001  whoever called has nothing to do with these events
                self._put_back(transfers)
                self._defect = error
                self._decided.set()
                return
        if not under_way and not self._again and not source.has_more:
            self._exhausted = True
            self._decided.set()

    def _next_ones(self, source: PublishSource, sender: Sender, room: int) -> list[Transfer]:
        """Those to be sent again, then new ones; all with their numbers."""
        most = room_of(sender, room)
        transfers = next_transfers(self._again, most) if self._again else source.take(most, wait=bool(self._under_way))
        try:
            for transfer in transfers:
                self._number(transfer)
        except BaseException:
            self._put_back(transfers)
            raise
        return transfers

    def _put_back(self, transfers: list[Transfer]) -> None:
        self._again.extendleft(run for transfer in reversed(transfers) for run in reversed(transfer.runs))

    def _number(self, transfer: Transfer) -> None:
        """Give the events their numbers, and to the batch that carries them what says so."""
        number = self._next
        for run in transfer.runs:
            if run.sequence_number is None:
                run.sequence_number = number
                number = following(number, run.events)
        self._next = number
        transfer.numbering = self.identity.numbering(_number_of(transfer.runs[0]))

    def has_more(self, source: PublishSource) -> None:
        """If it is being published, and there is room, what came to it goes out at once."""
        if source is self._source and not self._exhausted:
            self._pump()

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        self._pump()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        under_way, source = self._under_way, self._source
        accepted: list[Transfer] = []
        now_s = self._loop.time()
        for number, state in outcomes:
            stored = under_way.says_stored(number, state)
            transfer = under_way.pop(number, now_s)
            if transfer is None:
                continue  # of a publish that was given up
            if stored:
                accepted.append(transfer)
            else:
                self._not_accepted(number, transfer, state)
        if accepted and source is not None:
            self._stats.accepted += sum(transfer.events for transfer in accepted)
            self._progress_s = now_s
            if source.one_by_one:
                self.identity.last = following(self._first_open, -1)
            source.accepted(accepted)
        if not under_way:
            self._quiet.set()
        self._pump()

    @property
    def _first_open(self) -> int:
        """The number of the first event that is not accepted. Answers need not come in order."""
        sent = [(number, transfer) for number, (transfer, _) in self._returned.items()]
        if (first := self._under_way.first) is not None:
            sent.append(first)
        if sent:
            return _number_of(min(sent, key=lambda entry: entry[0])[1].runs[0])
        return _number_of(self._again[0]) if self._again else self._next

    def _not_accepted(self, number: int, transfer: Transfer, state: DeliveryState) -> None:
        error: Error | None = None
        if isinstance(state, Rejected):
            error = state.error or Error("amqp:not-allowed", "no reason given")
        elif isinstance(state, Released) or (isinstance(state, Modified) and not state.delivery_failed):
            self._stats.released += transfer.events
        else:
            self._stats.resent += transfer.events
        self._returned[number] = (transfer, error)
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
        if self._under_way and self._sender is not None and not stalled and self._fatal is None:
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
        self._stats.resent += self._under_way.events
        unconfirmed, error = self._unconfirmed()
        self._again.extend(unconfirmed)
        if error is not None:
            self._refuse(source, unconfirmed[0], error)

    def _unconfirmed(self) -> tuple[list[Run], Error | None]:
        """All that was taken and not accepted, in the order of sending, and the node's refusal of the first, if it is
        refused."""
        returned = {number: transfer for number, (transfer, _) in self._returned.items()}
        sent = [*self._under_way.take_back(), *returned.items()]
        error = None
        if sent:
            _, error = self._returned.get(min(number for number, _ in sent), (None, None))
        found = runs_of(sent) + list(self._again)
        self._returned.clear()
        self._again.clear()
        return found, error

    def _refuse(self, source: PublishSource, first: Run, error: Error) -> None:
        """The first event that is not accepted was refused; what came behind it was refused for its sake."""
        message = f"{self.what}: event {first.sequence_number} refused: {error}"
        kind = ProducerStateError if error.condition == NOT_ALLOWED else FATAL_TO_PRODUCERS.get(error.condition)
        if kind is not None:
            raise kind(message, condition=error.condition)
        self._stats.rejected += first.events
        rejected = RejectedError(message, condition=error.condition)
        if not source.one_by_one:
            raise rejected
        self._progress_s = self._loop.time()
        self._next = _number_of(first)
        self._again.popleft()
        for run in (first, *self._again):
            run.sequence_number = None
        source.refused(first, rejected)

    def _give_up(self, source: PublishSource) -> None:
        """What is unconfirmed loses its numbers. Answers that are still under way must not reach a later publish."""
        if (self._under_way or self._fatal is not None) and self._sender is not None:
            self._sender.abandon()
            self._sender = None
        unconfirmed, _ = self._unconfirmed()
        for run in unconfirmed:
            run.sequence_number = None
        source.given_up(unconfirmed)


def _number_of(run: Run) -> int:
    assert run.sequence_number is not None, "it was sent"
    return run.sequence_number
