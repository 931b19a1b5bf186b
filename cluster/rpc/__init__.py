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
    PeerClient,
    RemoteReader,
    Unavailable,
    Vocabulary,
)
from cluster.rpc.network import PeerNetwork

__all__ = [
    "AddressInUse",
    "AdminHost",
    "GroupUnknown",
    "NotLeaderHere",
    "Partition",
    "PartitionHost",
    "PeerClient",
    "PeerNetwork",
    "RemoteReader",
    "Unavailable",
    "Vocabulary",
]
