"""Requests of callers, read from the wire: each message is checked before anything is done with it.

The rule: if the bytes are no such message, the call ends with a status that says so.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import DecodeError

from cluster.rpc.call_validation import parsed
from cluster.rpc.grpc_calls.methods import EOF


async def next_request(context: Any, kind: Any) -> Any:
    """The next message of a stream, or EOF."""
    data = await context.read()
    return EOF if data is EOF else await parse_request(context, kind, data)


async def parse_request(context: Any, kind: Any, data: bytes) -> Any:
    try:
        return parsed(kind, data)
    except DecodeError as error:
        reason = f"no {kind.DESCRIPTOR.name} ({error}): the caller is broken or runs another version"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
