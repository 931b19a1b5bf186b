"""The output of one connection: what its links send, and when the socket gets it.

The rules: output is written once per turn of the loop, however many events produced it, and no more events are sent
than the socket takes; a link that has more waits after the connection's others, and a connection after the node's
others. Answers to the peer (settlements, begins, attaches) are encoded even while the socket takes nothing: as bytes
they are counted and small, in proton they are neither. Beyond a limit the peer is not read any more
(`socket_input.py`).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from holdfast.amqp import Engine
from node.listener.config import ListenerConfig
from node.listener.connections.socket_input import ConnectionInput
from node.listener.endpoint import Endpoint
from node.listener.limits.fair_scheduling import Turns, clock_s

WRITE_HIGH_BYTES = 256 * 1024
"""Bytes in the transport above which it says stop: the kernel's own buffer is larger, so the socket never runs dry."""

WRITE_LOW_BYTES = 64 * 1024
"""Bytes in the transport below which it asks for more."""


class Outputs(Protocol):
    """The listener: what all its connections share."""

    turns: Turns
    output_bytes: int

    def output_share(self, usual_bytes: int) -> int: ...


class OutputOwner(Protocol):
    """The connection."""

    engine: Engine
    config: ListenerConfig
    intake: ConnectionInput

    def said_all(self) -> None:
        """Note that nothing will be sent any more."""
        ...

    def fail(self, error: BaseException) -> None: ...


class ConnectionOutput:
    """Implements `fair_scheduling.OutputWaiter`."""

    def __init__(self, connection: OutputOwner, listener: Outputs) -> None:
        self.bytes = 0
        """Bytes in proton and in the transport, as last told to the listener."""
        self._connection = connection
        self._intake, self._engine = connection.intake, connection.engine
        self._usual_bytes = connection.config.pending_output_bytes
        self._limit_bytes = connection.config.pending_output_limit_bytes
        self._listener = listener
        self._turns = listener.turns
        self._transport: asyncio.Transport | None = None
        self._ready: dict[Endpoint, None] = {}  # in order; those whose pump is to be called
        self._flush_due = False
        self._pump_waits = False  # until it is this connection's turn to send more

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)

    def shut(self) -> None:
        """Send the rest, then close the socket."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def end(self) -> None:
        """Drop everything: the socket is gone."""
        self._transport = None
        self._account(0)
        self._ready.clear()
        del self._connection  # which has this: without the cycle it is freed at once

    def forget(self, endpoint: Endpoint) -> None:
        self._ready.pop(endpoint, None)

    def flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._turns.flush_soon(self._flush)

    def pump_soon(self, endpoint: Endpoint) -> None:
        self._ready[endpoint] = None
        self.flush_soon()

    def pause(self) -> None:
        """Note that the socket takes no more."""
        self._intake.write_paused = True

    def resume(self) -> None:
        self._intake.write_paused = False
        self.flush_soon()

    def send_on(self) -> None:
        self._pump_waits = False
        self._flush()

    @property
    def full(self) -> bool:
        """True while no more events may be encoded. Bytes in the transport do not count before it says stop: nothing
        would tell when to go on."""
        pending = self._pending() if self._intake.write_paused else self._engine.pending_output
        return pending >= self._listener.output_share(self._usual_bytes)

    def _pending(self) -> int:
        """Bytes in proton and in the transport."""
        transport = self._transport
        return self._engine.pending_output + (0 if transport is None else transport.get_write_buffer_size())

    def _flush(self) -> None:
        """Let the links that may send do so, then give the socket what it takes: once per turn of the loop."""
        self._flush_due = False
        transport = self._transport
        if transport is None:
            return
        try:
            self._give(transport)
        except Exception as error:  # noqa: BLE001 - a bug met by one peer's links must not reach another peer
            self._connection.fail(error)

    def _give(self, transport: asyncio.Transport) -> None:
        connection, engine = self._connection, self._engine
        more = not self._pump_waits and self._pump()
        while not self._stuck(transport) and (data := engine.data_to_send()):
            transport.write(data)
        self._account(self._pending())
        connection.intake.account()
        connection.intake.read_or_pause()
        if engine.output_done:
            connection.said_all()
        elif more and not connection.intake.write_paused:
            self._pump_waits = True
            self._turns.wait_to_give(self)

    def _stuck(self, transport: asyncio.Transport) -> bool:
        """True if the peer does not read, and its output has reached the limit."""
        return self._intake.write_paused and transport.get_write_buffer_size() > self._limit_bytes

    def _pump(self) -> bool:
        """Let each ready link send one share; links with more stay ready."""
        turns, began_s = self._turns, clock_s()
        for endpoint in list(self._ready):
            if self.full or turns.output_over:
                break
            if endpoint in self._ready:
                del self._ready[endpoint]  # before the pump: whatever wakes the endpoint meanwhile counts again
                if endpoint.pump():
                    self._ready[endpoint] = None  # behind the others, for the next turn
                began_s, before_s = clock_s(), began_s
                turns.used_output(began_s - before_s)
        return bool(self._ready)

    def _account(self, size: int) -> None:
        self._listener.output_bytes += size - self.bytes
        self.bytes = self._intake.output_bytes = size
