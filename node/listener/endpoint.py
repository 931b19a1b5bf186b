"""Base of all served links: it belongs to a connection, and leaves in good order.

Problem: a link ends in many ways (the peer detaches, the socket dies, the leader moves, the log is deleted, the
node stops), and each kind of link has its own loose ends to tie up first. Each way must end in one defined answer.
Rule never broken: a link that the node closes is closed after every delivery on it has been answered, and only
once.
Rejected: closing at once and letting the session sort it out. The peer would see the outcome of its last thousand
messages as unknown, when it was known here a millisecond later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from holdfast import protocol
from holdfast.amqp import Credit, Link, Settlements, Transfers
from holdfast.amqp.errors import Error
from node.listener import errors
from node.listener.attach.attach_queue import AttachQueue
from node.listener.attach.link_plan import LinkPlan
from node.listener.attach.reachability import is_stranded
from node.listener.attach.redirect import redirect_error
from node.listener.broker_interface import Broker
from node.listener.config import ListenerConfig
from node.listener.log_identity import OneLog, told_log
from node.partition.consumer_groups.group_state import End
from node.security.connection_identity import Visitor


class EndpointHost(Protocol):
    """The connection, as its links see it."""

    broker: Broker
    config: ListenerConfig
    visitor: Visitor  # the peer, and what it may do
    transactions: dict[bytes, Any]  # by id: those that are open on the connection
    declares_transactions: bool  # the peer has attached to the coordinator
    declares_under_way: int  # of all its control links: each may become one more of its transactions
    redirects: bool  # partition-bound links of this peer are redirected to the leader
    knows_streams: bool  # the peer attaches again when a link is closed to move it
    speaks_event_hubs: bool  # links of this peer are of the dialect of Event Hubs
    attaches: AttachQueue  # whose answer takes a while
    answer_bytes: int  # that wait for credit on its reply links

    @property
    def heard_bytes(self) -> int:
        """Bytes that ever came from the peer."""
        ...

    @property
    def is_held_back(self) -> bool:
        """True while the connection does not read from the peer."""
        ...

    @property
    def container(self) -> str:
        """The peer's name for itself; "": it has none."""
        ...

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out work like `spawn`, but even when the connection ends."""
        ...

    def flush_soon(self) -> None:
        """Send output that was produced, in this turn of the loop."""
        ...

    def pump_soon(self, endpoint: Endpoint) -> None:
        """The endpoint has something to send: call its `pump` in this turn."""
        ...

    def received(self, count: int, size: int, events: int) -> None:
        """Count deliveries that are to be answered, and the events in them."""
        ...

    def answered(self, count: int, size: int, accepted: bool) -> None: ...
    def delivered(self, count: int, size: int) -> None: ...
    def output_full(self) -> bool: ...
    def room_to_keep(self) -> int:
        """Bytes that the connection may still make the node hold."""
        ...

    def note(self, text: str, *args: object) -> None:
        """Log a line about what the peer did, unless there are too many."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...
    def send_away(self, why: Error) -> None:
        """End the connection now, and leave unanswered deliveries unanswered."""
        ...

    async def put_token(self, kind: str, audience: str, token: str) -> str | None:
        """Take a token that the peer shows for an audience. Returns why it is not believed; None: it is."""
        ...

    def reply(self, endpoint: Endpoint, reply_to: str | None, message: bytes) -> None: ...
    def fail(self, error: BaseException) -> None:
        """Close this connection because of a bug; all others live."""
        ...


