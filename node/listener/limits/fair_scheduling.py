"""Time that connections may keep the loop, and the order in which they get it.

The problem: one read of a socket brings up to 256 KiB; as transfers that is some milliseconds of work, as attaches it
is a quarter of a second, in which nobody else is served and elections begin. The rules: a connection's input is worked
off in pieces of bounded work (the engine cuts them); in one turn of the loop all connections together get INPUT_S for
what comes in it, WAITING_S for what waits, and OUTPUT_S for output; ANSWERS attaches that took a while are answered;
and the rest waits, each connection after the others. A connection whose input waits is not read any more, so what waits
is bounded, and its peer's own socket fills. A connection that asks for little is served at once: it does not queue
after the waiting input.
Rejected: threads, and a limit of frames a second. Threads need locks around everything that links touch; a limit
punishes a fast client on an idle node, and does not know what a frame costs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

INPUT_S = 0.02
"""Seconds for input that comes in one turn of the loop; the piece under way is finished, which may take milliseconds
more. Events use it up, since of a read of attaches only the first piece counts here (`socket_input.py`). A read of 256
KiB is less than a millisecond of work as events of 1 KiB and some eight as events of 100 bytes: two of the latter fit,
and a bulk sender to an idle node never waits. With what else a turn does (a piece of waiting input, 10 ms of output, an
answer, and the turn of the Raft groups, some 5 ms at a full load) it stays under 50 ms. Half of it would make a second
bulk sender wait for the first."""

WAITING_S = 0.0002
"""Seconds for input that waits, in one turn of the loop: one piece, which is some four attaches or up to 2,000 events.
A published event takes some five turns from its socket to its answer, and waits so long in each; with an answer and the
turn of the groups these are one or two milliseconds each while others flood the node with attaches. A turn without
other work is over at once, and the next piece follows."""

OUTPUT_S = 0.01
"""Seconds for reading events and handing them to sockets, in one turn of the loop: more than a thousand events of 1
KiB. Waiting hurts a receiver less than a sender: its events come in larger pieces."""

ENDING_S = 0.0005
"""Seconds for releasing what lost connections leave behind, in one turn of the loop; a piece of it may take longer (a
thousand unsettled deliveries take a millisecond), and those of several connections do not add up. Nobody waits for it,
but a flood of connections ends one a second, and an event takes some five turns then, too."""

ANSWERS = 1
"""Slow attaches (groups, producers, positions) that are answered in one turn of the loop. Each makes a link and its
terms, half a millisecond or more, and the entries of all that were under way come back in one turn. With two, an honest
producer beside a flood of them waits a tenth longer; a turn without other work is over at once."""

clock_s = time.perf_counter


class InputWaiter(Protocol):
    """A connection whose input waits."""

    def work_on(self) -> bool:
        """Take in a piece of the waiting input; False: nothing is left."""
        ...


class OutputWaiter(Protocol):
    """A connection whose links have more to send."""

    def send_on(self) -> None:
        """Send one share; the connection waits again if it has more."""
        ...


class Turns:
    """The shares of the loop's time of one node."""

    def __init__(self) -> None:
        self.number = 0
        """Number of the present turn, as far as anybody uses it."""
        self.input_s = 0.0
        self.output_s = 0.0
        self._takers: deque[InputWaiter] = deque()
        self._givers: deque[OutputWaiter] = deque()
        self._ending: deque[Callable[[], bool]] = deque()
        self._answered = 0
        self._answerers: deque[asyncio.Future[None]] = deque()
        self._due = False
        self._outputs: list[Callable[[], None]] = []

    def flush_soon(self, flush: Callable[[], None]) -> None:
        """Flush a connection's output when the turn ends, if nobody does earlier."""
        if not self._outputs:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outputs.append(flush)

    def flush(self) -> None:
        """Flush the output of all connections that have asked for it."""
        outputs, self._outputs = self._outputs, []
        for flush in outputs:
            flush()

    def used_input(self, took_s: float) -> None:
        self.input_s += took_s
        if not self._due:
            self._call_soon()

    def used_output(self, took_s: float) -> None:
        self.output_s += took_s
        if not self._due:
            self._call_soon()

    @property
    def input_over(self) -> bool:
        return self.input_s >= INPUT_S

    @property
    def output_over(self) -> bool:
        return self.output_s >= OUTPUT_S

    async def until_answer(self) -> None:
        """Wait until one more attach may be answered in this turn."""
        if not self._due:
            self._call_soon()
        if self._answered < ANSWERS and not self._answerers:
            self._answered += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._answerers.append(waiter)
        await waiter

    def wait_to_take(self, connection: InputWaiter) -> None:
        """Queue a connection, to work off its input in its turn."""
        self._takers.append(connection)
        if not self._due:
            self._call_soon()

    def wait_to_give(self, connection: OutputWaiter) -> None:
        self._givers.append(connection)
        if not self._due:
            self._call_soon()

    def wait_to_end(self, release: Callable[[], bool]) -> None:
        """Release what a gone connection leaves behind, piece by piece. `release` lets go of one piece, and says
        whether that was all."""
        self._ending.append(release)
        if not self._due:
            self._call_soon()

    def _call_soon(self) -> None:
        self._due = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin the next turn of the loop. Waiting input has a share apart from new input, which must not queue after
        it."""
        self._due = False
        self.number += 1
        takers, givers = self._takers, self._givers
        until_s = clock_s() + WAITING_S
        while takers and clock_s() < until_s:
            connection = takers.popleft()
            if connection.work_on():
                takers.append(connection)
        self.input_s = self.output_s = 0.0
        self._let_answer()
        self._let_end()
        for _ in range(len(givers)):
            if self.output_over:
                break
            givers.popleft().send_on()
        if (takers or givers or self._answerers or self._ending) and not self._due:
            self._call_soon()

    def _let_end(self) -> None:
        ending, until_s = self._ending, clock_s() + ENDING_S
        while ending and clock_s() < until_s:
            if ending[0]():
                ending.popleft()

    def _let_answer(self) -> None:
        self._answered = 0
        while self._answerers and self._answered < ANSWERS:
            waiter = self._answerers.popleft()
            if not waiter.done():  # its connection may be gone
                self._answered += 1
                waiter.set_result(None)
