"""Producers that keep order and lose nothing, on stock proton alone, so that they are independent of our client.

The method is the one any client can use: one link bound to the partition, many messages in flight; at the first answer
that is not "accepted", or when the link or the connection ends, stop, attach again (where a redirect says, or at the
next server), and resend everything that was not accepted, in order. It relies on the node's promise that after such an
answer nothing later on that link is accepted.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from proton import Delivery, Message, symbol
from proton.reactor import Container

from tests.integration.workloads.plain import (
    STREAMS,
    Bound,
    LaterAnswer,
    Threaded,
)
from tests.integration.workloads.producing import PER_SECOND, Producing

PACE_S = 0.01
RETRY_S = 0.05
ANSWERS_WITHIN_S = 5.0
"""A link on which answers are outstanding so long is given up: the other end may be a stopped process."""


class OrderedProducer(Threaded, Producing):
    """Sends `producer:number` events at a pace until `finish`, and keeps the story in `sent`."""

    def __init__(
        self,
        servers: list[str],
        log: str,
        partition: str,
        name: str,
        *,
        per_second: int = PER_SECOND,
        window: int = 500,
        padding: int = 0,
    ) -> None:
        Producing.__init__(self, name)
        Threaded.__init__(self, auto_settle=True)
        self.reattached = 0
        self.turned_down: dict[str, int] = {}
        self._servers, self._log, self._partition = deque(servers), log, partition
        self._per_tick = max(1, int(per_second * PACE_S))
        self._window, self._padding = window, padding
        self._unacknowledged: dict[int, float] = {}  # in order; when it was sent last (0: not since the last attach)
        self._numbers: dict[str, int] = {}  # delivery tag -> number, of this link
        self._to_resend: deque[int] = deque()
        self._link: Any = None
        self._connection: Any = None
        self._waiting_s = 0.0  # since when an answer is due
        self._retrying = False
        self._stopped = False

    def let_go(self) -> None:
        self._stopped = True
        super().let_go()

    # ------------------------------------------------------------------------------------------- the link

    def on_start(self, event: Any) -> None:
        self._attach(None)
        event.container.schedule(PACE_S, self)

    def _attach(self, server: str | None) -> None:
        if server is None:
            self._servers.rotate(-1)
            server = self._servers[0]
        container: Container = self.container
        self._connection = container.connect(
            server, reconnect=False, desired_capabilities=[symbol(STREAMS)], heartbeat=2, handler=None
        )
        self._link = container.create_sender(self._connection, self._log, options=[Bound(self._partition)])
        self._numbers.clear()
        self._to_resend = deque(self._unacknowledged)
        self._waiting_s = time.monotonic()
        self._retrying = False

    def _again(self, link_or_connection: Any, server: str | None = None) -> None:
        """This link is over: attach anew, soon. What is unanswered on it is resent."""
        if self._retrying or self._stopped or link_or_connection not in (self._link, self._connection):
            return
        self._retrying = True
        self.reattached += 1
        connection, self._link, self._connection = self._connection, None, None
        connection.close()
        self.container.schedule(0.0 if server else RETRY_S, LaterAnswer(lambda: self._attach(server)))

    def on_link_closed(self, event: Any) -> None:
        self._again(event.link)

    def on_link_error(self, event: Any) -> None:
        condition = event.link.remote_condition
        if condition.name == "amqp:link:redirect":
            info = {str(key): value for key, value in condition.info.items()}
            self._again(event.link, f"{info['network-host']}:{int(info['port'])}")
        else:
            self.turned_down[condition.name] = self.turned_down.get(condition.name, 0) + 1
            self._again(event.link)

    def on_connection_error(self, event: Any) -> None:
        self._again(event.connection)

    def on_connection_closed(self, event: Any) -> None:
        self._again(event.connection)

    def on_transport_error(self, event: Any) -> None:
        self._again(event.transport.connection or event.connection)

    def on_disconnected(self, event: Any) -> None:
        self._again(event.connection)

    # ------------------------------------------------------------------------------------------- messages

    def on_timer_task(self, event: Any) -> None:
        if self._finishing.is_set() and not self._unacknowledged:
            self._stopped = True
            if self._connection is not None:
                self._connection.close()
            return
        event.container.schedule(PACE_S, self)
        link = self._link
        if link is None:
            return
        now_s = time.monotonic()
        if now_s - self._waiting_s > ANSWERS_WITHIN_S:
            self._again(link)
            return
        if not self._unacknowledged:
            self._waiting_s = now_s
        for _ in range(self._per_tick * 4):
            if link.credit <= 0 or not self._to_resend:
                break
            self._send(self._to_resend.popleft(), now_s)
        if self._to_resend or self._finishing.is_set():
            return
        for _ in range(self._per_tick):
            if link.credit <= 0 or len(self._unacknowledged) >= self._window:
                break
            self.sent.numbers += 1
            self._send(self.sent.numbers - 1, now_s)

    def _send(self, number: int, now_s: float) -> None:
        if number in self._unacknowledged:
            self.sent.resent.add(number)
        self._unacknowledged[number] = now_s
        body = self.sent.body(number)
        message = Message(body=body)
        if self._padding:
            message.properties = {"padding": "x" * self._padding}
        delivery = self._link.send(message)
        self._numbers[delivery.tag] = number

    def on_settled(self, event: Any) -> None:
        delivery: Delivery = event.delivery
        if delivery.link != self._link:
            return
        number = self._numbers.pop(delivery.tag, None)
        if number is None:
            return
        if delivery.remote_state == Delivery.ACCEPTED:
            self._waiting_s = time.monotonic()
            self.acks.append((self._waiting_s, self._unacknowledged.pop(number)))
            self.sent.acknowledged.add(number)
            return
        name = str(delivery.remote_state)
        if delivery.remote_state == Delivery.REJECTED and delivery.remote.condition is not None:
            name = delivery.remote.condition.name
        self.turned_down[name] = self.turned_down.get(name, 0) + 1
        self._again(self._link)
