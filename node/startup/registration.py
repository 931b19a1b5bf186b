"""What a node waits for before it says that it is ready: its addresses in the metadata, and its vote.

It serves what it can meanwhile. Registration is never given up: what is missing is said, and asked for again. The vote
is waited for briefly, since it may depend on nodes that are away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from cluster.metadata import CommandProposer, Refusal
from cluster.metadata.metadata_pb2 import Command

log = logging.getLogger("holdfast.node")

RETRY_S = 1.0
"""A node that nobody can register (no majority) asks again so often."""

VOTE_WAIT_S = 2.0
VOTE_LOOK_S = 0.02
"""A vote that is given back at all is given back in a few rounds of heartbeats; see `await_vote`."""


class Voters(Protocol):
    def has_vote(self, node: int) -> bool: ...


async def register(
    command: Command, proposer: CommandProposer, listeners: Mapping[str, str], missing: Callable[[], list[int]]
) -> None:
    """Make this node's addresses known, once they differ from what the cluster has. `missing`: nodes that a new cluster
    waits for."""
    while True:
        result = await proposer.execute(command)
        if not isinstance(result, Refusal):
            log.info("this node is registered: %s", dict(listeners))
            return
        absent = missing()
        hint = f" A new cluster begins when all nodes have met; not heard of as new: {absent}." if absent else ""
        log.warning("registration is not done yet: %s.%s", result.message, hint)
        await asyncio.sleep(RETRY_S)


async def await_vote(node: int, voters: Voters) -> None:
    """A cluster that has just begun bears the loss of a node only when the others vote, and the last one to hear of all
    is given its vote a moment later. A node that gets it back only when others return serves meanwhile."""
    for _ in range(round(VOTE_WAIT_S / VOTE_LOOK_S)):
        if voters.has_vote(node):
            return
        await asyncio.sleep(VOTE_LOOK_S)
