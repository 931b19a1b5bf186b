"""Home of a producer's transactions: the node that leads the one partition to which they write.

The node of a transaction's connection forwards events of partitions that it does not lead, which costs each batch a
hop. So when several transactions in a row have written to the same partition, a task looks for its leader, and the
producer moves there between two of them. A home is only a matter of speed; no call waits for it or fails because of it.
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

LOOKED_FOR_AFTER = 3  # transactions in a row to one partition: a program that varies its partitions does not move
LOOK_AGAIN_S = 30.0  # leaders change seldom, and a connection with its attaches has a cost
LOOK_WITHIN_S = 5.0


class Home:
    """Implements `SenderOwner`, of a link over which nothing is sent."""

    def __init__(self, servers: str | Sequence[str], log_name: str, options: NetworkOptions) -> None:
        self.found: Address | None = None  # a home to which the producer has not moved yet
        self._servers, self._log, self._options = servers, log_name, options
        self._partition: str | None = None
        self._in_a_row = 0
        self._looked_at_s = -inf
        self._looking: asyncio.Task[None] | None = None

    def wrote(self, partitions: Collection[str], at: Address) -> None:
        """Note that a transaction was committed through the node at this address."""
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
        """Find the leader by a link of a plain producer, which a node redirects."""
        network = Network(self._servers, self._options)
        try:
            network.prefer_sender(self._log, partition, at)
            deadline_s = asyncio.get_running_loop().time() + LOOK_WITHIN_S
            found = (await network.attach_sender(self._log, partition, self, deadline_s=deadline_s)).server
            if (found.host, found.port) != (at.host, at.port):
                self.found = found
        except HoldfastError as error:
            log.debug("the leader of %s/%s was not found: %s", self._log, partition, error)
        finally:
            self._looking = None
            await network.close()

    def on_credit(self) -> None: ...
    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None: ...
    def on_closed(self, error: HoldfastError) -> None: ...

    async def close(self) -> None:
        looking = self._looking
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])
