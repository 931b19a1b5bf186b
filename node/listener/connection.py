"""One AMQP connection: a socket, an engine, and the links on it.

Problem: ten thousand peers share one loop; some of them are broken, some hostile, some never read. Each must be able to
harm nobody but itself, at a bounded price in memory, and the well-behaved must not pay for the checks.

Rules never broken:
 - whatever a peer sends ends in events of its own engine; a bug in serving one connection closes that connection;
 - input: a connection with too much received and not yet replicated, or with too much output that it does not take,
   is not read; that is the only back-pressure that a peer cannot ignore;
 - output: is written once per turn of the loop, however many events produced it, and no more is produced than the
   socket takes. What waits in proton and in the transport together is bounded.

Rejected: asyncio streams (a task and several awaits per chunk of input cost more than decoding it).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol, cast

from holdfast import protocol
from holdfast.amqp import (
    ConnectionClosed,
    ConnectionOpened,
    Credit,
    Engine,
    Event,
    Link,
    LinkDetached,
    LinkRequested,
    Settlements,
    Transfers,
)
from holdfast.amqp.errors import CONNECTION_FORCED, INTERNAL_ERROR, RESOURCE_LIMIT_EXCEEDED, Error
from node.listener import errors
from node.listener.attach import answer, link_plan
from node.listener.broker import Broker
from node.listener.config import ListenerConfig
from node.listener.counters import Counters
from node.listener.endpoint import Endpoint
from node.listener.log_limiter import LogLimiter
from node.listener.management import Reply
from node.partition.consumer_groups.group_state import End

log = logging.getLogger("holdfast.listener")

WRITE_HIGH_BYTES = 256 * 1024
"""Bytes in the transport above which it says stop: the kernel's own buffer is larger, so the socket never runs dry."""

WRITE_LOW_BYTES = 64 * 1024
"""Bytes in the transport below which it asks for more."""

LAST_WORDS_S = 2.0
"""A peer that was told to go has so long to read it and answer."""


class ConnectionOwner(Protocol):
    """What a connection needs of its listener, which keeps what all connections share."""

    broker: Broker
    config: ListenerConfig
    counters: Counters
    notes: LogLimiter
    unanswered_bytes: int
    output_bytes: int

    def admit(self, connection: Connection) -> Literal["welcome", "excess", "abort"]: ...
    def forget(self, connection: Connection) -> None: ...
    def errand(self, work: Coroutine[Any, Any, None]) -> None: ...
    def input_share(self, usual_bytes: int) -> int: ...
    def output_share(self, usual_bytes: int) -> int: ...
    def answered_all(self) -> None: ...
    async def until(self, condition: Callable[[], bool], wait_s: float) -> bool: ...


