"""Where a producer's transactions are begun best: at the node that leads the one partition that they write to.

Problem: a transaction belongs to one connection, and what its node does not lead goes through that node as a gateway,
which costs each batch a hop. Many programs write to one partition for long.
Rules never broken: it is a matter of speed alone; nothing waits for it, and nothing fails by it. It is looked for
beside the transactions, when several in a row have written to one and the same partition, and moved to between two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from math import inf

from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.client.errors import HoldfastError
from holdfast.client.transport.address import Address
from holdfast.client.transport.network import Network, NetworkOptions

log = logging.getLogger("holdfast.client")

LOOKED_FOR_AFTER = 3
"""Transactions in a row: a program that writes to one partition now and then is not moved about."""

LOOK_AGAIN_S = 30.0
"""Leaders change seldom, and a connection with its attaches costs some ten milliseconds."""

LOOK_WITHIN_S = 5.0


class Home:
    def __init__(self, servers: str | Sequence[str], log_name: str, options: NetworkOptions) -> None:
        """With options that follow no redirects there is none."""
        self._found: Address | None = None
        self._servers, self._log, self._options = servers, log_name, options
        self._partition: str | None = None
        self._in_a_row = 0
        self._looked_at_s = -inf
        self._looking: asyncio.Task[None] | None = None

    def wrote(self, partitions: Collection[str | None], at: Address) -> None:
        """A transaction was committed through the node at this address."""
        partition = next(iter(partitions)) if len(partitions) == 1 else None
        self._in_a_row = self._in_a_row + 1 if partition == self._partition else 1
        self._partition = partition
        if partition is None or not self._options.follow_redirects or self._in_a_row < LOOKED_FOR_AFTER:
            return
        now_s = asyncio.get_running_loop().time()
        if self._looking is None and now_s - self._looked_at_s >= LOOK_AGAIN_S:
            self._looked_at_s = now_s
            self._looking = asyncio.ensure_future(self._look(partition, at))

    async def _look(self, partition: str, at: Address) -> None:
        """The node is asked for a link of a plain producer: such a one it redirects."""
        network = Network(self._servers, self._options)
        try:
            network.prefer_sender(self._log, partition, at)
            deadline_s = asyncio.get_running_loop().time() + LOOK_WITHIN_S
            sender = await network.attach_sender(self._log, partition, _Nobody(), deadline_s=deadline_s)
            found = sender.server
            if (found.host, found.port) != (at.host, at.port):
                self._found = found
        except HoldfastError as error:
            log.debug("the leader of %s/%s was not found: %s", self._log, partition, error)
        finally:
            self._looking = None
            await network.close()

    def take(self) -> Address | None:
        """Where to go on, if that was found and nobody was told yet."""
        found, self._found = self._found, None
        return found

    async def close(self) -> None:
        looking = self._looking
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])


class _Nobody:
    """Owns a link on which nothing is sent."""

    def on_credit(self) -> None: ...
    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None: ...
    def on_closed(self, error: HoldfastError) -> None: ...
