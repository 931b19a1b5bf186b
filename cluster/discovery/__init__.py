"""Discovery of the nodes of a cluster: by a list in the configuration, or by ZooKeeper.

The public names are below; `api.py` says what both guarantee.
"""

from cluster.discovery.api import (
    Changed,
    Discovery,
    DiscoveryError,
    Member,
    NotAMember,
    OtherCluster,
    SecondRegistration,
)
from cluster.discovery.remembered_cluster import InUse, RememberedCluster
from cluster.discovery.static import StaticDiscovery
from cluster.discovery.zookeeper import ZooKeeperDiscovery, ZooKeeperOptions

__all__ = [
    "Changed",
    "Discovery",
    "DiscoveryError",
    "InUse",
    "Member",
    "NotAMember",
    "OtherCluster",
    "RememberedCluster",
    "SecondRegistration",
    "StaticDiscovery",
    "ZooKeeperDiscovery",
    "ZooKeeperOptions",
]