class Connection(asyncio.Protocol):
    """Implements `endpoint.Host` and `attach.Attacher`."""

    def __init__(self, listener: ConnectionOwner) -> None:
        config = listener.config
        self.listener = listener
        self.broker = listener.broker
        self.config = config
        self.redirects = False
        self.knows_streams = False
        self.endpoints: dict[Link, Endpoint] = {}
        self.unanswered = 0  # messages received whose outcome is open
        self._unanswered_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self._excess = False  # over the limit of connections: will be told so, and closed
        self._closing = False  # our close has been sent, or the peer's has arrived
        self._flush_due = False
        self._write_paused = False
        self._read_paused = False
        self._output_bytes = 0  # as last told to the listener
        self._ready: dict[Endpoint, None] = {}  # in order; those whose pump is to be called
        self._tasks: set[asyncio.Task[None]] = set()
        self._tick_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None  # when the socket is cut, come what may
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.engine = Engine(
            "server",
            container_id=self.broker.container_id,
            idle_timeout_s=config.idle_timeout_s,
            offered_capabilities=(protocol.EVENT_STREAMS_CAPABILITY,),
            properties={"product": "Holdfast", "node": self.broker.node_id},
            max_message_size=config.max_message_size,
            max_links=config.max_links_per_connection,
        )

    # ------------------------------------------------------------------------------------------------- socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
        self._peer = str(transport.get_extra_info("peername"))
        admission = self.listener.admit(self)
        self._excess = admission == "excess"
        if admission == "abort":
            self._transport.abort()
            return
        self._end_timer = self._loop.call_later(self.config.handshake_timeout_s, self._cut, "no AMQP open in time")

    def data_received(self, data: bytes) -> None:
        try:
            self.engine.receive(data)
            self._handle_events()
        except Exception as error:  # noqa: BLE001 - a bug met by one peer's bytes must not reach another peer
            self.fail(error)

    def eof_received(self) -> bool:
        self.engine.receive_eof()
        self._handle_events()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._transport = None
        self.engine.receive_eof()
        self.engine.events()
        for timer in (self._tick_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._drop_endpoints()
        self._account_output(0)
        self.engine.free()
        self.listener.forget(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self.flush_soon()

    # ------------------------------------------------------------------------------------------------- events

    def _handle_events(self) -> None:
        for event in self.engine.events():
            if isinstance(event, Transfers):
                endpoint = event.link.context
                if endpoint is not None:
                    endpoint.on_transfers(event)
            else:
                self._handle_rare(event)
        self.flush_soon()

    def _handle_rare(self, event: Event) -> None:
        if isinstance(event, Credit | Settlements):
            endpoint = event.link.context
            if endpoint is None:
                return
            if isinstance(event, Credit):
                endpoint.on_credit(event)
            else:
                endpoint.on_settlements(event)
        elif isinstance(event, LinkRequested):
            if not self._closing:
                answer.on_request(self, event.link)
        elif isinstance(event, LinkDetached):
            how = End.CLOSED if event.closed else End.RELEASED
            self._forget_link(event.link, event.error if event.local else None, how)
        elif isinstance(event, ConnectionOpened):
            self._opened()
        elif isinstance(event, ConnectionClosed):
            if event.error is not None and not self._closing:
                self.listener.notes.write("connection from %s ended: %s", self._peer, event.error)
            self._closing = True
            self._drop_endpoints(End.RELEASED if event.error is None else End.LOST)
            self._end_in(LAST_WORDS_S)

    def _opened(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        if self._excess:
            limit = self.config.max_connections
            self.close(Error(RESOURCE_LIMIT_EXCEEDED, f"this listener serves {limit} connections: try another node"))
            return
        desired = self.engine.remote_desired_capabilities
        self.redirects = link_plan.may_redirect(self.config.redirect, desired)
        self.knows_streams = link_plan.follows_streams(desired) or protocol.LINK_REDIRECT_CAPABILITY in desired
        self.engine.watch_for_batches(not self.knows_streams)  # clients of Event Hubs announce neither
        self._tick()

    def _tick(self) -> None:
        """Heartbeats, and the end of a silent peer."""
        now_s = time.monotonic()
        deadline_s = self.engine.tick(now_s)
        self._tick_timer = None
        if deadline_s is not None:
            self._tick_timer = self._loop.call_later(max(0.0, deadline_s - now_s), self._tick)
        self._handle_events()

    # ------------------------------------------------------------------------------------------------- output

    def flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def pump_soon(self, endpoint: Endpoint) -> None:
        self._ready[endpoint] = None
        self.flush_soon()

    def _flush(self) -> None:
        """Once per turn of the loop: let the links that may send do so, then give the socket what it takes."""
        self._flush_due = False
        transport = self._transport
        if transport is None:
            return
        try:
            more = self._pump()
            while not self._write_paused:
                data = self.engine.data_to_send()
                if not data:
                    break
                transport.write(data)
        except Exception as error:  # noqa: BLE001 - see data_received
            self.fail(error)
            return
        self._account_output(self.engine.pending_output + transport.get_write_buffer_size())
        self._read_or_pause()
        if self.engine.output_done:
            transport.close()
            self._end_in(LAST_WORDS_S)
        elif more and not self._write_paused:
            self.flush_soon()

    def _pump(self) -> bool:
        """One share for each link that has something to send; the rest stays ready."""
        for endpoint in list(self._ready):
            if self.output_full():
                break
            if endpoint in self._ready:
                del self._ready[endpoint]  # before the pump: whatever wakes the endpoint meanwhile counts again
                if endpoint.pump():
                    self._ready[endpoint] = None  # behind the others, for the next turn
        return bool(self._ready)

    def output_full(self) -> bool:
        return self.engine.pending_output >= self.listener.output_share(self.config.pending_output_bytes)

    def _account_output(self, size: int) -> None:
        self.listener.output_bytes += size - self._output_bytes
        self._output_bytes = size

    # ------------------------------------------------------------------------------------------------- back-pressure

    def received(self, count: int, size: int) -> None:
        self.unanswered += count
        self._unanswered_bytes += size
        counters = self.listener.counters
        counters.events_in += count
        counters.bytes_in += size
        self.listener.unanswered_bytes += size
        self._read_or_pause()

    def answered(self, count: int, size: int, accepted: bool) -> None:
        self.unanswered -= count
        self._unanswered_bytes -= size
        self.listener.unanswered_bytes -= size
        if not accepted:
            self.listener.counters.events_turned_down += count
        if self._read_paused:
            self._read_or_pause()
        if self.unanswered == 0:
            self.listener.answered_all()
        self.flush_soon()

    def delivered(self, count: int, size: int) -> None:
        counters = self.listener.counters
        counters.events_out += count
        counters.bytes_out += size

    def _read_or_pause(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        limit = self.listener.input_share(self.config.uncommitted_bytes)
        full = self._unanswered_bytes > (limit // 2 if self._read_paused else limit)
        stuck = self.engine.pending_output > self.config.pending_output_limit_bytes and self._write_paused
        if (full or stuck) != self._read_paused:
            self._read_paused = not self._read_paused
            if self._read_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    # ------------------------------------------------------------------------------------------------- links

    def serve(self, link: Link, endpoint: Endpoint) -> None:
        link.context = endpoint
        self.endpoints[link] = endpoint
        counters = self.listener.counters
        counters.links_open += 1
        counters.links_total += 1
        try:
            endpoint.open()
        except KeyError:  # the log went away between the decision and the opening
            self._forget_link(link, None)
            link.close(errors.log_deleted(endpoint.plan.log))
        self.flush_soon()

    def _forget_link(self, link: Link, error: Error | None, how: End = End.LOST) -> None:
        if error is not None:
            self.listener.notes.write("link %s from %s was closed: %s", link.name, self._peer, error)
        endpoint = self.endpoints.pop(link, None)
        link.context = None
        if endpoint is not None:
            self.listener.counters.links_open -= 1
            self._ready.pop(endpoint, None)
            endpoint.ended = how
            endpoint.gone()

    def _drop_endpoints(self, how: End = End.LOST) -> None:
        for link in list(self.endpoints):
            self._forget_link(link, None, how)

    def on_change(self) -> None:
        for endpoint in list(self.endpoints.values()):
            endpoint.on_change()

    async def until(self, condition: Callable[[], bool], wait_s: float) -> bool:
        return await self.listener.until(condition, wait_s)

    def reply(self, endpoint: Endpoint, reply_to: str | None, message: bytes) -> None:
        replies = [other for other in self.endpoints.values() if isinstance(other, Reply)]
        if reply_to is not None:
            replies = [other for other in replies if other.matches(reply_to)]
        replies.sort(key=lambda other: other.link.session is not endpoint.link.session)
        if replies:
            replies[0].send(message)
        else:
            log.info("an answer to %s has nowhere to go: no receiver for %r", self._peer, reply_to)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        self.listener.errand(work)

    @property
    def container(self) -> str:
        return self.engine.remote_container or ""

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    # ------------------------------------------------------------------------------------------------- the end

    def leave(self, error: Error) -> None:
        """Close every link gracefully; the connection stays for their last answers."""
        for endpoint in list(self.endpoints.values()):
            endpoint.leave(error)

    def close(self, error: Error | None) -> None:
        """Say goodbye; the socket is cut if the peer does not answer."""
        if not self._closing:
            self._closing = True
            self.engine.close(error)
            self._end_in(LAST_WORDS_S)
            self.flush_soon()

    def fail(self, error: BaseException) -> None:
        if self._transport is None:
            return
        log.error("a bug closes the connection from %s", self._peer, exc_info=error)
        self.close(Error(INTERNAL_ERROR, "the node failed on this connection; connect again, report it if it stays"))

    def _end_in(self, wait_s: float) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._end_timer = self._loop.call_later(wait_s, self._cut, "the peer did not take its last words")

    def _cut(self, why: str) -> None:
        self._end_timer = None
        if self._transport is not None:
            self.listener.notes.write("connection from %s is cut: %s", self._peer, why)
            self._transport.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def forced(self) -> Error:
        return Error(CONNECTION_FORCED, f"node {self.broker.node_id} is stopping; connect to another node")
