"""One ordered stream of batches into one partition of a log, numbered or not.

Problem: events of one key must stay in order although links break, leaders move and answers get lost; and what an
idempotent producer sends again must be recognised.
Rules never broken:
 - batches leave in the order in which they came, over one link at a time; nothing is sent beside one that stands alone
   for a named producer (IP-4);
 - a batch is forgotten only when the node accepted it, refused it for good, or its owners were told that it failed;
 - after any failure everything unconfirmed is sent again, in order: the same sealed batches with the same numbers;
 - a refusal of its numbers ends a named producer in this partition. Another one renews itself (KIP-360): a higher level
   shuts out what is still on its way. Only what was certainly not stored goes on so: the owners of what is in doubt are
   told.
Rejected: resending single batches as their answers come back: a released one would then overtake its successors.

| state     | batch, slot free | accepted | again     | refused                     | link ends          |
| --------- | ---------------- | -------- | --------- | --------------------------- | ------------------ |
| idle      | attaching        |          |           |                             |                    |
| attaching | waits            |          |           | of the attach: told, failed | a pause, attaching |
| open      | sends            | settles  | quiescing | settles; numbered quiescing | quiescing          |
| quiescing | waits            | settles  | notes it  | settles; numbered notes it  | it is decided      |
| failed    | fails            |          |           |                             |                    |

Idle is without a task, failed with `_failed_by`, open with `_is_open`. When nothing is unanswered any more, quiescing
takes back what was not settled. In every state no progress for `delivery_timeout_s` gives up what is here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast import protocol
from holdfast.amqp.errors import NOT_ALLOWED, RESOURCE_DELETED, Error
from holdfast.amqp.links.delivery_states import ACCEPTED, DeliveryState, Modified, OtherState, Rejected, Released
from holdfast.client.errors import (
    FATAL_TO_PRODUCERS,
    ClosedError,
    EventTooLargeError,
    HoldfastError,
    InternalError,
    LinkRefusedError,
    LogDeletedError,
    NotFoundError,
    ProducerStateError,
    ProducerStolenError,
    RejectedError,
    TimeoutExpiredError,
    UndeliveredError,
)
from holdfast.client.options import PartitionPublishingProperties, ProducerOptions
from holdfast.client.produce.accumulator import Accumulator
from holdfast.client.produce.batch_queue import BatchQueue
from holdfast.client.produce.delivery import Delivery, PendingBatch
from holdfast.client.produce.event_batch import EventBatch
from holdfast.client.produce.producer_identity import ProducerIdentity
from holdfast.client.transport.links import EVENT_BYTES, Sender
from holdfast.client.transport.network import Backoff, Network
from holdfast.records.codec import Codec

# After an answer that asks for a repeat, those still under way are awaited for so long; then the link is given up.
# Longer than a node holds events while a partition has no leader (10 s), or each such pause would make copies.
QUIESCE_BOUND_S = 15.0
STALL_SHARE = 0.5  # of the delivery timeout: a link that confirms nothing for so long is given up for another one
CANCEL_BOUND_S = 2.0  # a publication that is cancelled is awaited for so long: more than a change of leaders takes
FATAL = (ProducerStateError, ProducerStolenError, LogDeletedError)  # to an idempotent producer in a partition
ADVICE_TO_PUBLISH_AGAIN = "send the same batch again, by this producer: what had arrived is not stored twice"
ADVICE_ON_DOUBT = "read what is there, or send them again, which may store them twice"


@dataclass
class ProducerStats:
    """Counted since the producer was opened."""

    accepted: int = 0  # confirmed by the node
    rejected: int = 0  # refused for good
    failed: int = 0  # given up: may or may not be stored
    resent: int = 0  # events sent again because their outcome was unknown: an upper bound of the copies in the log
    released: int = 0  # events sent again because the node said that it did not store them
    attached: int = 0  # links opened, the first ones included
    renewed: int = 0  # times that a partition did not know this producer, or its numbers, any more, and it began anew


class PartitionSender:
    """Implements `SenderOwner`. What is to be sent is put into `queue`, and then `pump` is called, soon."""

    def __init__(
        self,
        network: Network,
        log: str,
        partition: str,
        *,
        identity: ProducerIdentity | None,
        options: ProducerOptions,
        stats: ProducerStats,
        accumulator: Accumulator,
    ) -> None:
        """`identity`: of an idempotent producer."""
        self.partition, self.what = partition, f"{log}, partition {partition}"
        most_unanswered = min(options.window, protocol.MOST_EVENTS_UNANSWERED)
        self.queue = BatchQueue(partition, most_unanswered, accumulator.failures.add)
        self._network, self._log, self._stats, self._accumulator = network, log, stats, accumulator
        self._identity = identity
        self._is_named = identity is not None and not identity.renews
        self._codec, self._delivery_timeout_s = Codec.named(options.compression), options.delivery_timeout_s
        self._link: Sender | None = None
        self._is_open = False  # more may be sent over the link
        self._closed_by: HoldfastError | None = None  # why the last link ended
        self._failed_by: HoldfastError | None = None
        self._asked: PendingBatch | None = None  # without events: settled when the partition is opened
        self._woken = asyncio.Event()  # something happened to the link, or nothing is unanswered
        self._progress_at_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    # ---------------------------------------------------------------- from the producer

    def check_usable(self) -> None:
        """Raise what ended publishing to this partition, if something did."""
        if self._failed_by is not None:
            raise self._failed_by.with_traceback(None)

    async def properties(self) -> PartitionPublishingProperties:
        """Open the partition if need be. What was known before an end can still be read."""
        identity = self._identity
        if identity is None:
            return PartitionPublishingProperties(is_idempotent_publishing_enabled=False)
        if not identity.known:
            self.check_usable()
            self._begin_to_wait()
            asked = self._asked = self._asked or PendingBatch(self.partition, self._accumulator.failures.add)
            self._go_on()
            await Delivery(asked, 0, 0)
        return identity.properties()

    def pump(self) -> None:
        """The turn is over: send what may be sent now, unless it would stand behind what is missing."""
        failures = self._accumulator.failures
        if failures.stopped and (failure := failures.first()) is not None:
            unsent = self.queue.withdraw(lambda one: one.sealed is None)
            events = sum(batch.events for batch in unsent)
            text = f"{events} events were not sent, since one failed before"
            self._stats.failed += self._finish(unsent, UndeliveredError.of(text, events, failure))
        self._begin_to_wait()
        self.queue.release()
        self._go_on()

    async def until_decided(self, batch: PendingBatch) -> None:
        """Return when it is known what became of a batch that nobody waits for, or it was given up."""
        if self._withdrawn(batch):
            return
        with contextlib.suppress(TimeoutError):
            try:
                async with asyncio.timeout(CANCEL_BOUND_S):
                    await batch
            finally:
                if not batch.is_settled:
                    self._give_up(batch)

    async def close(self) -> None:
        """Stop, and tell the owners of what is outstanding."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            await self._link.close()
            self._link = None
        self.queue.release()
        self._fail_all(ClosedError("the producer was closed"))
        self._failed_by = self._failed_by or ClosedError("the producer was closed")

    # ---------------------------------------------------------------- for the bound on latency

    @property
    def _outstanding(self) -> bool:
        return self.queue.is_outstanding or self._asked is not None

    def stuck(self, since_s: float) -> tuple[int, int]:
        """Events and bytes that are outstanding, if there was no progress since then."""
        batches = list(self.queue) if self._outstanding and self._progress_at_s <= since_s else []
        return sum(batch.events for batch in batches), sum(batch.size for batch in batches)

    # ---------------------------------------------------------------- sending

    def _begin_to_wait(self) -> None:
        if not self._outstanding:  # the bound on progress starts here
            self._progress_at_s = self._loop.time()

    def _go_on(self) -> None:
        if self._failed_by is not None:
            self._fail_all(self._failed_by)
            return
        if not self._outstanding:
            return
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run(), name=f"sender to {self.what}")
        link = self._link
        if link is None or not self._is_open:
            return
        try:
            while (batch := self.queue.next_for(link)) is not None:
                first = self.queue.sent.first
                if self._is_named and first is not None and (batch.stands_alone or first.stands_alone):
                    return
                wrong = self._unfit(batch, link)
                if wrong is None:
                    self._send(batch, link)
                elif isinstance(wrong, EventTooLargeError) and (batch.number is None or first is None):
                    self._refuse(batch, wrong)
                else:
                    if first is None:  # else the numbers before its own are decided first
                        self._renew(wrong)
                    return
        except Exception as error:  # noqa: BLE001  whoever called has nothing to do with these events
            self._end(InternalError.of(error))

    def _unfit(self, batch: PendingBatch, link: Sender) -> HoldfastError | None:
        """Return what keeps a batch from being sent."""
        limit, size = link.max_event_bytes, batch.size + (batch.events - 1) * EVENT_BYTES
        if 0 < limit < size:  # the node would end the link for it, at each attempt
            return EventTooLargeError.of(size, limit)
        identity = self._identity
        if identity is not None and identity.renews and identity.has_doubt and batch.number is None:
            # A node that has forgotten the bytes of what it stored would take this for that, and answer `accepted`.
            doubted_as = None if batch.publication is None else batch.publication.doubted_as
            if doubted_as is None or doubted_as != identity.numbering(identity.next):
                return ProducerStateError("events in doubt have the next numbers")
        return None

    def _send(self, batch: PendingBatch, link: Sender) -> None:
        identity = self._identity
        with_digests = identity is not None and (batch.stands_alone or not identity.renews)
        sealed = batch.seal(self._codec, with_digests=with_digests)
        if identity is not None:
            if batch.number is None:
                batch.number = identity.take(batch.events)
            sealed = sealed.numbered(identity.numbering(batch.number))
        self.queue.leaves(link.send_batch(sealed))
        batch.sent_s = self._loop.time()

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        self._go_on()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        now_s = self._loop.time()
        accepted: list[PendingBatch] = []
        for number, state in outcomes:
            offset = _offset_in(state)
            if state is ACCEPTED or offset is not None:
                batch = self.queue.sent.settled(number)
                if batch is not None:
                    batch.offset = offset
                    accepted.append(batch)
            else:
                batch = self._not_accepted(number, state)
            if batch is not None:
                self._accumulator.answered(batch.since_s, batch.sent_s, now_s)
        if accepted:
            events, size = sum(batch.events for batch in accepted), sum(batch.size for batch in accepted)
            self._stats.accepted += events
            self._progress_at_s = now_s
            if self._identity is not None:
                self._identity.published_up_to(self._first_number())
            for batch in accepted:
                batch.settle(None)
            self._accumulator.settled(self.partition, events, size, True)
        if not self._is_open and not self.queue.sent.unanswered:
            self._woken.set()
        self._go_on()

    def _first_number(self) -> int | None:
        """The lowest number that is not settled. None: there is none."""
        first = next(iter(self.queue), None)
        return None if first is None else first.number

    def _not_accepted(self, number: int, state: DeliveryState) -> PendingBatch | None:
        if isinstance(state, Rejected) and self._identity is None:
            batch = self.queue.sent.settled(number)
            if batch is not None:
                error = _reason(state)
                kind = LogDeletedError if error.condition == RESOURCE_DELETED else RejectedError
                refusal = kind(f"event refused: {error}", condition=error.condition)
                self._stats.rejected += self._finish([batch], refusal)
            return batch
        batch = self.queue.sent.came_back(number, state)
        if batch is not None:
            if isinstance(state, Released) or (isinstance(state, Modified) and not state.delivery_failed):
                self._stats.released += batch.events
            elif not isinstance(state, Rejected):
                batch.in_doubt = True
                self._stats.resent += batch.events
            self._to_decide()
        return batch

    def on_closed(self, error: HoldfastError) -> None:
        self._link, self._closed_by = None, error
        if self._is_final(error):
            self._failed_by = self._failed_by or error
        self._to_decide()

    def _is_final(self, error: HoldfastError) -> bool:
        """Tell whether an error ends publishing: no renewal helps."""
        renewable = not self._is_named and isinstance(error, ProducerStateError)
        return self._identity is not None and isinstance(error, FATAL) and not renewable

    def _to_decide(self) -> None:
        self._is_open = False
        self._woken.set()

    # ---------------------------------------------------------------- the life of a sender

    async def _run(self) -> None:
        """Attach as long as something waits."""
        backoff = Backoff()
        while self._failed_by is None and (self._outstanding or self._link is not None):
            try:
                await self._live(backoff)
            except Exception as error:  # noqa: BLE001  or whoever waits for what is here would wait for ever
                self._end(InternalError.of(error))
        if self._failed_by is not None:
            self._end(self._failed_by)

    def _end(self, error: HoldfastError) -> None:
        self._abandon_link(error)
        self._fail_all(error)

    async def _live(self, backoff: Backoff) -> None:
        """Send until something has to be decided, and decide it."""
        accepted_before = self._stats.accepted
        if self._link is None and not await self._attached():
            return
        await self._until_trouble()
        await self._until_quiet()
        self._take_back()
        if self._failed_by is not None:
            return
        if isinstance(self._closed_by, LogDeletedError) and self._outstanding:
            self._fail_all(self._closed_by)
        if self._loop.time() >= self._deadline_s and self._outstanding:
            self._fail_all(TimeoutExpiredError(f"none was confirmed for {self._delivery_timeout_s:g} s"))
        if self._stats.accepted != accepted_before:
            backoff.reset()
        await backoff.wait()
        self._open()

    async def _attached(self) -> bool:
        """Attach. False: that was refused, and all were told."""
        deadline_s, identity = self._deadline_s, self._identity
        try:
            link = await self._attach()
        except HoldfastError as error:
            if identity is not None and identity.renews and identity.known and isinstance(error, ProducerStateError):
                self._renew(error)  # unless that was done, and no node has granted it since
            elif not (error.retriable and deadline_s <= self._loop.time() < self._deadline_s):
                self._fail_all(error)  # else what waits now came later, and has time of its own
            return False
        if self._closed_by is None:  # the node may have ended it in the same breath
            self._link = link
        self._open()
        return True

    def _open(self) -> None:
        """Go on sending, if nothing has happened to the link meanwhile."""
        if self._link is not None and self.queue.sent.is_open and self._failed_by is None:
            self._is_open = True
            self._go_on()

    @property
    def _deadline_s(self) -> float:
        """The time at which what is outstanding is given up."""
        return self._progress_at_s + self._delivery_timeout_s

    async def _attach(self) -> Sender:
        identity, hint, self._closed_by = self._identity, self._closed_by, None
        try:
            link = await self._network.attach_sender(
                self._log, self.partition, self, deadline_s=self._deadline_s, hint=hint,
                identity=None if identity is None else identity.link_properties(),
            )  # fmt: skip
        except LinkRefusedError as error:
            lost = identity is not None and (error.condition == NOT_ALLOWED or (identity.known and self._is_named))
            if not lost or isinstance(error, (*FATAL, NotFoundError)):
                raise
            # It was open before, or claims numbers that the node does not know: it must begin anew.
            raise ProducerStateError(f"the node does not let us go on: {error}", condition=error.condition) from error
        if identity is not None:
            try:
                identity.adopt(link.properties, self.what, is_publishing=self._first_number() is not None)
            except HoldfastError:
                link.abandon()
                raise
        self._stats.attached += 1
        self._answer_asked(None)
        return link

    def _answer_asked(self, error: HoldfastError | None) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.settle(error)

    async def _until_trouble(self) -> None:
        """Return when the link ended, an answer has to be decided on, or there was no progress for too long."""
        since_s = self._loop.time()  # a fresh link gets its time, however long its predecessor was stuck
        while self._is_open:
            left_s = self._delivery_timeout_s * STALL_SHARE
            if self._outstanding:
                left_s -= self._loop.time() - max(since_s, self._progress_at_s)
            await self._wait(left_s)

    async def _until_quiet(self) -> None:
        """Wait until it is decided what is to be sent again."""
        bound_s = self._loop.time() + QUIESCE_BOUND_S
        while self._link is not None and self.queue.sent.unanswered and self._failed_by is None:
            await self._wait(bound_s - self._loop.time())

    async def _wait(self, bound_s: float) -> None:
        """Return when something has happened; abandon the link if nothing does in time."""
        self._woken.clear()
        if bound_s <= 0:
            self._abandon_link(TimeoutExpiredError(f"{self.what}: the link made no progress"))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound_s):
                await self._woken.wait()

    def _abandon_link(self, why: HoldfastError) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abandon()
            self._closed_by = why
        self._to_decide()

    # ---------------------------------------------------------------- deciding

    def _take_back(self) -> None:
        """Let all that is not settled wait again, in its old order."""
        found = self.queue.take_back()
        self._stats.resent += sum(batch.events for batch, answer in found if answer is None)
        is_refused = False  # a node takes nothing behind what it has refused
        for batch, answer in found:
            batch.in_doubt |= answer is None and not is_refused
            is_refused |= isinstance(answer, Rejected)
        answer = found[0][1] if found else None
        if isinstance(answer, Rejected):
            self._decide(found[0][0], _reason(answer))

    def _decide(self, batch: PendingBatch, error: Error) -> None:
        """Deal with the first batch, which was refused; what came behind it was refused for its sake."""
        identity = self._identity
        assert identity is not None, "without numbers a refusal settles its batch"
        message = f"{self.what}: event {batch.number} refused: {error}"
        kind = ProducerStateError if error.condition == NOT_ALLOWED else FATAL_TO_PRODUCERS.get(error.condition)
        failure = None if kind is None else kind(message, condition=error.condition)
        if failure is not None and self._is_final(failure):
            self._failed_by = self._failed_by or failure
        elif failure is not None and not identity.is_renewed:
            self._renew(failure)
        else:
            self._refuse(batch, RejectedError(message, condition=error.condition))

    def _refuse(self, batch: PendingBatch, refusal: HoldfastError) -> None:
        """Take out the first batch, since no node takes it, and the numbers off those that were sent behind it."""
        self.queue.pop_first()
        if self._identity is not None and batch.number is not None:
            self._note_doubt([batch, *self.queue])
            self._take_numbers_off(self._identity)
        if not batch.in_doubt:
            self._stats.rejected += self._finish([batch], refusal)
            return
        text = f"{batch.events} events for {self.what} may be stored since they were sent first, and were refused now"
        advice = None if self._identity is None else ADVICE_TO_PUBLISH_AGAIN
        self._stats.failed += self._finish([batch], UndeliveredError.of(text, batch.events, refusal, advice=advice))

    def _renew(self, why: HoldfastError) -> None:
        """Begin with new numbers, which shuts out whatever is still on its way with old ones."""
        identity = self._identity
        assert identity is not None, "only numbers can be renewed"
        self._abandon_link(why)
        self._closed_by = None  # that is dealt with: it is no reason to attach elsewhere
        doubtful = self.queue.withdraw(lambda batch: batch.in_doubt)
        identity.renew()
        self._take_numbers_off(identity)
        for batch in doubtful:
            if batch.publication is not None:
                batch.publication.doubted_as = None  # its owner is told now
        self._stats.renewed += 1
        events = self._finish(doubtful, self._for_ever_in_doubt(sum(batch.events for batch in doubtful), why))
        self._stats.failed += events
        self._network.log_lines.say("%s: the producer begins with new numbers: %s", self.what, why)
        if events:
            self._network.log_lines.given_up(events, self.what, why)

    def _for_ever_in_doubt(self, events: int, why: HoldfastError | None) -> UndeliveredError:
        text = f"{events} events for {self.what} may be stored or not, and nobody can tell any more"
        return UndeliveredError.of(text, events, why, advice=ADVICE_ON_DOUBT)

    def _take_numbers_off(self, identity: ProducerIdentity) -> None:
        """Take the numbers off what was sent; the next ones are those behind what was accepted."""
        identity.go_back()
        for batch in self.queue:
            batch.number = None

    def _give_up(self, batch: PendingBatch) -> None:
        """Give up a batch that nobody waits for, with what was sent behind it, and so depends on its number."""
        self._abandon_link(TimeoutExpiredError(f"{self.what}: a publication was given up"))
        self._take_back()
        if self._failed_by is not None:
            self._fail_all(self._failed_by)
        if batch.is_settled or self._withdrawn(batch) or self._identity is None:
            return
        numbered = [one for one in self.queue if one.number is not None]
        behind = numbered[numbered.index(batch) :]
        self._identity.next = batch.number or 0
        self.queue.withdraw(behind.__contains__)
        self._fail(behind, TimeoutExpiredError("the publication was cancelled, and its outcome is not known"))

    def _withdrawn(self, batch: PendingBatch) -> bool:
        """Take out a batch that nobody waits for, if it has no number: it was not sent, or a refusal took it off."""
        found = self.queue.withdraw(lambda one: one is batch and one.number is None)
        return self._finish(found, ClosedError("it was cancelled, and nothing of it was stored")) > 0

    def _fail_all(self, error: HoldfastError) -> None:
        """Tell the owner of every event that is here; they are not tried any more."""
        self._take_back()
        batches = self.queue.withdraw_released()
        if self._identity is not None:
            self._take_numbers_off(self._identity)
            if isinstance(error, FATAL):
                self._failed_by = self._failed_by or error
        self._answer_asked(error)
        self._fail(batches, error)
        self._progress_at_s = self._loop.time()

    def _note_doubt(self, batches: Iterable[PendingBatch]) -> None:
        """A publication that is given again is recognised as long as its numbers are those of then."""
        for batch in batches:
            if batch.in_doubt and self._identity is not None:
                self._identity.has_doubt = True
                if batch.publication is not None and batch.number is not None:
                    batch.publication.doubted_as = self._identity.numbering(batch.number)

    def check_again(self, publication: EventBatch) -> bool:
        """Tell whether this was published before, and may be stored. Raises UndeliveredError if nobody would know."""
        identity, doubted_as = self._identity, publication.doubted_as
        if doubted_as is None or identity is None or not identity.renews:
            return False
        if doubted_as[:2] != (identity.group_id, identity.owner_level):
            publication.doubted_as = None  # it is told once; given again, it is a new request
            raise self._for_ever_in_doubt(len(publication), None)
        return True

    def _fail(self, batches: list[PendingBatch], error: HoldfastError) -> None:
        """Give these up: buffered events fail together, each publication by itself."""
        self._note_doubt(batches)
        buffered = [batch for batch in batches if not batch.stands_alone]
        events = self._finish(buffered, self._given_up(buffered, error))
        for batch in batches:
            if batch.stands_alone:
                events += self._finish([batch], self._given_up([batch], error))
        self._stats.failed += events
        if events and not isinstance(error, ClosedError):
            self._network.log_lines.given_up(events, self.what, error)

    def _given_up(self, batches: list[PendingBatch], error: HoldfastError) -> HoldfastError:
        """Return what the owners of these are told. An error that says that nothing more is stored is told as it is."""
        events, advice = sum(batch.events for batch in batches), None
        final = isinstance(error, LogDeletedError if self._identity is None else FATAL)
        if batches and batches[0].stands_alone:
            final, again = not error.retriable, batches[0].publication is not None or self._is_named
            advice = ADVICE_TO_PUBLISH_AGAIN if again else ADVICE_ON_DOUBT
        text = f"{events} events for {self.what} were not confirmed"
        return error if final else UndeliveredError.of(text, events, error, advice=advice)

    def _finish(self, batches: Iterable[PendingBatch], error: HoldfastError) -> int:
        """Tell the owners of batches that they failed. Returns the number of events."""
        events = size = 0
        for batch in batches:
            events, size = events + batch.events, size + batch.size
            batch.settle(error)
        if events:
            self._progress_at_s = self._loop.time()
            self._accumulator.settled(self.partition, events, size, False)
        return events


def _offset_in(state: DeliveryState) -> int | None:
    """The offset of a batch that has this outcome; None: it is another one, or the node answers in plain AMQP."""
    if not isinstance(state, OtherState) or state.code != protocol.STORED_CODE:
        return None
    match state.fields:
        case (int(base_offset), int(count), str()) if base_offset >= 0 and count >= 1:
            return base_offset
    return None


def _reason(refusal: Rejected) -> Error:
    return refusal.error or Error("amqp:not-allowed", "no reason given")
