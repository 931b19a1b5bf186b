"""WebSocket frames of a peer that has not logged in: only their bounds end its connection, since no deadline comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.listener.connections.websocket import MAX_FIRST_BYTES, MAX_IDLE_FRAMES
from tests.unit.listener.support.single import SingleNode

GREETING = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MASK = bytes(4)
EMPTY_FRAME, PING = b"\x82\x80" + MASK, b"\x89\x80" + MASK
TOO_LARGE = b"\x82\xff" + (MAX_FIRST_BYTES + 1).to_bytes(8, "big") + MASK  # its data need not come


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[SingleNode]:
    single = await SingleNode(tmp_path / "data", handshake_timeout_s=3600.0).start()
    yield single
    await single.stop()


@pytest.mark.parametrize(
    "said",
    [EMPTY_FRAME * (MAX_IDLE_FRAMES + 1), PING * (MAX_IDLE_FRAMES + 1), TOO_LARGE],
    ids=["empty", "ping", "large"],
)
async def test_what_is_beyond_the_bounds_ends_the_connection(patient: SingleNode, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", patient.port)
    writer.write(GREETING)
    assert b"101" in await reader.readline()
    writer.write(said)
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    writer.close()
