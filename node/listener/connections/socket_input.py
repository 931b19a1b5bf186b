"""The input of one connection, taken in by pieces, and its budget.

The rules: input is taken in strictly in order. Of attaches and the like one piece is taken at once, and the rest waits:
a read of them is a quarter of a second of work, a read of events some milliseconds. While some waits the socket is not
read, so that no more than one read of it waits; before each piece the engine is told how much it may keep, and after it
the accounts are told what it keeps. While the queue of attaches is full, nothing is taken in (`attach_queue.py`), nor
while the peer takes no output. Nor is the socket read then, or while too much was received and is not replicated yet:
the only back-pressure that a peer cannot ignore.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from holdfast.amqp import Engine
from node.listener.config import ListenerConfig
from node.listener.limits.fair_scheduling import Turns, clock_s
from node.listener.limits.memory_budgets import Budget

DELIVERIES_SHARE = 0.75
"""Share of a connection's budget for unsettled deliveries: a peer that settles late can still attach, and finish its
messages."""

TURN_BYTES = 512 * 1024
"""Bytes taken from one socket in one turn of the loop, or little more. The system would give the loop megabytes of
events of 16 KiB at once; but the followers could be writing the first of them while the next are read. With half of it
the turns cost more than they gain; with twice as much, or without a limit, such events are a tenth and a fifth slower
(measured with 200 of them in flight)."""


class Inputs(Protocol):
    """The listener: what all its connections share."""

    turns: Turns
    unanswered_bytes: int

    def input_share(self, usual_bytes: int) -> int: ...


class InputOwner(Protocol):
    """The connection."""

    engine: Engine
    config: ListenerConfig
    answer_bytes: int  # that wait for credit

    def began(self, first: bytes) -> bool:
        """Note the first bytes from the socket. False: they begin a WebSocket, through which the input comes."""
        ...

    def handle_events(self) -> None:
        """Handle the events that a piece of input has brought."""
        ...

    @property
    def is_blocked(self) -> bool:
        """True while earlier input must be handled first; `ConnectionInput.go_on` is called then."""
        ...

    def fail(self, error: BaseException) -> None: ...


class ConnectionInput:
    """Implements `fair_scheduling.InputWaiter`."""

    def __init__(self, connection: InputOwner, listener: Inputs, budget: Budget) -> None:
        self.budget = budget
        self.output_bytes = 0
        """The connection's output in bytes, as last looked at."""
        self.write_paused = False
        """True while the socket takes no more output."""
        self.unanswered = 0
        """Messages received that have no outcome yet."""
        self.heard_bytes = 0
        """Bytes ever received."""
        self.read_paused = False
        self._unanswered_bytes = 0
        self._connection = connection
        self._listener = listener
        self._turns = listener.turns
        self._transport: asyncio.Transport | None = None
        self._waiting = b""
        self._turn = self._turn_bytes = 0  # the latest with input, and how much came in it
        self._has_too_much = False  # received and not answered
        self._rests = False  # it has had its share of this turn
        self._queued = False  # among those whose turn comes
        self._over = False

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    @property
    def _is_stuck(self) -> bool:
        """True while the peer does not read, and its output has reached the limit. Answers would stay in proton then,
        which has room for 256 sessions that began and ended."""
        return self.write_paused and self.output_bytes > self._connection.config.pending_output_limit_bytes

    @property
    def _is_blocked(self) -> bool:
        return self._is_stuck or self._connection.is_blocked

    def take(self, data: bytes) -> None:
        """Take in data from the socket, which calls this as the connection's `data_received`."""
        if self._over or (not self.heard_bytes and not self._connection.began(data)):
            return
        self.heard_bytes += len(data)
        turns = self._turns
        self._count(len(data))
        if self._waiting:
            self._waiting += data
            return
        engine = self._connection.engine
        if not turns.input_over and not self._is_blocked:
            began_s = clock_s()
            data = self._piece(data)
            turns.used_input(clock_s() - began_s)
            while data and not (turns.input_over or engine.crowded or self._is_blocked):
                began_s = clock_s()
                data = self._piece(data)
                turns.used_input(clock_s() - began_s)
        if data and not self._over:
            self._waiting = data
            self._queue()
            self.read_or_pause()

    def _count(self, size: int) -> None:
        """Count the turn's bytes; after its share the socket is read again in the next turn."""
        if self._turn != self._turns.number:
            self._turn, self._turn_bytes = self._turns.number, 0
        self._turn_bytes += size
        if self._turn_bytes >= TURN_BYTES and not self._rests:
            self._rests = True
            self.read_or_pause()
            asyncio.get_running_loop().call_soon(self._rested)

    def _rested(self) -> None:
        self._rests = False
        self._turn_bytes = 0
        self.read_or_pause()

    def go_on(self) -> None:
        """Take in again what waits."""
        if self._waiting and not self._queued and not self._over:
            self._queue()

    def _queue(self) -> None:
        self._queued = not self._is_blocked
        if self._queued:
            self._turns.wait_to_take(self)

    def work_on(self) -> bool:
        if self._waiting and not self._over:
            if self._is_blocked:
                self._queued = False
                return False
            self._waiting = self._piece(self._waiting)
            if not self._waiting:
                self.read_or_pause()
        self._queued = bool(self._waiting)
        return self._queued

    def _piece(self, data: bytes) -> bytes:
        """Take in the beginning; return the rest."""
        connection = self._connection
        engine = connection.engine
        engine.keep_limit = self.budget.limit - self.output_bytes
        try:
            taken = engine.receive_some(data)
            connection.handle_events()
        except Exception as error:  # noqa: BLE001 - a bug met by one peer's bytes must not reach another peer
            connection.fail(error)
            return b""
        self.account()
        return data[taken:] if taken < len(data) and not self._over else b""

    def account(self) -> None:
        if self._over:
            return
        connection = self._connection
        self.budget.tell(
            connection.engine.kept_bytes + connection.answer_bytes + len(self._waiting) + self.output_bytes
        )

    def room_for_deliveries(self) -> int:
        """Bytes of unsettled deliveries that may still be kept; some are left for the peer's input."""
        self.account()
        return int(self.budget.limit * DELIVERIES_SHARE) - self.budget.held

    # ------------------------------------------------------------------------------------------------- back-pressure

    def received(self, count: int, size: int) -> None:
        self.unanswered += count
        self._unanswered_bytes += size
        self._listener.unanswered_bytes += size
        self.read_or_pause()

    def answered(self, count: int, size: int) -> None:
        self.unanswered -= count
        self._unanswered_bytes -= size
        self._listener.unanswered_bytes -= size
        if self.read_paused:
            self.read_or_pause()

    def read_or_pause(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        config = self._connection.config
        limit = self._listener.input_share(config.uncommitted_bytes)
        self._has_too_much = self._unanswered_bytes > (limit // 2 if self._has_too_much else limit)
        full = self._rests or bool(self._waiting) or self._has_too_much
        is_stuck = self._is_stuck
        if not is_stuck:
            self.go_on()
        if (full or is_stuck) != self.read_paused:
            self.read_paused = not self.read_paused
            if self.read_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def end(self) -> None:
        """Give everything back: the connection is gone."""
        self._over = True
        self._transport = None
        del self._connection  # which has this: without the cycle it is freed at once
        self._waiting = b""
        self.budget.close()
