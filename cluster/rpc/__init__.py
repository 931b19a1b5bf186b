"""The network between nodes: peer streams for Raft, and questions that a gateway asks of a partition's leader.

The public names are below; start with `PeerNetwork`.
"""

from cluster.rpc.admission_report import Callers, refused_by_any
from cluster.rpc.api import (
    AddressInUse,
    AdminHost,
    GroupUnknown,
    Members,
    NotLeaderHere,
    Partition,
    PartitionHost,
    PartitionTypes,
    PeerClient,
    RemoteReader,
    Unavailable,
)
from cluster.rpc.handshake import Who
from cluster.rpc.joining import ask_to_join
from cluster.rpc.load_report import LoadReport
from cluster.rpc.peer_boot_counters import PeerBootCounters
from cluster.rpc.peer_tls import CertificateFault, PeerTls
from cluster.rpc.raft_transport.peer_network import PeerNetwork
from cluster.rpc.rpc_pb2 import AwaitedMove, Hello, ReplicaState

__all__ = [
    "AddressInUse",
    "AdminHost",
    "AwaitedMove",
    "Callers",
    "CertificateFault",
    "GroupUnknown",
    "Hello",
    "LoadReport",
    "Members",
    "NotLeaderHere",
    "Partition",
    "PartitionHost",
    "PartitionTypes",
    "PeerBootCounters",
    "PeerClient",
    "PeerNetwork",
    "PeerTls",
    "RemoteReader",
    "ReplicaState",
    "Unavailable",
    "Who",
    "ask_to_join",
    "refused_by_any",
]
