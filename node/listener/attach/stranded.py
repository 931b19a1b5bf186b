"""What a node that is cut off tells a connection: that it should go elsewhere.

Problem: a leader that is cut off from the other nodes is soon not the leader any more, and cannot know. Whoever waits
for it (a producer, a receiver, a control link, an attach) would wait until the cut is over, while the others serve.

Rules never broken:
 - what waits a moment for an election goes on waiting: only a node that is cut off sends anybody away, only who needs
   what is out of its reach, and nobody who came less than `STAYS_S` ago;
 - what is not answered by then never is on that connection: whether it is stored, nobody knows here. To the peer it is
   as if the node had died;
 - the connection as a whole ends, without a goodbye to a peer that does not know event streams; where some of its links
   work, the others end one by one.

A client that does not know event streams is not let in at all by a node that can serve nothing: to many of them a
server that answers their open is a good one, however soon it leaves them, and they would come back for ever.

Rejected: `amqp:connection:forced` for all. Some stock clients (proton's, in Python) read no further behind a close, do
not see the socket end, and wait. A connection that breaks turns all of them to the next server of their list.
Rejected: answering `released` to what certainly was not appended, before the end. To some stock clients that is an
error of the application, while they send again by themselves what was not answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterator
from typing import Protocol

from holdfast.amqp.errors import Error
from node.listener import errors
from node.listener.attach.link_plan import Kind, Plan
from node.listener.attach.stranded_plan import is_stranded
from node.listener.broker import Broker
from node.listener.endpoint import Endpoint

STAYS_S = 1.0
"""So long a connection is kept that came to a node that was cut off, and a link on one that stays: where no other node
is any better either, a client comes back once a second, and not as fast as it can."""

NEUTRAL = (Kind.MANAGEMENT, Kind.REPLY)
"""Links that need nobody: a node can be looked at when it is cut off."""


class StrandedHost(Protocol):
    """The connection."""

    broker: Broker

    @property
    def served(self) -> Collection[Endpoint]: ...
    def send_away(self, why: Error) -> None:
        """The connection ends now, and what is unanswered stays so. `why` is for the log, and for a peer that bears
        it."""
        ...


class Stranded:
    """Of one connection: who waits on it in vain."""

    def __init__(self, host: StrandedHost) -> None:
        self._host: StrandedHost | None = host
        self._since_s = time.monotonic()
        self._attaching: dict[object, Plan] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def attaching(self, plan: Plan) -> Iterator[None]:
        """For as long as the answer to an attach takes."""
        key = object()
        self._attaching[key] = plan
        self.look()
        try:
            yield
        finally:
            del self._attaching[key]

    def look(self) -> None:
        """A link or an attach came, or the cluster has changed."""
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
        """Others on the connection are served; attaches are refused in their own time. Returns when the next link has
        stayed for long enough."""
        over_s = time.monotonic() - STAYS_S
        for endpoint in waiting:
            if endpoint.since_s <= over_s:
                endpoint.leave(errors.out_of_reach(endpoint.plan.address, silent))
        return min((one.since_s - over_s for one in waiting if one.since_s > over_s), default=None)

    def end(self) -> None:
        """The connection is gone, and is held no longer from here."""
        self._wait_no_more()
        self._host = None

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
