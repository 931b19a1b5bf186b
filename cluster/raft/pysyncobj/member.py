"""Members of a Raft group, as pysyncobj knows them."""

from __future__ import annotations

from pysyncobj.node import Node

from cluster.raft.interfaces import NodeId
from cluster.raft.membership.configuration import FOUNDING_BIRTH, Replica


class RaftMember(Node):
    """A replica of the group: a node and a birth. The library hashes and compares these often; what it knows of one
    life of a node it does not know of the next."""

    def __init__(self, node_id: NodeId, birth: int = FOUNDING_BIRTH) -> None:
        super().__init__(node_id)
        self.birth = birth

    @property
    def replica(self) -> Replica:
        return Replica(self._id, self.birth)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, RaftMember) and other._id == self._id and other.birth == self.birth)

    def __hash__(self) -> int:
        return self._id

    def __str__(self) -> str:
        return f"node {self._id}" if self.birth == FOUNDING_BIRTH else f"node {self._id} (birth {self.birth})"
