"""Ends the links of a connection that wait for something which a cut-off node cannot reach.

Problem: a leader that is cut off from the other nodes is soon not the leader any more, and cannot know. A producer, a
receiver, a control link or an attach that waits for it would wait until the cut is over, while the other nodes serve.

Rules never broken:
 - links that wait a moment for an election go on waiting: only a node that is cut off sends peers away, only those that
   need what is out of its reach, and none that came less than `STAYS_S` ago;
 - a delivery that is unanswered by then is never answered on that connection: this node cannot know whether it is
   stored. To the peer it is as if the node had died;
 - the connection as a whole ends, without a close frame to a peer that does not know event streams; where some of its
   links work, the others end one by one.

A node that can serve nothing does not let a client in that does not know event streams: many of them take a server that
answers their open for a good one, however soon it leaves them, and would come back for ever.

Rejected: `amqp:connection:forced` for all. Some stock clients (proton's, in Python) read no further after a close, do
not see the socket end, and wait. A connection that breaks turns all of them to the next server of their list.
Rejected: answering `released` to deliveries that certainly were not appended, before the end. Some stock clients report
that as an error to the application, while they resend unanswered deliveries by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterator
from typing import Protocol

from holdfast.amqp.errors import Error
from node.listener import errors
from node.listener.attach.link_plan import Kind, LinkPlan
from node.listener.attach.reachability import is_stranded
from node.listener.broker_interface import Broker
from node.listener.endpoint import Endpoint

STAYS_S = 1.0
"""Minimum life of a connection to a node that is cut off, and of a link on one that stays. Where no other node is any
better either, a client comes back once a second, and not as fast as it can."""

NEUTRAL = (Kind.MANAGEMENT, Kind.REPLY, Kind.TOKENS, Kind.NODES)
"""Kinds of links that need no other node: a node can be looked at when it is cut off."""


class CutOffHost(Protocol):
    """The connection."""

    broker: Broker

    @property
    def served(self) -> Collection[Endpoint]: ...
    def send_away(self, why: Error) -> None:
        """End the connection now, and leave unanswered deliveries unanswered. `why` is for the log, and for a peer that
        can take it."""
        ...


class CutOffLinks:
    """The links and attaches of one connection that wait in vain on a cut-off node."""

    def __init__(self, host: CutOffHost) -> None:
        self._host: CutOffHost | None = host
        self._since_s = time.monotonic()
        self._attaching: dict[object, LinkPlan] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def attaching(self, plan: LinkPlan) -> Iterator[None]:
        """Count an attach among those that wait, until it is answered."""
        key = object()
        self._attaching[key] = plan
        self.look()
        try:
            yield
        finally:
            del self._attaching[key]

    def look(self) -> None:
        """Look at all links again: a link or an attach came, or the cluster has changed."""
        self._wait_no_more()
        host = self._host
        if host is None or not host.broker.is_cut_off:
            return
        needy = [endpoint for endpoint in host.served if endpoint.plan.kind not in NEUTRAL]
        waiting = [endpoint for endpoint in needy if endpoint.is_stranded()]
        attaching = sum(map(is_stranded, self._attaching.values()))
        if not waiting and not attaching:
            return
        left_s: float | None
        if len(waiting) < len(needy) or attaching < len(self._attaching):
            left_s = self._end_some(waiting, host.broker.out_of_touch)
        else:
            left_s = self._since_s + STAYS_S - time.monotonic()
            if left_s <= 0:
                host.send_away(errors.cut_off(host.broker.out_of_touch))
                return
        if left_s is not None:
            self._timer = asyncio.get_running_loop().call_later(left_s, self.look)

    def _end_some(self, waiting: Collection[Endpoint], silent: Collection[int]) -> float | None:
        """End the links that have waited for long enough, on a connection that is otherwise served; attaches time out
        by themselves. Returns the seconds until the next link is due."""
        over_s = time.monotonic() - STAYS_S
        for endpoint in waiting:
            if endpoint.since_s <= over_s:
                endpoint.leave(errors.out_of_reach(endpoint.plan.address, silent))
        return min((one.since_s - over_s for one in waiting if one.since_s > over_s), default=None)

    def end(self) -> None:
        """Drop the reference to a connection that is gone."""
        self._wait_no_more()
        self._host = None

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
