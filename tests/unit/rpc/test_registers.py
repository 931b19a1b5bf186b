"""Which commands a node may have carried out before it is a member: those by which it registers itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.metadata import create_log, register_node
from node.server import _AdminForPeers

REGISTERS_NINE = register_node(9, "10.0.0.9:7101", {"default": "10.0.0.9:5672"}).SerializeToString()


@pytest.mark.parametrize(
    ("node", "command", "registers"),
    [
        (9, REGISTERS_NINE, True),
        (8, REGISTERS_NINE, False),
        (9, create_log("trades", now_ms=1, partitions=1, replicas=1).SerializeToString(), False),
        (9, b"", False),
        (9, REGISTERS_NINE[:-1], False),
    ],
)
def test_a_node_that_is_announced_registers_itself_and_no_other(node: int, command: bytes, registers: bool) -> None:
    parts: Any = SimpleNamespace(execute_here=None, confirm_here=None, states=None, report=None)
    assert _AdminForPeers(parts, parts, parts, parts).registers(node, command) is registers
