"""gRPC's server, which answers the calls of other nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import grpc

from cluster.rpc import options
from cluster.rpc.grpc_calls.call_handlers import Services
from cluster.rpc.grpc_calls.legacy_streams import refuse_link
from cluster.rpc.grpc_calls.methods import handlers
from cluster.rpc.handshake import Who
from cluster.rpc.peer_tls import PeerTls


async def serve_calls(address: str, who: Who, services: Services, tls: PeerTls | None) -> Any:
    """Begin to answer calls at the address. `stop` of what is returned ends that."""
    server = grpc.aio.server(options=options.server_options(), maximum_concurrent_rpcs=options.MAX_CALLS)
    server.add_generic_rpc_handlers(
        handlers(
            link=partial(refuse_link, who),
            append=services.append,
            read=services.read,
            info=services.info,
            open_producer=services.open_producer,
            producers=services.producers,
            group=services.group,
            execute=services.execute,
            confirm=services.confirm,
            replicas=services.replicas,
            callers=services.callers,
            join=services.join,
            report=services.report,
            hand_over=services.hand_over,
            fetch=services.fetch,
        )
    )
    if tls is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, tls.server_credentials())
    await server.start()
    return server
