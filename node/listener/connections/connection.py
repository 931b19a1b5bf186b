"""One AMQP connection: a socket, an engine, and the links on it.

Problem: ten thousand peers share one loop; some of them are broken, some hostile, some never read. Each must be able to
harm only itself, at a bounded price in memory, and the well-behaved must not pay for the checks.

Rules never broken:
 - whatever a peer sends ends in events of its own engine; a bug in serving one connection closes that connection;
 - input: a connection with too much received and not yet replicated, or with too much output that it does not take,
   is not read; that is the only back-pressure that a peer cannot ignore;
 - what it makes the node hold and how long it keeps the loop have bounds: `limits/`, which takes in its input
   (`socket_input.py`), has its events handled (`event_queue.py`) and gives out its output (`socket_output.py`).

Rejected: asyncio streams (a task and several awaits per chunk of input cost more than decoding it).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine
from itertools import islice
from typing import Any, Literal, Protocol, cast

from holdfast import protocol
from holdfast.amqp import (
    AuthenticationWork,
    ConnectionClosed,
    ConnectionOpened,
    Credit,
    Dropped,
    Engine,
    Event,
    Link,
    LinkDetached,
    LinkRequested,
    Settlements,
)
from holdfast.amqp.errors import CONNECTION_FORCED, INTERNAL_ERROR, RESOURCE_LIMIT_EXCEEDED, Error
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.attach import attach_handler, permissions, redirect
from node.listener.attach.attach_queue import AttachQueue
from node.listener.attach.cut_off_links import CutOffLinks
from node.listener.broker_interface import Broker
from node.listener.config import ListenerConfig
from node.listener.connections.event_queue import DROPPED_A_TURN, EventQueue
from node.listener.connections.socket_input import ConnectionInput
from node.listener.connections.socket_output import ConnectionOutput
from node.listener.connections.websocket import BEGIN as WEBSOCKET
from node.listener.connections.websocket import WebSocketPeer, websocket_below
from node.listener.counters import Counters
from node.listener.endpoint import Endpoint
from node.listener.limits.fair_scheduling import Turns
from node.listener.limits.memory_budgets import Accounts, Budget
from node.listener.log_limiter import LogLimiter
from node.listener.management import Replies, Reply, shown
from node.listener.node_list import told_nodes
from node.partition.consumer_groups.group_state import End
from node.security.authentication import Gate
from node.security.connection_identity import Visitor

log = logging.getLogger("holdfast.listener")

OPEN_NODES_BYTES = 192
"""Bytes of other nodes' addresses in an open, which has at most 512 in all: the peer's limit is not known yet."""

LAST_WORDS_S = 2.0
"""Time for a peer to read and answer a close."""


class ConnectionOwner(Protocol):
    """The listener, as its connections see it; it keeps what all of them share."""

    broker: Broker
    config: ListenerConfig
    counters: Counters
    notes: LogLimiter
    gate: Gate
    accounts: Accounts
    turns: Turns
    unanswered_bytes: int
    output_bytes: int

    def admit(self, connection: Connection) -> Literal["welcome", "excess", "abort"]: ...
    def opened(self, connection: Connection) -> None: ...
    def forget(self, connection: Connection) -> None: ...
    def errand(self, work: Coroutine[Any, Any, None]) -> None: ...
    def input_share(self, usual_bytes: int) -> int: ...
    def output_share(self, usual_bytes: int) -> int: ...
    def answered_all(self) -> None: ...
    async def until(self, condition: Callable[[], bool], wait_s: float) -> bool: ...


class Connection(asyncio.Protocol):
    """Implements `EndpointHost`, `attach_handler.Attacher`, `socket_input.InputOwner`, `event_queue.Handler` and
    `socket_output.OutputOwner`."""

    data_received: Callable[..., None]  # that of the input, `ConnectionInput.take`

    def __init__(
        self, listener: ConnectionOwner, deadline_s: float | None = None, client: tuple[str, int] | None = None
    ) -> None:
        """`deadline_s`: in the loop's time, for the AMQP open; None: counted from the connection. `client`: the peer's
        address and port, as a proxy says them; None: those of the socket."""
        config = listener.config
        self._deadline_s = deadline_s
        self._client = client
        self.listener = listener
        self.broker = listener.broker
        self.config = config
        self.visitor = Visitor(listener.gate)
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._token_timer: asyncio.TimerHandle | None = None  # until the next of its tokens ends
        self.redirects = False
        self.knows_streams = False
        self.speaks_event_hubs = False
        self.transactions: dict[bytes, ClientTransaction] = {}
        self.declares_transactions = False
        self.declares_under_way = 0
        self.attaches = AttachQueue(listener.turns, self._take_on)
        self.endpoints: dict[Link, Endpoint] = {}
        self._replies = Replies()  # those of the endpoints that carry answers
        self.stranded = CutOffLinks(self)
        self.answer_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._peer = self.address = "?"  # with its port, and without
        self._excess = False  # over the limit of connections: will be told so, and closed
        self._events = EventQueue(self, listener.turns)
        self._closing = False  # our close has been sent, or the peer's has arrived
        self._tasks: set[asyncio.Task[None]] = set()
        self._tick_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None  # when the socket is cut, come what may
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.engine = Engine(
            "server",
            container_id=self.broker.container_id,
            idle_timeout_s=config.idle_timeout_s,
            offered_capabilities=(protocol.EVENT_STREAMS_CAPABILITY, protocol.ANONYMOUS_RELAY_CAPABILITY),
            properties={"product": "Holdfast", "node": self.broker.node_id, protocol.OPEN_NODES: self._told_nodes()},
            max_message_size=config.max_message_size,
            max_links=config.max_links_per_connection,
            mechanisms=self.visitor.mechanisms,
        )
        self.intake = ConnectionInput(self, listener, Budget(listener.accounts, config.held_bytes))
        self.outlet = ConnectionOutput(self, listener)
        self.data_received = self.intake.take

    def _told_nodes(self) -> list[list[Any]]:
        return told_nodes(self.broker, OPEN_NODES_BYTES)

    # ------------------------------------------------------------------------------------------------- socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.address = str((self._client or transport.get_extra_info("peername") or ("?",))[0])
        self.intake.open(self._transport)
        self.outlet.open(self._transport)
        self.visitor.arrived(transport, self._client)
        self._peer = self.visitor.peer
        admission = self.listener.admit(self)
        self._excess = admission == "excess"
        if admission == "abort":
            self._transport.abort()
            return
        deadline_s = self._deadline_s or self._loop.time() + self.config.handshake_timeout_s
        self._end_timer = self._loop.call_at(deadline_s, self.cut, "no AMQP open in time")

    def began(self, first: bytes) -> bool:
        transport = self._transport
        if transport is None or isinstance(transport, WebSocketPeer) or not first.startswith(WEBSOCKET):
            return True
        self._transport = peer = websocket_below(self, transport, self.listener.turns, self.note)
        self.intake.open(peer)
        self.outlet.open(peer)
        peer.data_received(first)
        return False

    def eof_received(self) -> bool:
        self.engine.receive_eof()
        self.handle_events()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._transport = None
        self.engine.receive_eof()
        self.engine.events()
        for timer in (self._tick_timer, self._end_timer, self._expiry_timer, self._token_timer):
            if timer is not None:
                timer.cancel()
        self.stranded.end()
        for task in self._tasks:
            task.cancel()
        self._drop_endpoints(self._end_of_put_off())
        self.outlet.end()
        self.intake.end()
        self.listener.turns.wait_to_end(self._free_some)
        self.listener.forget(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def _free_some(self) -> bool:
        """Release some of what the connection leaves behind. Returns whether none is left."""
        released = self.engine.free_some(DROPPED_A_TURN)
        return self.attaches.forget_some(DROPPED_A_TURN) and released

    def pause_writing(self) -> None:
        self.outlet.pause()

    def resume_writing(self) -> None:
        self.outlet.resume()

    # ------------------------------------------------------------------------------------------------- events

    def handle_events(self) -> None:
        """Handle the events that the engine has."""
        self._events.take(self.engine.events())

    def handled(self) -> None:
        self.flush_soon()

    def caught_up(self) -> None:
        self.intake.go_on()

    def handle(self, event: Event) -> None:
        if isinstance(event, Credit | Settlements):
            endpoint = event.link.context
            if endpoint is None:
                return
            if isinstance(event, Credit):
                endpoint.on_credit(event)
            else:
                endpoint.on_settlements(event)
        elif isinstance(event, Dropped):
            for name in event.transactions:
                if (own := self.transactions.get(name)) is not None:
                    own.refuse("a message under it was too large, or came on a link that had been closed")
        elif isinstance(event, LinkRequested):
            if not self._closing:
                attach_handler.on_request(self, event.link)
        elif isinstance(event, LinkDetached):
            how = End.CLOSED if event.closed else End.RELEASED
            self._forget_link(event.link, event.error if event.local else None, how)
        elif isinstance(event, ConnectionOpened):
            self._opened()
        elif isinstance(event, AuthenticationWork):
            self.spawn(self._authenticate(event.work))
        elif isinstance(event, ConnectionClosed):
            if event.error is not None and not self._closing:
                self.listener.notes.write("connection from %s ended: %s", self._peer, event.error)
            self._closing = True
            self._drop_endpoints(End.RELEASED if event.error is None else End.LOST)
            self._end_in(LAST_WORDS_S)

    async def _authenticate(self, work: Callable[[], object]) -> None:
        self.engine.authenticated(await self.listener.gate.run(work))
        self.handle_events()

    def _opened(self) -> None:
        if isinstance(self._transport, WebSocketPeer):
            self._transport.opened()
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        if self._excess:
            limit = self.config.max_connections
            self.close(Error(RESOURCE_LIMIT_EXCEEDED, f"this listener serves {limit} connections: try another node"))
            return
        left_s = self.visitor.known(self.engine.identity, self.container)
        if not self.visitor.must_show_token:  # until then it is a stranger
            self.listener.opened(self)
        who = self.visitor.principal
        self.intake.budget.belongs_to(who.name, is_many=who.is_anonymous)
        if left_s is not None:
            why = errors.no_token(left_s) if self.visitor.must_show_token else errors.credential_ended()
            self._expiry_timer = self._loop.call_later(left_s, self.close, why)
        desired = self.engine.remote_desired_capabilities
        self.redirects = redirect.may_redirect(self.config.redirect, desired)
        self.knows_streams = redirect.follows_streams(desired) or protocol.LINK_REDIRECT_CAPABILITY in desired
        if not self.knows_streams and self.broker.serves_nothing:
            self.cut(errors.why_cut_off(self.broker.out_of_touch))
            return
        self.engine.watch_for_batches(not self.knows_streams)  # clients of Event Hubs announce neither
        self._tick()

    def _tick(self) -> None:
        """Heartbeats, and the end of a silent peer."""
        now_s = time.monotonic()
        deadline_s = self.engine.tick(now_s)
        self._tick_timer = None
        if deadline_s is not None:
            self._tick_timer = self._loop.call_later(max(0.0, deadline_s - now_s), self._tick)
        self.handle_events()

    # ------------------------------------------------------------------------------------------------- output

    def flush_soon(self) -> None:
        self.outlet.flush_soon()

    def pump_soon(self, endpoint: Endpoint) -> None:
        self.outlet.pump_soon(endpoint)

    def output_full(self) -> bool:
        return self.outlet.full

    def said_all(self) -> None:
        """Close the socket: the last frames have left the engine."""
        if self._transport is not None:
            self._transport.close()
        self._end_in(LAST_WORDS_S)

    def room_to_keep(self) -> int:
        return self.intake.room_for_deliveries()

    def note(self, text: str, *args: object) -> None:
        self.listener.notes.write(text, *args)

    # ------------------------------------------------------------------------------------------------- input

    @property
    def heard_bytes(self) -> int:
        return self.intake.heard_bytes

    def received(self, count: int, size: int, events: int) -> None:
        self.intake.received(count, size)
        counters = self.listener.counters
        counters.events_in += events
        counters.bytes_in += size

    def answered(self, count: int, size: int, accepted: bool) -> None:
        self.intake.answered(count, size)
        if not accepted:
            self.listener.counters.events_turned_down += count
        if self.intake.unanswered == 0:
            self.listener.answered_all()
        self.flush_soon()

    @property
    def is_held_back(self) -> bool:
        return self.intake.read_paused

    def delivered(self, count: int, size: int) -> None:
        counters = self.listener.counters
        counters.events_out += count
        counters.bytes_out += size

    @property
    def is_blocked(self) -> bool:
        return bool(self._events) or self.attaches.is_full

    def _take_on(self) -> None:
        self.intake.go_on()

    # ------------------------------------------------------------------------------------------------- links

    def serve(self, link: Link, endpoint: Endpoint) -> None:
        link.context = endpoint
        self.endpoints[link] = endpoint
        if isinstance(endpoint, Reply):
            self._replies.add(endpoint)
        counters = self.listener.counters
        counters.links_open += 1
        counters.links_total += 1
        try:
            endpoint.open()
            if not link.alive:  # what the peer asked for cannot be said back to it
                self._forget_link(link, None)
                return
            self._judge(endpoint)  # rights may have been taken while the attach waited
            self.stranded.look()
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
            self.outlet.forget(endpoint)
            if isinstance(endpoint, Reply):
                self._replies.remove(endpoint)
            endpoint.ended = how
            endpoint.gone()

    def _end_of_put_off(self) -> End:
        """Note detaches and a close that wait in the event queue of a lost connection. Returns how its other links
        ended."""
        how = End.LOST
        for event in self._events.end():
            if isinstance(event, LinkDetached):
                if (endpoint := self.endpoints.get(event.link)) is not None:
                    endpoint.ended = End.CLOSED if event.closed else End.RELEASED
            elif isinstance(event, ConnectionClosed) and event.error is None:
                how = End.RELEASED
        return how

    def _drop_endpoints(self, how: End = End.LOST) -> None:
        """Drop all endpoints, thousands in several turns of the loop. Links that are gone can be called safely."""
        for link, endpoint in list(islice(self.endpoints.items(), DROPPED_A_TURN)):
            self._forget_link(link, None, how if endpoint.ended is End.LOST else endpoint.ended)
        if self.endpoints:
            self._loop.call_soon(self._drop_endpoints, how)

    def _judge(self, endpoint: Endpoint) -> None:
        for need in permissions.needs(endpoint.plan):
            if not self.visitor.may(need):
                endpoint.leave(self.visitor.refusal(need), over=True)
                return

    def on_change(self) -> None:
        if self.visitor.rights_changed():
            for endpoint in list(self.endpoints.values()):
                self._judge(endpoint)
        for endpoint in list(self.endpoints.values()):
            endpoint.on_change()
        for transaction in list(self.transactions.values()):
            transaction.on_change()
        self.stranded.look()

    @property
    def served(self) -> Collection[Endpoint]:
        return self.endpoints.values()

    async def until(self, condition: Callable[[], bool], wait_s: float) -> bool:
        return await self.listener.until(condition, wait_s)

    def reply(self, endpoint: Endpoint, reply_to: str | None, message: bytes) -> None:
        session = endpoint.link.session
        found = self._replies.find(session, reply_to or endpoint.plan.address) or self._replies.find(session, reply_to)
        if found is not None:
            found.send(message)
        else:
            text = "an answer to %s has nowhere to go: no receiver for %s"
            self.listener.notes.write(text, self._peer, shown(reply_to))

    async def put_token(self, kind: str, audience: str, token: str) -> str | None:
        who = self.visitor.principal
        why = await self.visitor.put_token(kind, audience, token)
        if why is None:
            self.listener.opened(self)
            if self._expiry_timer is not None and who.is_anonymous:
                self._expiry_timer.cancel()
            self._await_token_end()
        return why

    def _await_token_end(self) -> None:
        if self._token_timer is not None:
            self._token_timer.cancel()
        left_s = self.visitor.next_end_s()
        self._token_timer = None if left_s is None else self._loop.call_later(left_s, self._token_ended)

    def _token_ended(self) -> None:
        """Close the links that a token has allowed until now, unless another one does."""
        self._token_timer = None
        for endpoint in list(self.endpoints.values()):
            self._judge(endpoint)
        self._await_token_end()
        self.flush_soon()

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
        """Close every link gracefully; the connection stays for their last answers. Links of Event Hubs end with it:
        their producers would report a detach to the application."""
        if self.speaks_event_hubs:
            return
        for endpoint in list(self.endpoints.values()):
            endpoint.leave(error)

    def close(self, error: Error | None) -> None:
        """Send a close; the socket is cut if the peer does not answer."""
        if not self._closing:
            self._closing = True
            self.engine.close(error)
            self._end_in(LAST_WORDS_S)
            self.flush_soon()

    def send_away(self, why: Error) -> None:
        """Close the socket, without a close frame to a peer that may not see the socket end after one. Nothing is taken
        in or answered any more."""
        if not self._closing:
            self._closing = True
            self.note("connection from %s is ended: %s", self._peer, why.description)
            if self.knows_streams:
                self.engine.close(why)
            self.outlet.shut()
            self._end_in(LAST_WORDS_S)
            self._drop_endpoints()

    def fail(self, error: BaseException) -> None:
        if self._transport is None:
            return
        log.error("a bug closes the connection from %s", self._peer, exc_info=error)
        self.close(Error(INTERNAL_ERROR, "the node failed on this connection; connect again, report it if it stays"))

    def _end_in(self, wait_s: float) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._end_timer = self._loop.call_later(wait_s, self.cut, "the peer did not take its last words")

    def cut(self, why: str) -> None:
        self._end_timer = None
        if self._transport is not None:
            self.listener.notes.write("connection from %s is cut: %s", self._peer, why)
            self._transport.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def forced(self) -> Error:
        """Return the error with which a node that stops closes its connections. It names the other nodes once more:
        some may have come since the open."""
        why = f"node {self.broker.node_id} is stopping; connect to another node"
        return Error(CONNECTION_FORCED, why, {protocol.OPEN_NODES: self._told_nodes()})
