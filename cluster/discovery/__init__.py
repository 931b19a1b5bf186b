"""Discovery of the nodes of a cluster: by a list in the configuration, by asking some of them, or by ZooKeeper.

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
from cluster.discovery.seeds import SeedDiscovery
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
    "SeedDiscovery",
    "StaticDiscovery",
    "ZooKeeperDiscovery",
    "ZooKeeperOptions",
]
