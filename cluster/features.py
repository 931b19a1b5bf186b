"""Features that a version brought, and the question whether this node may use one now.

The problem: a program that knows a new command, field or layout stands beside one that does not, and either may be
taken back to the release before. The rules: what proposes, sends or writes asks `active`; `apply` never does, and none
of the modules that it is made of imports this one (a test of imports looks). The active version only rises. It is noted
with the data before anything of it is used (`on_rise`), and peers hear of it before anything that was made with it
(`cluster/rpc/raft_transport/`). So a node never holds what is newer than its data say.

A feature leaves the table with the last version that lacks it.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.versions import MEMBERS_CHANGE_FROM, OURS, UNSET, VersionRange

FEATURES: dict[str, int] = {"membership": MEMBERS_CHANGE_FROM, "nodes": MEMBERS_CHANGE_FROM, "racks": 15}
"""The version that brings each feature. `membership`: groups change their members (`cluster/raft/membership`).
`nodes`: nodes join and leave a cluster (`cluster/metadata/nodes`). `racks`: the metadata know where nodes stand."""


class Features:
    """Features that this node may use: those of the active version, as far as the node has heard of it."""

    def __init__(self, known: VersionRange = OURS, heard: int = UNSET) -> None:
        """`known`: by the program. `heard`: the active version that the node's data speak of."""
        self.known = known
        self.heard = heard
        """The active version; UNSET: none was heard of."""
        self.version = heard or known.oldest
        """Version of what is written. Before one is heard of, the oldest that the program knows."""
        self.on_rise: list[Callable[[int], None]] = []
        """Called with a version before it is active here. What one raises keeps it from becoming so."""

    def active(self, feature: str) -> bool:
        return FEATURES[feature] <= self.version

    def rise(self, version: int) -> None:
        """Take in the cluster's active version, from the metadata or from a peer that has them. Anything but a higher
        one that the program knows is no news: of what it does not know others say what to do."""
        if version <= self.heard or version not in self.known:
            return
        for callback in self.on_rise:
            callback(version)
        self.heard = self.version = version
