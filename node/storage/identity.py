"""Whose data a directory holds.

A node that starts on the directory of another one would vote with that one's memory: two nodes, one vote each way. So
the first start writes the identity into the store, and every later start compares.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from node.storage.errors import ForeignData, StorageDamaged

IDENTITY_KEY = b"m"


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    cluster: str
    node: int

    def encode(self) -> bytes:
        return json.dumps({"cluster": self.cluster, "node": self.node}).encode()

    @classmethod
    def decode(cls, data: bytes, path: Path) -> NodeIdentity:
        try:
            fields = json.loads(data)
            return cls(str(fields["cluster"]), int(fields["node"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StorageDamaged(path, f"the node's identity is unreadable ({error!r})") from error

    def require(self, stored: NodeIdentity, path: Path) -> None:
        if stored != self:
            raise ForeignData(
                f"{path} belongs to node {stored.node} of cluster {stored.cluster!r}, but this is node {self.node} of "
                f"cluster {self.cluster!r}. Correct data_dir, node.id or cluster.name in the configuration"
            )
