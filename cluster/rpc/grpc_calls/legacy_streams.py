"""The answer to nodes up to protocol 8, which open their stream to this node as a gRPC call: a refusal, always."""

from __future__ import annotations

from typing import Any

import grpc

from cluster.rpc.grpc_calls.methods import EOF
from cluster.rpc.handshake import Who
from cluster.rpc.raft_transport.inbound import first_hello


async def refuse_link(who: Who, _: Any, context: Any) -> None:
    async def read() -> bytes | None:
        data = await context.read()
        return None if data is EOF else data

    hello = await first_hello(read)
    if not who.is_node(context, hello):
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, who.not_a_node(context, hello))
    if (reason := who.refusal(hello)) is not None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, who.told(context, hello, reason))
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "streams between nodes are no gRPC calls any more")
