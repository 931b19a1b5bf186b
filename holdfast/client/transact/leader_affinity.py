"""Home of a producer's transactions: the node that leads the one partition to which they write.

The node of a transaction's connection forwards events of partitions that it does not lead. That hop costs up to a
quarter of the rate, and as much of the nodes' CPU. So when several transactions in a row have written to the same
partition, a task looks for its leader, and the producer moves there between two of them. A home is only a matter of
speed; no call waits for it or fails because of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection
from math import inf

from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.client.errors import HoldfastError
from holdfast.client.transport.address import Address
from holdfast.client.transport.network import Network

log = logging.getLogger("holdfast.client")

LOOKED_FOR_AFTER = 3  # transactions in a row to one partition: a program that varies its partitions does not move
LOOK_AGAIN_S = 30.0  # leaders change seldom, and a connection with its attaches has a cost
LOOK_WITHIN_S = 5.0


class Home:
    """Implements `SenderOwner`, of a link over which nothing is sent."""

    def __init__(self, network: Network, log_name: str) -> None:
        """`network`: of a plain producer, whose links nodes redirect."""
        self.found: Address | None = None  # a home to which the producer has not moved yet
        self._network, self._log = network, log_name
        self._wrote_to: deque[set[str]] = deque(maxlen=LOOKED_FOR_AFTER)  # the last transactions
        self._looked_at_s = -inf
        self._looking: asyncio.Task[None] | None = None

    def wrote(self, partitions: Collection[str], at: Address) -> None:
        """Note that a transaction was committed through the node at this address."""
        self._wrote_to.append(set(partitions))
        is_steady = len(partitions) == 1 and self._wrote_to.count(set(partitions)) == LOOKED_FOR_AFTER
        if not is_steady or not self._network.options.follow_redirects:
            return
        now_s = asyncio.get_running_loop().time()
        if self._looking is None and now_s - self._looked_at_s >= LOOK_AGAIN_S:
            self._looked_at_s = now_s
            self._looking = asyncio.ensure_future(self._look(next(iter(partitions)), at))

    async def _look(self, partition: str, at: Address) -> None:
        deadline_s = asyncio.get_running_loop().time() + LOOK_WITHIN_S
        try:
            link = await self._network.attach_sender(self._log, partition, self, deadline_s=deadline_s)
            await link.close()
            if (link.server.host, link.server.port) != (at.host, at.port):
                self.found = link.server
        except HoldfastError as error:
            log.debug("the leader of %s/%s was not found: %s", self._log, partition, error)
        finally:
            self._looking = None

    def on_credit(self) -> None: ...
    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None: ...
    def on_closed(self, error: HoldfastError) -> None: ...

    async def close(self) -> None:
        looking = self._looking
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])
