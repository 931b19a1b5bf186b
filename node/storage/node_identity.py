"""Identity of the node whose data a directory holds.

A node that starts on the directory of another one would vote with that one's memory: two nodes, one vote each way. So
the first start writes the identity into the store, and every later start compares. The incarnation is drawn with it: it
shows the others when a node comes with another directory than before. The nodes that the cluster began with stand in it
for good, since a group whose members never changed has no other record of them.

A copy of a directory has its incarnation, so the identity also counts the starts that spoke to others and keeps their
marks (`cluster/stale_copy_detection.py` says what for). It also holds what peers have found out: that these data are a
copy, or that the node was removed from the cluster with them. No later start makes either good.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from node.storage.errors import ForeignData, NodeRemoved, OlderCopy, StorageDamaged

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
    members: tuple[int, ...] = ()  # with which the cluster began; none: the node joined it
    incarnation: int = 0  # 0: not drawn yet, or the stored one
    boot: int = 0  # starts that spoke to others
    marks: tuple[int, ...] = ()  # of the latest of them
    copy_of: str = ""  # not empty: peers have found that the data are a copy, and how
    removed: bool = False  # the node was removed from its cluster

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

    def found_removed(self) -> NodeIdentity:
        return replace(self, removed=True)

    def require_original(self, path: Path) -> None:
        if self.removed:
            raise NodeRemoved(path, self.node)
        if self.copy_of:
            raise OlderCopy(path, self.copy_of)

    def encode(self) -> bytes:
        fields = asdict(self)
        if not self.removed:
            del fields["removed"]
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes, path: Path) -> NodeIdentity:
        try:
            fields = json.loads(data)
            members, marks = (tuple(int(number) for number in fields[key]) for key in ("members", "marks"))
            numbers = int(fields["incarnation"]), int(fields["boot"])
            told = str(fields["copy_of"]), bool(fields.get("removed", False))
            return cls(str(fields["cluster"]), int(fields["node"]), members, *numbers, marks, *told)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageDamaged(path, f"the node's identity is unreadable ({error!r})") from error

    def require(self, stored: NodeIdentity, path: Path) -> None:
        if (stored.cluster, stored.node) != (self.cluster, self.node):
            raise ForeignData(
                f"{path} belongs to node {stored.node} of cluster {stored.cluster!r}, but this is node {self.node} of "
                f"cluster {self.cluster!r}. Correct data_dir, node.id or cluster.name in the configuration"
            )