class Endpoint:
    """One link, from its acceptance to its end."""

    def __init__(self, host: EndpointHost, link: Link, plan: LinkPlan) -> None:
        self.host = host
        self.link = link
        self.plan = plan
        self.since_s = time.monotonic()
        self.ended = End.LOST  # how the peer ended the link, once it is gone
        self._farewell: Error | None = None  # what the link will be closed with; None: in peace
        self._going = False  # to be closed as soon as nothing is unanswered
        self._leaving = False
        self._moving: asyncio.TimerHandle | None = None  # the leader is elsewhere; runs until it must be known

    # ------------------------------------------------------------------------- for the kinds of links to override

    def open(self) -> None:
        """Accepts the link."""
        raise NotImplementedError

    def which_log(self) -> dict[str, object]:
        """The property that tells a peer that asks for it which making of the log it is attached to."""
        if protocol.LINK_LOG not in self.link.remote_properties or not isinstance(self.plan.broker, OneLog):
            return {}
        told = told_log(self.plan.broker, self.plan.broker.identity)
        return {} if told is None else {protocol.LINK_LOG: told}

    def is_stranded(self) -> bool:
        """True if the link needs something that this node cannot reach, and that another node may serve."""
        return is_stranded(self.plan)

    def on_transfers(self, event: Transfers) -> None:
        raise NotImplementedError

    def on_credit(self, event: Credit) -> None:
        """The peer granted credit, or asks to drain."""

    def on_settlements(self, event: Settlements) -> None:
        """The peer settled deliveries."""

    def pump(self) -> bool:
        """Send what may be sent now. True: there is more, and only this turn's share was used up."""
        return False

    def on_change(self) -> None:
        """Logs, partitions, leaders or addresses may have changed."""
        if self._moving is not None:
            self._try_to_move()

    def quiesce(self) -> None:
        """Take in nothing more; turn away what waits."""

    @property
    def idle(self) -> bool:
        """True while nothing is unanswered."""
        return True

    def gone(self) -> None:
        """Release everything of a link that is gone. Late answers find a dead link, which does no harm."""
        self._leaving = True
        if self._moving is not None:
            self._moving.cancel()
            self._moving = None

    # ------------------------------------------------------------------------------------------------------ leaving

    @property
    def leaving(self) -> bool:
        return self._leaving

    def leave(self, error: Error | None, *, over: bool = False) -> None:
        """Close the link with this error (None: gracefully) as soon as nothing is unanswered. The first reason
        counts, unless one that comes later matters more (`over`)."""
        if not self._going or over:
            self._going = True
            self._farewell = error
        if not self._leaving:
            self._leaving = True
            self.quiesce()
        self.maybe_close()

    def belongs_elsewhere(self) -> bool:
        """True if the peer follows redirects, and there is one to give it."""
        broker, log, partition = self.plan.broker, self.plan.log, self.plan.partition
        if partition is None or self.plan.assigned or not self.host.redirects:
            return False
        leader = broker.leader(log, partition)
        return leader not in (None, broker.node_id) and redirect_error(broker, leader, log) is not None

    def move(self) -> None:
        """Redirect the peer to the partition's new leader as soon as that is known."""
        if self._leaving:
            return
        self._leaving = True
        wait_s = self.host.config.leader_wait_s
        loop = asyncio.get_running_loop()
        self._moving = loop.call_later(wait_s, self._nobody_leads, wait_s)
        self.quiesce()
        self._try_to_move()

    def _try_to_move(self) -> None:
        broker, log, partition = self.plan.broker, self.plan.log, self.plan.partition
        assert partition is not None
        if broker.describe(log) is None:
            self._moved(errors.log_deleted(log))
            return
        leader = broker.leader(log, partition)
        if broker.is_local(log, partition):
            error = errors.moved(log, partition)  # and back again: attach here again
        elif leader is None or leader == broker.node_id:
            return
        else:
            error = redirect_error(broker, leader, self.plan.address) or errors.moved(log, partition)
        self._moved(error)

    def _nobody_leads(self, waited_s: float) -> None:
        assert self.plan.partition is not None
        self._moved(errors.no_leader(self.plan.log, self.plan.partition, waited_s))

    def _moved(self, error: Error) -> None:
        if self._moving is not None:
            self._moving.cancel()
            self._moving = None
        self.leave(error)

    def maybe_close(self) -> None:
        """Close a leaving link once it is idle. Called after every answer."""
        if self._going and self.idle and self.link.alive:
            self.link.close(self._farewell)
            self.host.flush_soon()
