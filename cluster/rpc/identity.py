"""Who may talk to this node.

The rule: nothing of a foreign cluster, a misdirected connection or another protocol version is ever handled; the
refusal says whose fault it is, what to change, and where. It is a check of configurations, not of credentials.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from google.protobuf.message import DecodeError

from cluster.rpc.options import PROTOCOL_VERSION
from cluster.rpc.rpc_pb2 import Hello

METADATA_KEY = "holdfast-hello-bin"


def hello_to(dialled: int, *, cluster: str, self_id: int) -> Hello:
    return Hello(cluster=cluster, node=self_id, dialled=dialled, protocol=PROTOCOL_VERSION)


def hello_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> Hello | None:
    """The Hello that a call carries, or None when there is none that can be read."""
    for key, value in metadata or ():
        if key == METADATA_KEY and isinstance(value, bytes):
            try:
                return Hello.FromString(value)
            except DecodeError:
                return None
    return None


def refusal(hello: Hello | None, *, cluster: str, self_id: int, known: Collection[int]) -> str | None:
    """Why the caller is not let in; None: welcome."""
    if hello is None:
        return f"node {self_id} of cluster {cluster!r} was called without a Hello: the caller is not a Holdfast node"
    who = f"node {hello.node} of cluster {hello.cluster!r}"
    if hello.protocol != PROTOCOL_VERSION:
        return (
            f"{who} speaks protocol {hello.protocol} and node {self_id} speaks {PROTOCOL_VERSION}: "
            "run the same version of Holdfast on both; retrying does not help"
        )
    if hello.cluster != cluster:
        return (
            f"{who} dialled node {self_id} of cluster {cluster!r}: the caller's configuration has the wrong address "
            "for one of its peers, or one of the two has the wrong cluster name"
        )
    if hello.dialled != self_id:
        return (
            f"{who} took this for node {hello.dialled}, but it is node {self_id}: correct the address of node "
            f"{hello.dialled} in cluster.peers of node {hello.node}"
        )
    if hello.node == self_id:
        return f"two processes call themselves node {self_id} of cluster {cluster!r}: stop one, or change its node.id"
    if hello.node not in known:
        listed = ", ".join(str(node) for node in sorted(known))
        return (
            f"{who} is not among the peers that node {self_id} was configured with ({listed}): "
            f"add it to cluster.peers of node {self_id}, or stop it"
        )
    return None
