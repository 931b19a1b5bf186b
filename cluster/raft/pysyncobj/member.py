"""Members of a Raft group, as pysyncobj knows them."""

from __future__ import annotations

from pysyncobj.node import Node

from cluster.raft.interfaces import NodeId


class RaftMember(Node):
    """A member of the group; the library hashes and compares these often."""

    def __init__(self, node_id: NodeId) -> None:
        super().__init__(node_id)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, RaftMember) and other._id == self._id)

    def __hash__(self) -> int:
        return self._id

    def __str__(self) -> str:
        return f"node {self._id}"
