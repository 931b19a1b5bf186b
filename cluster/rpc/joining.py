"""The first question of a node that joins: who the members of the cluster are.

It asks one seed, before it has data or a network of its own. The seed lets it in by the rules for all callers
(`handshake`), so it answers who was announced and nobody else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from cluster.rpc.api import Members
from cluster.rpc.grpc_calls.peer_client import GrpcPeerClient
from cluster.rpc.handshake import hello_to
from cluster.rpc.peer_tls import PeerTls
from cluster.versions import VersionRange


async def ask_to_join(
    cluster: str, self_id: int, seed: int, address: str, versions: VersionRange, tls: PeerTls | None
) -> Members:
    """Ask a seed for the members of the cluster. Raises Unavailable: it does not answer, or does not let us in."""
    hello = hello_to(seed, cluster=cluster, self_id=self_id, versions=versions)
    hello.is_new = True
    client = GrpcPeerClient(
        seed,
        lambda: hello,
        lambda: address,
        _no_types(),
        open_channel=None if tls is None else partial(tls.channel, seed),
    )
    try:
        return await client.join()
    finally:
        await client.close()


def _no_types() -> Any:
    """Words of partitions, of which this client never speaks."""
    return None
