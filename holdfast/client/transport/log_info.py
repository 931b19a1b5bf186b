"""Contents of a log's `$info` address: its partitions and how far they reach."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import protocol
from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.message import Value, decode_message, offset_text
from holdfast.client.errors import HoldfastError, ProtocolError, TimeoutExpiredError
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.network import Backoff, Network
from holdfast.client.waits.suspend_aware_timeout import Patience


@dataclass(frozen=True)
class PartitionInfo:
    """One partition. `details` holds what else the node tells (leader, replicas, ...)."""

    partition: str
    earliest_offset: str | None  # None: nothing is stored
    latest_offset: str | None
    latest_timestamp_ms: int | None  # None: nothing is stored, or the node does not say
    available: bool  # False: its leader could not be asked, so the offsets are unknown
    details: Mapping[str, Any]
    stable_offset: str | None = None  # committed readers get what lies below; None: the node knows no transactions
    open_transactions: int = 0
    aborted_transactions: int = 0  # with events that are stored, and delivered to uncommitted readers only

    @property
    def has_transactions(self) -> bool:
        """True if committed readers may be left without the last ones of the events that they may have."""
        return self.open_transactions > 0 or self.aborted_transactions > 0

    @property
    def last_stable_offset(self) -> str | None:
        """The last offset that committed readers may have; None: there is none yet."""
        stable, latest, earliest = self.stable_offset, self.latest_offset, self.earliest_offset
        if stable is None or latest is None or earliest is None or stable > latest:
            return latest
        return None if stable <= earliest else offset_text(int(stable, 16) - 1)


class OneMessage:
    """A link's owner that waits for a single message."""

    def __init__(self) -> None:
        self._future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_transfers(self, payloads: list[bytes]) -> None:
        if not self._future.done():
            self._future.set_result(payloads[0])

    def on_closed(self, error: HoldfastError) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            self._future.exception()  # known, even if the caller has failed before it waits

    async def wait(self, bound_s: float, what: str) -> bytes:
        try:
            async with Patience(bound_s):
                return await self._future
        except TimeoutError:
            raise TimeoutExpiredError(f"{what}: no answer within {bound_s:g} s") from None


async def read_complete_info(network: Network, log: str, *, timeout_s: float) -> list[PartitionInfo]:
    """Read the info again and again, until every partition could be asked for its offsets."""
    loop = asyncio.get_running_loop()
    deadline_s, backoff = loop.time() + timeout_s, Backoff()
    while True:
        infos = await read_info(network, log, timeout_s=deadline_s - loop.time())
        missing = [info.partition for info in infos if not info.available]
        if not missing:
            return infos
        await backoff.wait()
        if loop.time() >= deadline_s:
            raise TimeoutExpiredError(
                f"log {log!r}: no leader answers for partition {', '.join(missing)}",
                advice="check that a majority of each partition's replicas is up, then try again",
            )


async def read_info(network: Network, log: str, *, timeout_s: float) -> list[PartitionInfo]:
    """Ask any node; raises `NotFoundError` when there is no such log."""

    async def question(connection: ClientConnection, bound_s: float) -> bytes:
        answer = OneMessage()
        receiver = await connection.attach_receiver(
            log + protocol.INFO_SUFFIX, None, None, answer, bound_s=bound_s, which=network.log(log)
        )
        try:
            receiver.grant(1)
            return await answer.wait(bound_s, f"information about log {log!r}")
        finally:
            await receiver.close()

    payload = await network.ask(question, f"information about log {log!r}", timeout_s=timeout_s)
    try:
        body = decode_message(payload).body
        return _parse(body.value if isinstance(body, Value) else None)
    except (MalformedMessage, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"the node's information about log {log!r} cannot be read: {error!r}") from error


def _parse(body: Any) -> list[PartitionInfo]:
    known = {
        protocol.INFO_PARTITION,
        protocol.INFO_EARLIEST_OFFSET,
        protocol.INFO_LATEST_OFFSET,
        protocol.INFO_LATEST_TIMESTAMP,
        protocol.INFO_AVAILABLE,
        protocol.INFO_STABLE_OFFSET,
        protocol.INFO_OPEN_TRANSACTIONS,
        protocol.INFO_ABORTED_TRANSACTIONS,
    }
    found = []
    for entry in body[protocol.INFO_PARTITIONS]:
        entry = {str(name): value for name, value in entry.items()}
        earliest, latest = entry.get(protocol.INFO_EARLIEST_OFFSET), entry.get(protocol.INFO_LATEST_OFFSET)
        found.append(
            PartitionInfo(
                partition=str(entry[protocol.INFO_PARTITION]),
                earliest_offset=None if earliest is None else str(earliest),
                latest_offset=None if latest is None else str(latest),
                latest_timestamp_ms=None
                if (at_ms := entry.get(protocol.INFO_LATEST_TIMESTAMP)) is None
                else int(at_ms),
                available=bool(entry.get(protocol.INFO_AVAILABLE, True)),
                stable_offset=None
                if (stable := entry.get(protocol.INFO_STABLE_OFFSET)) is None
                else _counted(str(stable)),
                open_transactions=int(entry.get(protocol.INFO_OPEN_TRANSACTIONS) or 0),
                aborted_transactions=int(entry.get(protocol.INFO_ABORTED_TRANSACTIONS) or 0),
                details={name: value for name, value in entry.items() if name not in known},
            )
        )
    return found


def _counted(offset: str) -> str:
    """Check an offset. They are opaque, but a node that tells a stable one counts events in them, as Holdfast's do."""
    int(offset, 16)
    return offset
