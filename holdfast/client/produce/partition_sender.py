"""One ordered stream of events into one place of a log: what a producer keeps for each partition.

Problem: events of one key must stay in order although links break, leaders move and answers get lost.
Rules never broken:
 - events leave in the order in which they came, over one link at a time;
 - an event is forgotten only when the node accepted it, refused it for good, or its owner was told that it failed;
 - after any failure everything unconfirmed is sent again *from the first unconfirmed one on, in order*. So a reader
   that drops what it has seen sees every event once and in order; copies are counted (`resent`), not hidden.
Rejected: resending single events as their answers come back: a released event would then overtake its successors.

The life of a partition sender stands in `_live`: attach, pump until the link fails or an answer asks for a repeat,
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
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from holdfast.client.errors import (
    ClosedError,
    EventTooLargeError,
    HoldfastError,
    InternalError,
    LogDeletedError,
    RejectedError,
    TimeoutExpiredError,
    UndeliveredError,
)
from holdfast.client.produce.chunks.chunk import Run
from holdfast.client.produce.round_trips import RoundTrips
from holdfast.client.produce.transfers import (
    Transfer,
    UnderWay,
    next_transfers,
    room_of,
    runs_of,
    transfer_of,
    weight_of,
    without_too_large,
    worth_waiting,
)
from holdfast.client.transport.links import Sender
from holdfast.client.transport.network import Backoff, Network
from holdfast.records.codec import Codec

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
    ) -> None:
        """`settled(partition, events, payload bytes, confirmed)` is called when events leave the partition sender."""
        self.partition = partition
        self._network, self._address = network, address
        self._window, self._codec, self._delivery_timeout_s = window, codec, delivery_timeout_s
        self._stats, self._settled = stats, settled
        self._waiting: deque[Run] = deque()
        self._under_way = UnderWay()
        self._again: list[tuple[int, Transfer]] = []  # answered with "send it again", with their numbers
        self._sender: Sender | None = None
        self._work = asyncio.Event()
        self._trouble = asyncio.Event()  # the link failed, or an answer asks for a repeat
        self._quiet = asyncio.Event()  # nothing is in flight
        self._defect: Exception | None = None  # of this client, found while sending
        self._progress_at_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    # ---------------------------------------------------------------- from the producer

    @property
    def _outstanding(self) -> bool:
        return bool(self._waiting or self._under_way or self._again)

    def waits_since(self, since_s: float) -> bool:
        """Something is outstanding, and there was no progress since then."""
        return self._outstanding and self._progress_at_s <= since_s

    def outstanding(self) -> tuple[int, int]:
        """Events and bytes."""
        return weight_of(self._waiting, self._under_way.transfers, (transfer for _, transfer in self._again))

    @property
    def round_trips(self) -> RoundTrips:
        return self._under_way.round_trips

    def put(self, runs: Iterable[Run]) -> None:
        """Append events; `pump` must follow, soon."""
        if not self._outstanding:
            # Nothing was awaited until now: the bound on progress starts here.
            self._progress_at_s = self._loop.time()
        self._waiting.extend(runs)

    def pump(self) -> None:
        """Send what may be sent now."""
        if not self._waiting:
            return
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run(), name=f"partition sender {self._address}/{self.partition}")
        sender = self._sender
        if sender is None or self._trouble.is_set():
            self._work.set()
            return
        waiting, under_way = self._waiting, self._under_way
        limit = sender.max_message_size or sys.maxsize
        while waiting and (most := min(sender.credit, self._window - under_way.events)) > 0:
            room = room_of(sender, most)
            if under_way and worth_waiting(waiting, room):
                break
            transfers: list[Transfer] = []
            try:
                taken = next_transfers(waiting, room)
                transfers = without_too_large(waiting, taken, limit, self._too_large)
                under_way.send(sender, transfers, now_s=self._loop.time())
            except Exception as error:  # noqa: BLE001  whoever called has nothing to do with these events
                waiting.extendleft(run for transfer in reversed(transfers) for run in reversed(transfer.runs))
                self._defect = error
                self._trouble.set()
                return

    def _too_large(self, transfer: Transfer, error: EventTooLargeError) -> None:
        self._stats.rejected += transfer.events
        self._progress_at_s = self._loop.time()
        self._finish(transfer, error)

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
        under_way = self._under_way
        accepted = size = 0
        now_s = self._loop.time()
        for number, state in outcomes:
            stored = under_way.says_stored(number, state)
            transfer = under_way.pop(number, now_s)
            if transfer is None:
                continue
            if not stored:
                self._not_accepted(number, transfer, state)
                continue
            accepted += transfer.events
            size += transfer.size
            for run in transfer.runs:
                run.settle(None)
        if accepted:
            self._stats.accepted += accepted
            self._progress_at_s = now_s
            self._settled(self.partition, accepted, size, True)
        if not under_way:
            self._quiet.set()
        if self._waiting:
            self.pump()

    def _not_accepted(self, number: int, transfer: Transfer, state: DeliveryState) -> None:
        if isinstance(state, Rejected):
            error = state.error or Error("amqp:not-allowed", "no reason given")
            self._stats.rejected += transfer.events
            self._progress_at_s = self._loop.time()
            self._finish(transfer, refusal_of(error))
            return
        certainly_not_stored = isinstance(state, Released) or (
            isinstance(state, Modified) and not state.delivery_failed
        )
        if certainly_not_stored:
            self._stats.released += transfer.events
        else:  # modified with delivery-failed, or anything unheard of
            self._stats.resent += transfer.events
        self._again.append((number, transfer))
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
        while True:
            try:
                await self._live()
            except Exception as error:  # noqa: BLE001  or whoever waits for what is here would wait for ever
                if self._sender is not None:
                    self._sender.abandon()
                    self._sender = None
                self._requeue()
                self._fail_all(InternalError.of(error))

    async def _live(self) -> None:
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
            if self._defect is not None:
                defect, self._defect = self._defect, None
                raise defect
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
        self._defect = self._closed_by = None
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
            if self._outstanding and idle_s >= patience_s:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s - idle_s if self._outstanding else patience_s):
                    await self._trouble.wait()

    async def _take_back(self) -> HoldfastError | None:
        """Put everything unconfirmed back in front of the queue, in the order it was first sent.

        Returns why the link ended, if the node said so: it may hold a redirect.
        """
        stalled = not self._trouble.is_set()
        if self._under_way and self._closed_by is None and not stalled:
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
        self._stats.resent += self._under_way.events
        self._requeue()
        if self._sender is not None:
            self._trouble.clear()
        return closed_by

    def _requeue(self) -> None:
        unconfirmed = runs_of([*self._under_way.take_back(), *self._again])
        self._waiting.extendleft(reversed(unconfirmed))
        self._again.clear()

    def _fail_all(self, error: HoldfastError) -> None:
        """Tell the owner of every event that is here; they are not tried any more."""
        where = f"partition {self.partition}" if self.partition is not None else "the log"
        failed = transfer_of(self._waiting)
        self._waiting.clear()
        self._stats.failed += failed.events
        if failed.events and not isinstance(error, ClosedError):
            self._network.log_lines.given_up(failed.events, f"{self._address}, {where}", error)
        text = f"{failed.events} events for {where} were not confirmed"
        told: HoldfastError = UndeliveredError.of(text, failed.events, error)
        if isinstance(error, LogDeletedError):  # whatever was stored is gone, or in another cluster
            told = error
        self._finish(failed, told)
        self._progress_at_s = self._loop.time()

    def _finish(self, transfer: Transfer, error: HoldfastError) -> None:
        for run in transfer.runs:
            run.settle(error)
        self._settled(self.partition, transfer.events, transfer.size, False)


def refusal_of(error: Error) -> HoldfastError:
    """What the program is told of an event that the node rejected."""
    text = f"event refused: {error}"
    if error.condition == RESOURCE_DELETED:
        return LogDeletedError(text, condition=error.condition)
    return RejectedError(text, condition=error.condition)
