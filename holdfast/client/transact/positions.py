"""Positions of a consumer group on their way into a transaction.

Rule never broken: the node has noted each of them before a commit is asked for; one that it refused makes the
transaction roll back, here as there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast.client.errors import AdminError, OwnershipLostError
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.management_requests import Exchange

NOTED_AT_ONCE = 8
"""Each goes over two links of its own: a connection has a limit of links."""


class CommittablePosition(Protocol):
    """What a consumer has handed out of one partition, to be committed in the name of the claim that it had."""

    @property
    def log(self) -> str: ...
    @property
    def arguments(self) -> Mapping[str, Any]:
        """Of the request `group.commit`."""
        ...

    def committed(self) -> None: ...


class OffsetsConsumer(Protocol):
    """`holdfast.client.ConsumerClient`."""

    def handed_out(self) -> Sequence[CommittablePosition]:
        """Raises OwnershipLostError when some of it is not this consumer's any more."""
        ...


async def note_all(
    connection: ClientConnection, txn_id: bytes, positions: Sequence[CommittablePosition], bound_s: float
) -> list[BaseException]:
    """Have the node note them as part of the transaction. What failed; []: all are noted."""
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
