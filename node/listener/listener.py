"""The listener: a listening socket, its connections, and what they share.

Problem: limits per connection do not bound a node that has ten thousand of them; and a change of leader concerns
links on all of them at once.
Rule never broken: what all connections together hold, in either direction, is bounded too: beyond a total each one's
share shrinks to a floor that keeps it alive. A stop answers everything that was received before it closes the
connections.
Rejected: refusing connections as soon as memory is short. It punishes newcomers for what the old ones do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from node.listener.broker_interface import Broker
from node.listener.config import ListenerConfig
from node.listener.connections.connection import Connection
from node.listener.connections.tls_acceptor import OTHERS_CAME, TlsAcceptor
from node.listener.counters import Counters
from node.listener.limits.fair_scheduling import Turns, clock_s
from node.listener.limits.memory_budgets import Accounts
from node.listener.limits.unauthenticated_connections import UnauthenticatedConnections
from node.listener.log_limiter import LogLimiter
from node.security.authentication import Gate

log = logging.getLogger("holdfast.listener")

TOTAL_INPUT_BYTES = 256 * 1024 * 1024
"""Bytes received and not yet replicated, over all connections: beyond it each keeps only FLOOR_BYTES."""

TOTAL_OUTPUT_BYTES = 256 * 1024 * 1024
"""Bytes encoded and not yet taken by sockets, over all connections: beyond it each gets only FLOOR_BYTES more."""

FLOOR_BYTES = 64 * 1024
"""A share so small that ten thousand of them still fit, and large enough for a message or a batch."""

EXCESS_CONNECTIONS = 64
"""Connections over the limit that are told so in AMQP; any more are just cut."""

ERRANDS_A_TURN = 16
"""Errands of ended connections that are begun in one turn: one with a thousand claims may end at any moment."""

CHANGE_S = 0.01
"""Seconds of one turn of the loop for telling connections of a change: each of their links looks at it."""

BACKLOG = 1024
"""Connections that the kernel may hold while the loop is busy: clients of a dead node come back all at once."""


class Listener:
    def __init__(
        self,
        broker: Broker,
        config: ListenerConfig,
        gate: Gate | None = None,
        accounts: Accounts | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`accounts` and `turns` are the node's, shared with its other listeners."""
        self.broker = broker
        self.gate = gate or Gate(bind_host=config.bind_host, tls=config.tls)
        self.config = config
        self.counters = Counters()
        self.notes = LogLimiter()
        self.accounts = accounts or Accounts()
        self.turns = turns or Turns()
        self.unanswered_bytes = 0
        self.output_bytes = 0
        self._connections: set[Connection] = set()
        self._strangers: UnauthenticatedConnections[Connection] = UnauthenticatedConnections()
        self._untold: list[Connection] = []  # of a change
        self._errands_due: deque[Coroutine[Any, Any, None]] = deque()
        self._server: asyncio.Server | TlsAcceptor | None = None
        self._stopping = False
        self._unsubscribe: Callable[[], None] | None = None
        self._change_due = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._errands: set[asyncio.Task[None]] = set()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Addresses that the listener is bound to: (host, port)."""
        sockets = self._server.sockets if self._server is not None else ()
        return [socket.getsockname()[:2] for socket in sockets]

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        self._loop = asyncio.get_running_loop()
        host, port = self.config.bind_host, self.config.bind_port
        if self.config.tls is None and not self.config.proxies:
            self._server = await self._loop.create_server(lambda: Connection(self), host, port, backlog=BACKLOG)
        else:
            self._server = self._front_door()
            await self._server.open(host, port)
        self._unsubscribe = self.broker.subscribe(self._changed)

    def _front_door(self) -> TlsAcceptor:
        config = self.config
        return TlsAcceptor(
            lambda deadline_s, client: Connection(self, deadline_s, client),
            config.tls,
            config.tls_mode,
            self.notes,
            handshake_s=config.handshake_timeout_s,
            backlog=BACKLOG,
            proxies=config.proxies,
        )

    async def stop(self) -> None:
        """Take in nothing new, answer what came before, then close everything with amqp:connection:forced."""
        self._stopping = True
        if isinstance(self._server, TlsAcceptor):
            await self._server.close()
        elif self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.leave(connection.forced())
        await self.until(lambda: not any(c.intake.unanswered for c in self._connections), self.config.drain_timeout_s)
        for connection in list(self._connections):
            connection.close(connection.forced())
        if self._connections:
            await asyncio.wait([c.lost for c in self._connections], timeout=self.config.drain_timeout_s)
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            await asyncio.wait([c.lost for c in self._connections])
        self._start_errands(len(self._errands_due))
        if self._errands:
            await asyncio.wait(self._errands, timeout=self.config.drain_timeout_s)
        for errand in list(self._errands):
            errand.cancel()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    # ------------------------------------------------------------------------------------------- for connections

    def admit(self, connection: Connection) -> Literal["welcome", "excess", "abort"]:
        open_now = len(self._connections)
        counters = self.counters
        counters.connections_total += 1
        limit = self.config.max_connections
        if self._stopping or open_now >= limit:
            counters.connections_refused += 1
        self._connections.add(connection)
        counters.connections_open += 1
        if self._stopping or open_now >= limit + EXCESS_CONNECTIONS:
            return "abort"
        if open_now < limit:
            too_many = self._strangers.add(connection, connection.address)
            if too_many is not None:
                too_many.cut(OTHERS_CAME)
            return "welcome"
        self.notes.write("a connection is refused: %d are open, the limit", open_now)
        return "excess"

    def opened(self, connection: Connection) -> None:
        """Note that the peer has logged in, and said `open`."""
        self._strangers.remove(connection)

    def forget(self, connection: Connection) -> None:
        self._strangers.remove(connection)
        if connection in self._connections:
            self._connections.discard(connection)
            self.counters.connections_open -= 1

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that a connection leaves behind: the release of its links' claims."""
        self._errands_due.append(work)
        if len(self._errands_due) == 1:
            asyncio.get_running_loop().call_soon(self._start_errands)

    def _start_errands(self, most: int = ERRANDS_A_TURN) -> None:
        loop, due = asyncio.get_running_loop(), self._errands_due
        for _ in range(min(most, len(due))):
            task = loop.create_task(due.popleft())
            self._errands.add(task)
            task.add_done_callback(self._errand_done)
        if due:
            loop.call_soon(self._start_errands)

    def _errand_done(self, task: asyncio.Task[None]) -> None:
        self._errands.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a bug ends what a connection left behind", exc_info=error)

    def input_share(self, usual_bytes: int) -> int:
        return usual_bytes if self.unanswered_bytes < TOTAL_INPUT_BYTES else FLOOR_BYTES

    def output_share(self, usual_bytes: int) -> int:
        return usual_bytes if self.output_bytes < TOTAL_OUTPUT_BYTES else FLOOR_BYTES

    def answered_all(self) -> None:
        """Note that a connection has nothing unanswered any more."""
        if self._stopping:
            self._wake_waiters()

    # ------------------------------------------------------------------------------------------- changes

    def _changed(self) -> None:
        """Note a change. The broker calls it, possibly in the midst of a Raft turn."""
        if not self._change_due and self._loop is not None:
            self._change_due = True
            self._loop.call_soon(self._spread_change)

    def _spread_change(self) -> None:
        self._change_due = False
        self._wake_waiters()
        telling = bool(self._untold)
        self._untold = list(self._connections)
        if not telling:
            self._tell_change()

    def _tell_change(self) -> None:
        """Tell connections of a change; one with many links uses up a turn of its own."""
        until_s = clock_s() + CHANGE_S
        while self._untold and clock_s() < until_s:
            connection = self._untold.pop()
            try:
                connection.on_change()
            except Exception as error:  # noqa: BLE001 - a bug met by one connection must not hide the change from others
                connection.fail(error)
        if self._untold and self._loop is not None:
            self._loop.call_soon(self._tell_change)

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool], wait_s: float) -> bool:
        """Wait for a change that makes the condition true; False when the time was up first."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        while not condition():
            remaining_s = deadline_s - loop.time()
            if remaining_s <= 0:
                return False
            waiter = loop.create_future()
            self._waiters.add(waiter)
            await asyncio.wait([waiter], timeout=remaining_s)
            self._waiters.discard(waiter)
        return True
