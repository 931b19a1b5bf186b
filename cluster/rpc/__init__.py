"""The network between nodes: peer streams for Raft, and questions that a gateway asks of a partition's leader.

The public names are below; start with `PeerNetwork`.
"""

from cluster.rpc.api import (
    AddressInUse,
    AdminHost,
    GroupUnknown,
    NotLeaderHere,
    Partition,
    PartitionHost,
    PartitionTypes,
    PeerClient,
    RemoteReader,
    Unavailable,
)
from cluster.rpc.callers import Callers, refused_by_any
from cluster.rpc.handshake import Who
from cluster.rpc.peer_tls import CertificateFault, PeerTls
from cluster.rpc.rpc_pb2 import Hello, ReplicaState
from cluster.rpc.start_memory import StartMemory
from cluster.rpc.streams.network import PeerNetwork

__all__ = [
    "AddressInUse",
    "AdminHost",
    "Callers",
    "CertificateFault",
    "GroupUnknown",
    "Hello",
    "NotLeaderHere",
    "Partition",
    "PartitionHost",
    "PartitionTypes",
    "PeerClient",
    "PeerNetwork",
    "PeerTls",
    "RemoteReader",
    "ReplicaState",
    "StartMemory",
    "Unavailable",
    "Who",
    "refused_by_any",
]
