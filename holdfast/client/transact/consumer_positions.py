"""Positions of a consumer group on their way into a transaction.

The node has noted each of them before the client asks for a commit. If it refuses one, client and node roll the
transaction back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast.client.errors import AdminError, OwnershipLostError
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.management_requests import Exchange

NOTED_AT_ONCE = 8
"""Positions that are noted in parallel: each needs two links, and a connection has a limit of links."""


class CommittablePosition(Protocol):
    """Position of a consumer in one partition, after the events that it handed out, with the claim that it had."""

    @property
    def log(self) -> str: ...
    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments of the request `group.commit`."""
        ...

    def committed(self) -> None: ...


class OffsetsConsumer(Protocol):
    """The part of `holdfast.client.ConsumerClient` that transactions need."""

    def handed_out(self) -> Sequence[CommittablePosition]:
        """Return the positions. Raises OwnershipLostError if this consumer lost one of the partitions."""
        ...


async def note_all(
    connection: ClientConnection, txn_id: bytes, positions: Sequence[CommittablePosition], bound_s: float
) -> list[BaseException]:
    """Let the node note positions as part of the transaction; return the errors."""
    at_once = asyncio.Semaphore(NOTED_AT_ONCE)

    async def note(one: CommittablePosition) -> None:
        async with at_once:
            exchange = Exchange(connection, f"group commit {one.log!r}", bound_s, txn_id)
            try:
                await exchange.run("group", "commit", one.log, one.arguments)
            except AdminError as error:
                if error.code == "not-owner":
                    raise OwnershipLostError(str(error)) from error
                raise
            finally:
                await exchange.close()

    outcomes = await asyncio.gather(*map(note, positions), return_exceptions=True)
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
