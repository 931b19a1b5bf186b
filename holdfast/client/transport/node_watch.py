"""Watch of the cluster's nodes: a client that sleeps hears of those that come and go.

Problem: a client hears of other nodes when it connects to one, and one that sleeps connects to none. When it wakes, all
that it knows may have been replaced.
Rules never broken: one node at a time is watched, by a link on a connection that is there anyhow, if there is one; when
that link is lost, another node is found after a random pause, so that the clients of a node that dies do not come to
the others all at once; so many attempts in vain are the last ones, until the client connects again. What fails here is
no error of the program's: it is logged for debugging.
Rejected: to ask another node when a connection is lost, and no more. A client whose only connection is to the last one
of the old nodes would hear of none of the others' successors. Rejected: asking again and again; for months nothing
changes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.message import Value, decode_message
from holdfast.client.errors import HoldfastError, ProtocolError
from holdfast.client.transport.address import Address, told_addresses
from holdfast.client.transport.links import Receiver, ReceiverOwner

PAUSE_S = 10.0  # before the first attempt, at most: ten thousand clients of a node are a thousand a second for the rest
PAUSE_MOST_S = 60.0  # the pause doubles up to this
ATTEMPTS = 10  # in some minutes


class NodeWatch:
    """Implements `ReceiverOwner`."""

    def __init__(
        self,
        attach: Callable[[ReceiverOwner], Awaitable[Receiver]],
        hear: Callable[[Address, Sequence[Address]], None],
        say: Callable[..., None],
    ) -> None:
        """`attach`: to a node that tells of the others. `hear`: which node tells of which others."""
        self._attach, self._hear, self._say = attach, hear, say
        self._link: Receiver | None = None
        self._is_lost = False
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Watch a node soon, unless that is done."""
        if self._link is None and self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._find(), name="watch nodes")

    async def close(self) -> None:
        """Watch no more. The link ends with its connection."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _find(self) -> None:
        most_s = PAUSE_S
        try:
            for _ in range(ATTEMPTS):
                await asyncio.sleep(random.uniform(0, most_s))
                most_s = min(PAUSE_MOST_S, most_s * 2)
                self._is_lost = False
                try:
                    link = await self._attach(self)
                except HoldfastError as error:
                    self._say("no node tells of the others: %s", error, level=logging.DEBUG)
                    continue
                if not self._is_lost:  # in the same breath
                    self._link = link
                    link.grant(1)
                    return
        finally:
            self._task = None

    def on_transfers(self, payloads: list[bytes]) -> None:
        link = self._link
        if link is None:
            return
        link.grant(1)
        try:
            body = decode_message(payloads[-1]).body
            self._hear(link.server, told_addresses(body.value if isinstance(body, Value) else None, link.server))
        except (MalformedMessage, ProtocolError) as error:
            self._say("%s cannot be read: %s", link.what, error, level=logging.DEBUG)

    def on_closed(self, error: HoldfastError) -> None:
        self._link, self._is_lost = None, True
        self.begin()
