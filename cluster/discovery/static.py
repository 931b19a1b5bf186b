"""Nodes found by a list in the configuration: no other service, nothing to wait for.

The rule: the list is the voters. What it cannot know is who is alive; nodes tell each other when they connect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from cluster.discovery.api import Changed, Member, NotAMember


class StaticDiscovery:
    """Implements `Discovery`."""

    waiting_for = ""

    def __init__(self, cluster: str, me: Member, peers: Mapping[int, str]) -> None:
        self._cluster = cluster
        self._me = me
        self._peers = dict(sorted(peers.items()))
        self._joined = False

    async def join(self) -> Mapping[int, str]:
        if self._me.node not in self._peers:
            raise NotAMember(f"node {self._me.node} is not in the list {list(self._peers)}: add it on every node")
        self._joined = True
        return dict(self._peers)

    @property
    def cluster_id(self) -> str:
        """Digest of the cluster's name and members: two lists that differ are two clusters."""
        if not self._joined:
            return ""
        named = f"{self._cluster}\n{sorted(self._peers)}".encode()
        return hashlib.sha256(named).hexdigest()[:32]

    def members(self) -> Mapping[int, Member]:
        if not self._joined:
            return {}
        others = {node: Member(node, address) for node, address in self._peers.items()}
        return others | {self._me.node: self._me}

    def subscribe(self, changed: Changed) -> None:
        """Do nothing: the list never changes."""

    async def close(self) -> None:
        self._joined = False
