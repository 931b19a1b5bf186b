"""Nodes found by asking: a node that joins a cluster asks its seeds who the others are.

The rules: a node that joins never founds a cluster, whatever it finds; it waits until a seed lets it in, and says what
it waits for; and the cluster that let it in first is the only one for its data, so that it comes back without its
seeds (`remembered_cluster.py`). A node that has data of a cluster asks nobody: all nodes may be starting at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from cluster.discovery.api import Changed, Member
from cluster.discovery.remembered_cluster import RememberedCluster

log = logging.getLogger("holdfast.discovery")

ASK_AGAIN_S = 0.5
"""Delay between rounds of questions: an operator that has announced the node does not wait for long."""

SAY_AGAIN_S = 10.0
"""A wait that goes on is logged so often."""


class KnownMembers(Protocol):
    @property
    def cluster_id(self) -> int: ...
    @property
    def addresses(self) -> Mapping[int, str]: ...


AskSeed = Callable[[int, str], Awaitable[KnownMembers]]
"""(seed, address) -> the members. Raises ConnectionError: it does not answer, or does not let this node in."""


class SeedDiscovery:
    """Implements `Discovery`. The caller closes `memory`."""

    def __init__(
        self, me: Member, seeds: Mapping[int, str], ask: AskSeed, memory: RememberedCluster, *, has_data: bool = False
    ) -> None:
        """`has_data`: the node belongs to a cluster already, which it may have founded."""
        self.waiting_for = "an answer of a seed"
        self._me = me
        self._seeds = {node: address for node, address in sorted(seeds.items()) if node != me.node}
        self._ask = ask
        self._memory = memory
        self._has_data = has_data
        self._said_s = 0.0

    async def join(self) -> Mapping[int, str]:
        while self._memory.cluster is None and not self._has_data:
            await self._ask_all()
            if self._memory.cluster is None:
                self._say()
                await asyncio.sleep(ASK_AGAIN_S)
        self.waiting_for = ""
        return self._known() | {self._me.node: self._me.rpc_address}

    async def _ask_all(self) -> None:
        faults = []
        for seed, address in self._seeds.items():
            try:
                members = await self._ask(seed, address)
            except ConnectionError as error:
                faults.append(f"node {seed} at {address}: {error}")
                continue
            self._memory.remember(f"{members.cluster_id:016x}", members.addresses)
            log.info("node %d tells of the nodes %s", seed, sorted(members.addresses))
            return
        node = self._me.node
        told = "; ".join(faults)
        self.waiting_for = (
            f"a seed that lets it in: type `holdfast node add {node}` at the cluster if it is new ({told})"
        )

    def _say(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._said_s >= SAY_AGAIN_S or not self._said_s:
            self._said_s = now_s
            log.warning("this node waits for %s", self.waiting_for)

    def _known(self) -> dict[int, str]:
        """Addresses of the nodes that were told, and of the seeds, for which the configuration's go before."""
        known = self._memory.cluster
        told: Mapping[str, str] = {} if known is None else known["voters"]
        return {int(node): address for node, address in told.items()} | self._seeds

    @property
    def cluster_id(self) -> str:
        known = self._memory.cluster
        return "" if known is None else str(known["id"])

    def members(self) -> Mapping[int, Member]:
        others = {node: Member(node, address) for node, address in self._known().items()}
        return others | {self._me.node: self._me}

    def subscribe(self, changed: Changed) -> None:
        """Do nothing: what changes later, the metadata say."""

    async def close(self) -> None:
        """Do nothing: nothing is registered."""
