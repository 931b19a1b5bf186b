"""When an outlet has enough: more is not sent, and somebody says when to go on."""

from __future__ import annotations

from typing import Any

from node.listener.config import ListenerConfig
from node.listener.connections.socket_output import ConnectionOutput
from tests.unit.listener.limits.test_socket_input import Parts

SHARE_BYTES = 128 * 1024


class Buffer:
    """A transport that has taken in so much, and knows when it says stop."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_write_buffer_size(self) -> int:
        return self.size

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert high > SHARE_BYTES > low


class Intake:
    write_paused = False


class Node(Parts):
    """That has sent more than it may have waiting, so that each connection has its floor."""

    def __init__(self) -> None:
        super().__init__()
        self.intake = Intake()
        self.config = ListenerConfig()
        self.output_bytes = 0

    def output_share(self, usual_bytes: int) -> int:
        return min(SHARE_BYTES, usual_bytes)


async def test_what_a_transport_holds_counts_once_it_says_stop() -> None:
    """Before, it does not say when to go on either: who waited for that would ask in each turn of the loop, and a
    connection beyond its share would cost a processor."""
    node: Any = Node()
    outlet = ConnectionOutput(node, node)
    buffer: Any = Buffer(SHARE_BYTES + 1)
    outlet.open(buffer)
    assert not outlet.full
    outlet.pause()
    assert outlet.full
    buffer.size = SHARE_BYTES - 1
    assert not outlet.full
    node.engine.pending_output = SHARE_BYTES
    node.intake.write_paused = False
    assert outlet.full
