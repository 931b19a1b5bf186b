"""Registration of a node before it is ready: its addresses in the metadata, and its vote.

The node serves what it can meanwhile. Registration is never given up: the node says what is missing, and asks again. It
waits for the vote only briefly, since that may depend on nodes that are away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from cluster.features import Features
from cluster.metadata import CommandProposer, MetadataView, NotConfirmed, Refusal, set_rack
from cluster.metadata.metadata_pb2 import Command
from node.routing_events import RoutingEvents

log = logging.getLogger("holdfast.node")

RETRY_S = 1.0
"""Delay before a node that could not be registered (no majority) asks again."""

VOTE_WAIT_S = 2.0
VOTE_LOOK_S = 0.02
"""Time for a vote to come back: that takes a few rounds of heartbeats, if it comes back at all; see `await_vote`."""


METADATA_WAIT_S = 5.0
"""A wait for the metadata that goes on is logged so often."""


class Voters(Protocol):
    @property
    def voters(self) -> Collection[int]: ...
    def has_vote(self, node: int) -> bool: ...


async def register(
    command: Command, proposer: CommandProposer, listeners: Mapping[str, str], missing: Callable[[], list[int]]
) -> None:
    """Register this node's addresses, once they differ from the cluster's. `missing`: nodes that a new cluster waits
    for."""
    while True:
        result = await proposer.execute(command)
        if not isinstance(result, Refusal):
            log.info("this node is registered: %s", dict(listeners))
            return
        absent = missing()
        hint = f" A new cluster begins when all nodes have met; not heard of as new: {absent}." if absent else ""
        log.warning("registration is not done yet: %s.%s", result.message, hint)
        await asyncio.sleep(RETRY_S)


async def confirm(proposer: CommandProposer) -> None:
    """Wait until the metadata of this node are current, however long that takes."""
    while True:
        try:
            await proposer.current()
            return
        except NotConfirmed as error:
            log.info("the metadata here may be old: %s", error)
            await asyncio.sleep(RETRY_S)


class RackNote:
    """Tells the cluster where this node stands, as soon as all nodes know what that is."""

    def __init__(self, node: int, rack: str, view: MetadataView, features: Features, proposer: CommandProposer) -> None:
        self._node, self._rack, self._view, self._features, self._proposer = node, rack, view, features, proposer
        self._telling: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Look whether there is something to tell. Called after each change of the metadata."""
        if self._telling is None and self._is_news:
            self._telling = asyncio.get_running_loop().create_task(self._tell(), name="tell the rack")

    @property
    def _is_news(self) -> bool:
        known = self._view.nodes.get(self._node)
        return known is not None and known.rack != self._rack and self._features.active("racks")

    async def _tell(self) -> None:
        try:
            while self._is_news:
                result = await self._proposer.execute(set_rack(self._node, self._rack))
                if not isinstance(result, Refusal):
                    return  # this node may hear of it later, and looks again then
                log.warning("the cluster is not told of this node's rack yet: %s", result.message)
                await asyncio.sleep(RETRY_S)
        finally:
            self._telling = None

    def stop(self) -> None:
        if self._telling is not None:
            self._telling.cancel()


async def await_metadata(node: int, view: MetadataView, routing_events: RoutingEvents) -> None:
    """Wait until this node has the metadata that it was registered in: clients ask it about them next."""
    while not await routing_events.until(lambda: node in view.nodes, METADATA_WAIT_S):
        log.warning("this node is registered, and waits for the metadata that say so")


async def await_vote(node: int, voters: Voters) -> None:
    """Wait briefly for this node's vote. A new cluster bears the loss of a node only when the others vote, and the last
    one to hear of all is given its vote a moment later. A node that gets it back only when others return serves
    meanwhile. One that only follows has none to wait for."""
    if node not in voters.voters:
        return
    for _ in range(round(VOTE_WAIT_S / VOTE_LOOK_S)):
        if voters.has_vote(node):
            return
        await asyncio.sleep(VOTE_LOOK_S)
