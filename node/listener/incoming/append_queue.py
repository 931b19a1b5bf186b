"""The messages of one link on their way into one partition, through changes of leader.

Problem: a link has hundreds of messages under way when the leader dies. Some are in, some certainly are not, and the
fate of others is unknown; meanwhile more arrive. A producer without sequence numbers can only keep its order if nothing
overtakes.

Rules never broken:
 - each delivery is answered exactly once;
 - an append queue submits messages in the order in which the link received them. So it submits a batch to another
   leader, or a second time, only when none of its batches is unanswered; then everything that came back goes in the
   old order, followed by what came later;
 - only a batch that *certainly* was not appended is submitted again; `unknown` is reported and never repeated.

Rejected: answering `released` at the first `not_leader` and leaving the rest to the client. Stock clients treat it as
an error of the application; and with a thousand in flight the later ones would overtake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from holdfast.records.lengths import table_of
from holdfast.records.record_batch import RecordBatch, seal
from node.listener.broker_interface import Broker
from node.listener.incoming.in_flight_sequence import InFlightSequence
from node.partition.api import Appended, AppendOutcome, Begins, Failed

RETRY_DELAY_S = 0.05
"""Delay between attempts while nothing announces a change: a leader that is new, or busy, is asked twenty times a
second."""

_TRANSIENT = frozenset({"not_leader", "overloaded"})


class Deliveries:
    """Deliveries that brought one batch, and are answered together: one for each of its records in the order of the
    records, or one for all of them. Who answers them need not hold the records."""

    __slots__ = ("count", "events", "handles", "in_doubt", "in_row", "size")

    def __init__(self, handles: list[Any], count: int, size: int, events: int) -> None:
        """`handles` is empty when the peer sends everything settled; `count` is how many there were. `size`: bytes, as
        received. `events`: in the batch, more than `count` if one delivery brought them all."""
        self.handles = handles
        self.count = count
        self.size = size
        self.events = events
        self.in_row = True  # they came one after the other, with nothing between them
        self.in_doubt = False  # an attempt to append ended with an unknown outcome


class QueuedBatch:
    """A batch that goes to one partition, and the deliveries that brought it."""

    __slots__ = ("begins", "deliveries", "place", "sealed")

    def __init__(self, handles: list[Any], sealed: RecordBatch, count: int, size: int) -> None:
        """`handles`, `count`, `size`: of the deliveries."""
        self.deliveries = Deliveries(handles, count, size, sealed.head.record_count)
        self.sealed = sealed
        self.begins: Begins | None = None
        self.place = 0  # in the order of the append queue, once it was submitted


def sealed_messages(messages: Sequence[bytes], digests: bytes = b"") -> RecordBatch:
    """Seal checked single messages into a record batch."""
    return seal(table_of(map(len, messages)), messages, bodies=False, digests=digests)


class QueueOwner(Protocol):
    """The link endpoint that an append queue works for."""

    def accepted(self, deliveries: Deliveries, stored: Appended, partition: str) -> None: ...
    def uncertain(self, deliveries: Deliveries, why: Failed, partition: str) -> None:
        """Report deliveries whose batch may be in the log, or not."""
        ...

    def refused(self, deliveries: Deliveries, why: Failed) -> None:
        """Report deliveries whose batch certainly was not appended, and never will be."""
        ...

    def turned_away(self, deliveries: Deliveries, why: str) -> None:
        """Report deliveries whose batch certainly was not appended, and may succeed later."""
        ...

    def broken(self, error: BaseException) -> None:
        """Report a bug that showed while an answer was handled."""
        ...


class AppendQueue:
    def __init__(
        self,
        owner: QueueOwner,
        broker: Broker,
        log: str,
        partition: str,
        *,
        wait_s: float,
        follow: bool,
        numbered: bool = False,
    ) -> None:
        """`follow`: go on with the next leader. False: turn away at once a batch that this leader does not take.
        `numbered`: each batch has sequence numbers, so that what is in doubt can be submitted again."""
        self.log = log
        self.partition = partition
        self._owner = owner
        self._broker = broker
        self._wait_s = wait_s
        self._follow = follow
        self._sequence = InFlightSequence() if numbered else None
        self._closed = False
        self._leader: int | None = None  # to whom the unanswered batches went
        self._places = 0
        self._unanswered = 0
        self._returned: list[QueuedBatch] = []  # certainly not appended, in the order of the answers
        self._behind: list[QueuedBatch] = []  # what came later, and may be submitted once nothing is unanswered
        self._retry: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None  # runs from the first refusal to the next success

    def submit(self, batch: QueuedBatch) -> None:
        if self._closed:
            self._owner.turned_away(batch.deliveries, "the link is being closed")
        elif self._holds_back:
            self._behind.append(batch)
        else:
            self._append(batch)

    @property
    def _holds_back(self) -> bool:
        """Batches wait here, until all others are answered or for a leader: what comes now waits behind them."""
        return bool(self._returned or self._behind)

    def _append(self, batch: QueuedBatch) -> None:
        try:
            leader = self._broker.leader(self.log, self.partition)
            handle = self._broker.handle(self.log, self.partition)
        except KeyError:
            self._owner.refused(batch.deliveries, Failed("deleted", False, f"log {self.log!r} is gone"))
            return
        head, sequence = batch.sealed.head, self._sequence
        goes_on = leader == self._leader and (sequence is None or sequence.goes_on(head.base_sequence))
        if self._unanswered and not goes_on:
            self._behind.append(batch)
            return
        self._leader = leader
        self._places += 1
        batch.place = self._places
        self._unanswered += 1
        if sequence is not None:  # before it is handed over: it may be answered before that has returned
            sequence.goes(head.base_sequence, head.record_count)
        handle.append(batch.sealed, partial(self._answered, batch), batch.begins)

    def _answered(self, batch: QueuedBatch, outcome: AppendOutcome) -> None:
        """Take an answer from the partition, possibly in the midst of a Raft turn: nothing may be thrown into that."""
        try:
            self._take_answer(batch, outcome)
        except Exception as error:  # noqa: BLE001 - a bug of one link must not stop the node's other groups
            self._owner.broken(error)

    def _take_answer(self, batch: QueuedBatch, outcome: AppendOutcome) -> None:
        if self._sequence is not None:
            deliveries = batch.deliveries
            deliveries.in_doubt = deliveries.in_doubt or (isinstance(outcome, Failed) and outcome.kind == "unknown")
            repeats = self._follow and not self._closed
            outcome = self._sequence.judge(outcome, deliveries.events, repeats=repeats)
        self._unanswered -= 1
        if isinstance(outcome, Failed) and self._goes_again(outcome):
            self._returned.append(batch)
        else:
            self._tell(batch.deliveries, outcome)
        if not self._unanswered and self._holds_back:
            self._all_answered()

    def _goes_again(self, outcome: Failed) -> bool:
        followed = self._follow or outcome.kind != "not_leader"
        return outcome.kind in _TRANSIENT and followed and not self._closed

    def _tell(self, deliveries: Deliveries, outcome: AppendOutcome) -> None:
        if isinstance(outcome, Appended):
            self._cancel_timer("_patience")
            self._owner.accepted(deliveries, outcome, self.partition)
        elif outcome.kind == "unknown":
            self._owner.uncertain(deliveries, outcome, self.partition)
        elif outcome.kind in _TRANSIENT:
            self._owner.turned_away(deliveries, outcome.detail)
        else:
            self._owner.refused(deliveries, outcome)

    def _all_answered(self) -> None:
        came_back, leader = bool(self._returned), self._current_leader()
        if self._patience is None and (came_back or leader is None):
            self._patience = _later(self._wait_s, self._out_of_patience)
        if came_back and leader == self._leader:
            self._retry = _later(RETRY_DELAY_S, self.attempt)  # not at once: it is the same leader again
        else:
            self.attempt()

    def attempt(self) -> None:
        """Submit the waiting batches if a leader is known. Called when leaders may have changed, too."""
        if self._unanswered or not self._holds_back:
            return
        self._cancel_timer("_retry")
        if self._current_leader() is None:
            return  # the next change, or the end of patience, comes back here
        for batch in self._take_waiting():
            self.submit(batch)  # a failure on the way holds back the rest again

    def _current_leader(self) -> int | None:
        try:
            return self._broker.leader(self.log, self.partition)
        except KeyError:  # the log is gone: the link endpoint sees that too, and closes the append queue
            return None

    def _out_of_patience(self) -> None:
        self._patience = None  # what comes next begins a new wait
        self._cancel_timer("_retry")
        self._turn_away(f"nobody could take it for {self._wait_s:g} s")

    def close(self) -> None:
        """Take in nothing more. Batches under way will still be answered, to the owner."""
        if not self._closed:
            self._closed = True
            self._cancel_timer("_retry")
            self._cancel_timer("_patience")
            self._turn_away("the link is being closed")

    def _turn_away(self, why: str) -> None:
        for batch in self._take_waiting():
            self._owner.turned_away(batch.deliveries, why)

    def _take_waiting(self) -> list[QueuedBatch]:
        """Take out what is to be submitted, in the order in which it came."""
        waiting = sorted(self._returned, key=lambda batch: batch.place) + self._behind
        self._returned, self._behind = [], []
        return waiting

    def _cancel_timer(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def _later(delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, callback)
