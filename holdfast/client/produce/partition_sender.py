"""One ordered stream of events into one place of a log: what a producer keeps for each partition.

Problem: events of one key must stay in order although links break, leaders move and answers get lost.
Rules never broken:
 - events leave in the order in which they came, over one link at a time;
 - an event is forgotten only when the node accepted it, refused it for good, or its owner was told that it failed;
 - after any failure everything unconfirmed is sent again *from the first unconfirmed one on, in order*. So a reader
   that drops what it has seen sees every event once and in order; copies are counted (`resent`), not hidden.
Rejected: resending single events as their answers come back: a released event would then overtake its successors.

The life of a partition sender stands in `_run`: attach, pump until the link fails or an answer asks for a repeat,
settle what that means, again. `pump` is synchronous and is called when there is something to do: events came, credit
came, room came.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.amqp.errors import RESOURCE_DELETED, Error
from holdfast.amqp.links.delivery_states import (
    ACCEPTED,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from holdfast.batches.codec import Codec
from holdfast.client.errors import (
    ClosedError,
    EventTooLargeError,
    HoldfastError,
    LogDeletedError,
    RejectedError,
    TimeoutExpiredError,
    UndeliveredError,
)
from holdfast.client.produce.delivery import Delivery
from holdfast.client.produce.receipts import receipt_of, tell
from holdfast.client.transport.links import Sender
from holdfast.client.transport.network import Backoff, Network

# Events handed to the engine in one go: enough to amortise the call, few enough that other partition senders get their
# turn.
PUMP_EVENTS = 512
# The same in bytes: the connection is asked for room again after so much.
PUMP_BYTES = 256 * 1024
# After an answer that asks for a repeat, those still under way are awaited for so long; then the link is given up.
# Longer than a node holds events while a partition has no leader (10 s), or each such pause would make copies.
QUIESCE_BOUND_S = 15.0
# A link that neither confirms nor lets send for this share of the delivery timeout is given up for another one.
STALL_SHARE = 0.5


@dataclass
class ProducerStats:
    """Counted since the producer was opened."""

    accepted: int = 0  # confirmed by the node
    rejected: int = 0  # refused for good
    failed: int = 0  # given up: may or may not be stored
    resent: int = 0  # events sent again because their outcome was unknown: an upper bound of the copies in the log
    released: int = 0  # events sent again because the node said that it did not store them
    attached: int = 0  # links opened, the first ones included


class PartitionSender:
    """A queue, a window of unconfirmed events, and the link they travel on."""

    def __init__(
        self,
        network: Network,
        address: str,
        partition: str | None,
        *,
        window: int,
        codec: Codec,
        delivery_timeout_s: float,
        stats: ProducerStats,
        settled: Callable[[str | None, int, int, bool], None],
        unclaimed: Callable[[Delivery], None],
    ) -> None:
        """`settled(partition, events, payload bytes, confirmed)` is called when events leave the partition sender;
        `unclaimed(delivery)` for each that failed with nobody to tell."""
        self.partition = partition
        self._network, self._address = network, address
        self._window, self._codec, self._delivery_timeout_s = window, codec, delivery_timeout_s
        self._stats, self._settled, self._unclaimed = stats, settled, unclaimed
        self._waiting: deque[Delivery] = deque()
        self._in_flight: dict[int, Delivery] = {}  # by the engine's number, in the order sent
        self._again: dict[int, Delivery] = {}  # answered with "send it again"
        self._sender: Sender | None = None
        self._work = asyncio.Event()
        self._trouble = asyncio.Event()  # the link failed, or an answer asks for a repeat
        self._quiet = asyncio.Event()  # nothing is in flight
        self._progress_at_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    # ---------------------------------------------------------------- from the producer

    @property
    def outstanding(self) -> int:
        return len(self._waiting) + len(self._in_flight) + len(self._again)

    def put(self, items: Iterable[Delivery]) -> None:
        """Append events; `pump` must follow, soon."""
        if not self._waiting and not self._in_flight and not self._again:
            # Nothing was awaited until now: the bound on progress starts here.
            self._progress_at_s = self._loop.time()
        self._waiting.extend(items)

    def pump(self) -> None:
        """Send what may be sent now."""
        if not self._waiting:
            return
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name=f"partition sender {self._address}/{self.partition}")
        sender = self._sender
        if sender is None or self._trouble.is_set():
            self._work.set()
            return
        waiting, in_flight = self._waiting, self._in_flight
        limit = sender.max_message_size or sys.maxsize
        while (count := min(len(waiting), sender.credit, self._window - len(in_flight), PUMP_EVENTS)) > 0:
            items: list[Delivery] = []
            size = 0
            while len(items) < count and size < PUMP_BYTES:
                item = waiting.popleft()
                if len(item.content) > limit:  # the node would end the link, at each attempt
                    self._too_large(item, limit)
                    break
                items.append(item)
                size += len(item.content)
            if items:
                numbers = sender.send_many([item.content for item in items])
                in_flight.update(zip(numbers, items, strict=True))

    def _too_large(self, item: Delivery, limit: int) -> None:
        self._stats.rejected += 1
        self._progress_at_s = self._loop.time()
        self._finish(item, EventTooLargeError.of(len(item.content), limit))

    async def close(self) -> None:
        """Stop; what is outstanding is not waited for, its owners are told."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._sender is not None:
            await self._sender.close()
            self._sender = None
        self._requeue()
        if self._waiting:
            self._fail_all(ClosedError("the producer was closed"))

    # ---------------------------------------------------------------- from the link

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        in_flight = self._in_flight
        accepted = size = 0
        for number, state in outcomes:
            if state is not ACCEPTED:
                row = receipt_of(state)
                if row is None:
                    if (item := in_flight.pop(number, None)) is not None:
                        self._not_accepted(number, item, state)
                    continue
                tell(row, number, in_flight)
            item = in_flight.pop(number, None)
            if item is None:
                continue
            accepted += 1
            size += len(item.content)
            item.settle(None)
        if accepted:
            self._stats.accepted += accepted
            self._progress_at_s = self._loop.time()
            self._settled(self.partition, accepted, size, True)
        if not in_flight:
            self._quiet.set()
        if self._waiting:
            self.pump()

    def _not_accepted(self, number: int, item: Delivery, state: DeliveryState) -> None:
        if isinstance(state, Rejected):
            error = state.error or Error("amqp:not-allowed", "no reason given")
            self._stats.rejected += 1
            self._progress_at_s = self._loop.time()
            self._finish(item, refusal_of(error))
            return
        certainly_not_stored = isinstance(state, Released) or (
            isinstance(state, Modified) and not state.delivery_failed
        )
        if certainly_not_stored:
            self._stats.released += 1
        else:  # modified with delivery-failed, or anything unheard of
            self._stats.resent += 1
        self._again[number] = item
        self._trouble.set()

    def on_credit(self) -> None:
        self.pump()

    def on_closed(self, error: HoldfastError) -> None:
        self._closed_by = error
        self._trouble.set()
        self._quiet.set()

    _closed_by: HoldfastError | None = None

    # ---------------------------------------------------------------- the life of a partition sender

    async def _run(self) -> None:
        backoff = Backoff()
        hint: HoldfastError | None = None
        while True:
            if not self._waiting and self._sender is None:
                self._work.clear()
                await self._work.wait()
            try:
                if self._sender is None:
                    self._sender = await self._attach(hint)
            except HoldfastError as error:
                self._fail_all(error)
                hint = None
                continue
            accepted_before = self._stats.accepted
            self.pump()
            await self._until_trouble()
            hint = await self._take_back()
            if isinstance(hint, LogDeletedError) and self._waiting:
                self._fail_all(hint)
            if self._loop.time() >= self._deadline_s and self._waiting:
                self._fail_all(TimeoutExpiredError(f"none was confirmed for {self._delivery_timeout_s:g} s"))
            if self._stats.accepted != accepted_before:
                backoff.reset()
            await backoff.wait()

    @property
    def _deadline_s(self) -> float:
        """When what is outstanding is given up."""
        return self._progress_at_s + self._delivery_timeout_s

    async def _attach(self, hint: HoldfastError | None) -> Sender:
        self._trouble.clear()
        self._closed_by = None
        sender = await self._network.attach_sender(
            self._address, self.partition, self, deadline_s=self._deadline_s, hint=hint, codec=self._codec
        )
        self._stats.attached += 1
        return sender

    async def _until_trouble(self) -> None:
        """Return when the link failed, asked for a repeat, or made no progress with events on it for too long."""
        patience_s = self._delivery_timeout_s * STALL_SHARE
        since_s = self._loop.time()  # a fresh link gets its time, however long its predecessor was stuck
        while not self._trouble.is_set():
            idle_s = self._loop.time() - max(since_s, self._progress_at_s)
            if self.outstanding and idle_s >= patience_s:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s - idle_s if self.outstanding else patience_s):
                    await self._trouble.wait()

    async def _take_back(self) -> HoldfastError | None:
        """Put everything unconfirmed back in front of the queue, in the order it was first sent.

        Returns why the link ended, if the node said so: it may hold a redirect.
        """
        stalled = not self._trouble.is_set()
        if self._in_flight and self._closed_by is None and not stalled:
            self._quiet.clear()
            try:
                async with asyncio.timeout(QUIESCE_BOUND_S):
                    await self._quiet.wait()
            except TimeoutError:
                stalled = True
        closed_by, sender = self._closed_by, self._sender
        if closed_by is not None or stalled:
            self._sender = None
            if sender is not None and stalled:
                sender.abandon()
                closed_by = closed_by or TimeoutExpiredError("the link made no progress")
        self._stats.resent += len(self._in_flight)
        self._requeue()
        if self._sender is not None:
            self._trouble.clear()
        return closed_by

    def _requeue(self) -> None:
        unconfirmed = sorted([*self._in_flight.items(), *self._again.items()])
        self._waiting.extendleft(item for _, item in reversed(unconfirmed))
        self._in_flight.clear()
        self._again.clear()

    def _fail_all(self, error: HoldfastError) -> None:
        """Tell the owner of every event that is here; they are not tried any more."""
        where = f"partition {self.partition}" if self.partition is not None else "the log"
        failed = list(self._waiting)
        self._waiting.clear()
        self._stats.failed += len(failed)
        told: HoldfastError = UndeliveredError(
            f"{len(failed)} events for {where} were not confirmed: {error}", count=len(failed)
        )
        if isinstance(error, LogDeletedError):  # there is no doubt left: whatever was stored is gone
            told = error
        for item in failed:
            self._finish(item, told)
        self._progress_at_s = self._loop.time()

    def _finish(self, item: Delivery, error: HoldfastError) -> None:
        item.settle(error)
        if not item.claimed:
            self._unclaimed(item)
        self._settled(self.partition, 1, len(item.content), False)


def refusal_of(error: Error) -> HoldfastError:
    """What the program is told of an event that the node rejected."""
    text = f"event refused: {error}"
    if error.condition == RESOURCE_DELETED:
        return LogDeletedError(text, condition=error.condition)
    return RejectedError(text, condition=error.condition)
