"""What a connection leaves behind that its opener has given up."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from holdfast.amqp import Engine
from holdfast.client.transport.address import Address
from holdfast.client.transport.connection import ClientConnection


async def given_up(host: str, port: int) -> None:
    """The time is over in the very turn in which the socket is there: the opener is gone before it could wait."""
    connection = ClientConnection(Address(host, port), Engine("client", container_id="c"))
    await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
    connection._abort()
    await connection._closed


async def test_nobody_is_missed_who_has_given_up() -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with server:
        await given_up(*server.sockets[0].getsockname())
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []
