"""Identity of the node whose data a directory holds.

A node that starts on the directory of another one would vote with that one's memory: two nodes, one vote each way. One
that counts other members than before would take a minority for a majority. So the first start writes the identity into
the store, and every later start compares. The incarnation is drawn with it: it shows the others when a node comes with
another directory than before.

A copy of a directory has its incarnation, so the identity also counts the starts that spoke to others and keeps their
marks (`cluster/stale_copy_detection.py` says what for). It also holds what peers have found out: that these data are a
copy, which no later start makes good.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from node.storage.errors import ForeignData, OlderCopy, StorageDamaged

IDENTITY_KEY = b"m"

INCARNATION_BITS = 62
"""Bits of an incarnation: two directories with the same one will not be met, and it fits the integers of every protocol
here."""

MARK_BITS = 32
"""Bits of a mark: two starts are compared only when they have the same number."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    cluster: str
    node: int
    members: tuple[int, ...] = ()  # all node ids of the cluster; none: not compared (tools that look into a store)
    incarnation: int = 0  # 0: not drawn yet, or the stored one
    boot: int = 0  # starts that spoke to others
    marks: tuple[int, ...] = ()  # of the latest of them
    copy_of: str = ""  # not empty: peers have found that the data are a copy, and how

    def drawn(self) -> NodeIdentity:
        """The identity with an incarnation, for a directory that is made now."""
        return replace(self, incarnation=secrets.randbits(INCARNATION_BITS) + 1)

    def started(self, remembered: int) -> NodeIdentity:
        """The identity one start later, with `remembered` marks. To be stored and synced before others hear of the
        start."""
        mark = secrets.randbits(MARK_BITS)
        return replace(self, boot=self.boot + 1, marks=(*self.marks, mark)[-remembered:])

    def found_a_copy(self, found: str) -> NodeIdentity:
        return replace(self, copy_of=found)

    def require_original(self, path: Path) -> None:
        if self.copy_of:
            raise OlderCopy(path, self.copy_of)

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes, path: Path) -> NodeIdentity:
        try:
            fields = json.loads(data)
            members, marks = (tuple(int(number) for number in fields[key]) for key in ("members", "marks"))
            numbers = int(fields["incarnation"]), int(fields["boot"])
            return cls(str(fields["cluster"]), int(fields["node"]), members, *numbers, marks, str(fields["copy_of"]))
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
