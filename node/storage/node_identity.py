"""Whose data a directory holds.

A node that starts on the directory of another one would vote with that one's memory: two nodes, one vote each way. One
that counts other members than before would take a minority for a majority. So the first start writes the identity into
the store, and every later start compares. The incarnation is drawn with it: by it the others see that a node comes with
another directory than it had.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from node.storage.errors import ForeignData, StorageDamaged

IDENTITY_KEY = b"m"

INCARNATION_BITS = 62
"""Two directories with the same one will not be met, and it fits the integers of every protocol here."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    cluster: str
    node: int
    members: tuple[int, ...] = ()  # all node ids of the cluster; none: not compared (tools that look into a store)
    incarnation: int = 0  # 0: to be drawn, or whatever is stored

    def drawn(self) -> NodeIdentity:
        """For a directory that is made now."""
        return replace(self, incarnation=secrets.randbits(INCARNATION_BITS) + 1)

    def encode(self) -> bytes:
        fields = {"cluster": self.cluster, "node": self.node, "members": self.members, "incarnation": self.incarnation}
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes, path: Path) -> NodeIdentity:
        try:
            fields = json.loads(data)
            members = tuple(int(member) for member in fields["members"])
            return cls(str(fields["cluster"]), int(fields["node"]), members, int(fields["incarnation"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StorageDamaged(path, f"the node's identity is unreadable ({error!r})") from error

    def require(self, stored: NodeIdentity, path: Path) -> None:
        if (stored.cluster, stored.node) != (self.cluster, self.node):
            raise ForeignData(
                f"{path} belongs to node {stored.node} of cluster {stored.cluster!r}, but this is node {self.node} of "
                f"cluster {self.cluster!r}. Correct data_dir, node.id or cluster.name in the configuration"
            )
        if self.members and stored.members and self.members != stored.members:
            had, has = (", ".join(map(str, members)) for members in (stored.members, self.members))
            raise ForeignData(
                f"{path} belongs to a member of a cluster of the nodes {had}, but the configuration lists {has}: it is "
                "an old one, or another cluster's. Write all of them into cluster.peers; members cannot be changed yet"
            )
