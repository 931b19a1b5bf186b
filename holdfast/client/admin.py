"""Administration over `$management`: logs, nodes, the cluster's state.

Problem: a request whose answer got lost may have been carried out; repeating it blindly reports failures that are
none (or does things twice).
Rule never broken: what only reads is asked again, anywhere, until the timeout. What changes something is asked again
only while it certainly was not done (no request went out, or the cluster answered that nothing happened); otherwise
the error says that the outcome is unknown.
Rejected: links kept open between requests: requests are rare, and a link that has to be watched is one more state.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import symbol
from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.links.delivery_states import ACCEPTED, DeliveryState
from holdfast.amqp.messages.message import (
    Message,
    Value,
    decode_message,
    encode_message,
)
from holdfast.client.errors import AdminError, ConfigurationError, HoldfastError, ProtocolError, TimeoutExpiredError
from holdfast.client.transport.connection import Connection
from holdfast.client.transport.log_info import (
    OneMessage,
    PartitionInfo,
    read_complete_info,
    read_info,
)
from holdfast.client.transport.network import Network, NetworkOptions

GROUPS_PER_ANSWER = 1000  # a node tells no more at once
PRODUCERS_PER_REQUEST = 1000  # about 100 KiB of answer


class AdminClient:
    """Administrative requests to one cluster.

    async with AdminClient("127.0.0.1:5672") as admin:
        await admin.create_log("trades", partitions=4, replicas=3)
    """

    def __init__(
        self, servers: str | Sequence[str], *, timeout_s: float = 30.0, options: NetworkOptions | None = None
    ) -> None:
        self._network = Network(servers, options)
        self._timeout_s = timeout_s

    async def __aenter__(self) -> AdminClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._network.close()

    # ---------------------------------------------------------------- requests

    async def create_log(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> dict[str, Any]:
        """Create a log; answers its description. Retention None: keep for ever."""
        arguments = {
            "partitions": partitions,
            "replicas": replicas,
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
        }
        given = {key: value for key, value in arguments.items() if value is not None}
        return await self._request("log", "create", name, given, changes=True)

    async def list_logs(self) -> list[dict[str, Any]]:
        """All logs: name, partitions (how many), replicas, retention."""
        return list((await self._request("log", "list", None, {}, changes=False)).get("logs", []))

    async def describe_log(self, name: str) -> dict[str, Any]:
        """One log: its partitions with leader and replicas, its retention."""
        return await self._request("log", "describe", name, {}, changes=False)

    async def alter_log(self, name: str, **changes: int | None) -> dict[str, Any]:
        """Change `partitions` (more, never fewer), `retention_ms`, `retention_bytes` (None: keep for ever)."""
        return await self._request("log", "alter", name, changes, changes=True)

    async def delete_log(self, name: str) -> None:
        """Delete a log with all its events."""
        await self._request("log", "delete", name, {}, changes=True)

    async def dump_log(
        self, name: str, partition: str = "0", *, after: int = 0, offset: str | None = None, limit: int = 100
    ) -> dict[str, Any]:
        """`entries` of the partition's log as its leader stores them, behind index `after`, or from the one that holds
        the event at `offset` on; at most `limit`. `last_index`: there is more while the last entry lies before it."""
        arguments: dict[str, Any] = {"partition": _number(partition), "after": after, "limit": limit}
        if offset is not None:
            arguments["offset"] = offset
        return await self._request("log", "dump", name, arguments, changes=False)

    async def list_producers(self, log: str, *, partition: str | None = None) -> list[dict[str, Any]]:
        """The idempotent producers that a log's partitions remember, by partition and id: partition, producer_id (the
        producer group), epoch (the owner level), last_sequence, last_offset, last_active_ms, remembered."""
        if partition is None:
            partitions = [str(entry["partition"]) for entry in (await self.describe_log(log))["partitions"]]
        else:
            partitions = [partition]
        found: list[dict[str, Any]] = []
        for name in partitions:
            after = -1
            while True:
                given = {"partition": _number(name), "after": after, "limit": PRODUCERS_PER_REQUEST}
                page = await self._request("producer", "list", log, given, changes=False)
                producers = list(page.get("producers", []))
                found += producers
                if len(producers) < PRODUCERS_PER_REQUEST:
                    break
                after = int(producers[-1]["producer_id"])
        return found

    async def describe_producer(self, log: str, partition: str, producer_group_id: int) -> dict[str, Any]:
        """What a partition remembers of one idempotent producer."""
        given = {"partition": _number(partition), "producer_id": producer_group_id}
        return await self._request("producer", "describe", log, given, changes=False)

    async def list_groups(self, log: str) -> list[dict[str, Any]]:
        """The consumer groups of a log, by name: group, members, active_partitions, committed_partitions, lag."""
        found: list[dict[str, Any]] = []
        while True:
            given = {"after_group": found[-1]["group"] if found else None}
            page = list((await self._request("group", "list", log, given, changes=False)).get("groups", []))
            found += page
            if len(page) < GROUPS_PER_ANSWER:
                return found

    async def describe_group(self, log: str, group: str) -> dict[str, Any]:
        """Where a group stands, who reads for it, and how far it is behind: group, lag, partitions."""
        return await self._request("group", "describe", log, {"group": group}, changes=False)

    async def commit_group(
        self, log: str, group: str, partition: str, offset: str, *, claim: int | None = None
    ) -> dict[str, Any]:
        """The event at `offset` and all before it are done. `claim`: in the name of a receiver; without it, only while
        nobody reads the partition for the group. Repeating it does no harm."""
        given = {"group": group, "partition": _number(partition), "offset": offset, "claim": claim}
        return await self._request("group", "commit", log, given, changes=False)

    async def reset_group(self, log: str, group: str, to: str, *, partition: str | None = None) -> dict[str, Any]:
        """Set a group that nobody reads for to `@earliest`, `@latest`, behind an offset, or to `none`, in one partition
        or in all; where it stands then. Repeating it does no harm."""
        given = {"group": group, "to": to, "partition": None if partition is None else _number(partition)}
        return await self._request("group", "reset", log, given, changes=False)

    async def delete_group(self, log: str, group: str) -> None:
        """Forget a group that nobody reads for, with its positions and its epochs."""
        await self._request("group", "delete", log, {"group": group}, changes=True)

    async def describe_node(self, node: int) -> dict[str, Any]:
        """One node: its addresses, whether it is up, and which of its replicas are catching up."""
        return await self._request("node", "describe", str(node), {}, changes=False)

    async def readmit_node(self, node: int, *, incarnation: int | None = None) -> dict[str, Any]:
        """Let a node in that has lost its data and was started with an empty directory. Only for data that are lost for
        good: a node that comes back with its old data afterwards is refused. Repeating it does no harm."""
        return await self._request("node", "readmit", str(node), {"incarnation": incarnation}, changes=True)

    async def list_nodes(self) -> list[dict[str, Any]]:
        return list((await self._request("node", "list", None, {}, changes=False)).get("nodes", []))

    async def node_status(self, node: int | None = None) -> dict[str, Any]:
        """The node that answers, by its own word; with `node`, an error when another one was reached."""
        return await self._request("node", "status", None, _of(node), changes=False)

    async def drain_node(self, node: int) -> dict[str, Any]:
        """Move the leaderships of the node that is connected to elsewhere; answers its status then. Safe to repeat."""
        return await self._request("node", "drain", None, _of(node), changes=False)

    async def resume_node(self, node: int) -> dict[str, Any]:
        """Let a drained node lead again. Safe to repeat."""
        return await self._request("node", "resume", None, _of(node), changes=False)

    async def repair_group(self, node: int, raft_group: int) -> dict[str, Any]:
        """Let the replica of a Raft group on the node that is connected to begin anew, empty and without a vote; what
        it had it gets from the others. Safe to repeat."""
        return await self._request("node", "repair", None, {"node": node, "raft_group": raft_group}, changes=False)

    async def cluster_status(self) -> dict[str, Any]:
        """The cluster as the node asked sees it."""
        return await self._request("cluster", "status", None, {}, changes=False)

    async def log_info(self, name: str, *, complete: bool = False) -> list[PartitionInfo]:
        """How far each partition reaches. `complete`: wait for partitions that have no leader now."""
        read = read_complete_info if complete else read_info
        return await read(self._network, name, timeout_s=self._timeout_s)

    # ---------------------------------------------------------------- the protocol

    async def _request(
        self, kind: str, operation: str, name: str | None, arguments: Mapping[str, Any], *, changes: bool
    ) -> dict[str, Any]:
        return await request(
            self._network, kind, operation, name, arguments, changes=changes, timeout_s=self._timeout_s
        )


_numbers = itertools.count(1)


async def request(
    network: Network,
    kind: str,
    operation: str,
    name: str | None,
    arguments: Mapping[str, Any],
    *,
    changes: bool,
    timeout_s: float,
) -> dict[str, Any]:
    """A request to `$management` of any node. `changes`: it must not be repeated when its outcome is unknown."""
    what = f"{kind} {operation}" + (f" {name!r}" if name is not None else "")
    unanswered: _Exchange | None = None

    async def question(connection: Connection, bound_s: float) -> dict[str, Any]:
        nonlocal unanswered
        exchange = unanswered = _Exchange(connection, what, bound_s)
        try:
            answer = await exchange.run(kind, operation, name, arguments, next(_numbers))
        except HoldfastError as error:
            unanswered = None
            if changes and exchange.sent and not isinstance(error, AdminError):
                raise _outcome_unknown(what, error) from error
            raise
        finally:
            await exchange.close()
        unanswered = None
        return answer

    try:
        return await network.ask(question, what, timeout_s=timeout_s)
    except TimeoutExpiredError as error:
        # The time was up in the midst of an exchange, not between two.
        if changes and unanswered is not None and unanswered.sent:
            raise _outcome_unknown(what, error) from error
        raise


def _outcome_unknown(what: str, reason: HoldfastError) -> AdminError:
    return AdminError(
        f"{what}: no answer came ({reason}); it may or may not have been done",
        code="unknown",
        status=504,
        retriable=False,
    )


class _Exchange:
    """One request and its answer, over a pair of links that live as long as it."""

    def __init__(self, connection: Connection, what: str, bound_s: float) -> None:
        self.sent = False
        self._connection, self._what, self._bound_s = connection, what, bound_s
        self._answer = OneMessage()
        self._receiver: Any = None
        self._sender: Any = None
        self._outcome: DeliveryState | None = None
        self._credit = asyncio.Event()

    async def run(
        self, kind: str, operation: str, name: str | None, arguments: Mapping[str, Any], number: int
    ) -> dict[str, Any]:
        connection, bound_s = self._connection, self._bound_s
        self._receiver = await connection.attach_receiver(
            protocol.MANAGEMENT_ADDRESS, None, None, self._answer, bound_s=bound_s, dynamic=True
        )
        self._receiver.grant(1)
        self._sender = await connection.attach_sender(protocol.MANAGEMENT_ADDRESS, None, self, bound_s=bound_s)
        try:
            async with asyncio.timeout(bound_s):
                while self._sender.credit < 1:
                    self._credit.clear()
                    await self._credit.wait()
        except TimeoutError:
            raise TimeoutExpiredError(f"{self._what}: the node takes no requests") from None
        properties = {"operation": operation, "type": kind}
        if name is not None:
            properties["name"] = name
        request = Message(
            message_id=f"request-{number}",
            reply_to=self._receiver.address,
            application_properties=properties,
            body=Value(dict(arguments)),
        )
        self._sender.send_many([encode_message(request)])
        self.sent = True
        return self._read(await self._answer.wait(bound_s, self._what))

    def _read(self, payload: bytes) -> dict[str, Any]:
        try:
            message = decode_message(payload)
        except MalformedMessage as error:
            raise ProtocolError(f"{self._what}: the answer cannot be read: {error}") from error
        properties = message.application_properties
        status = int(properties.get("status-code", 500))
        if 200 <= status < 300:
            body = plain(message.body.value) if isinstance(message.body, Value) else None
            return body if isinstance(body, dict) else {}
        raise AdminError(
            f"{self._what}: {properties.get('status-description', 'failed without a reason')}",
            code=str(properties.get("error-code", "internal-error")),
            status=status,
            retriable=bool(properties.get("retriable", False)),
        )

    async def close(self) -> None:
        for link in (self._sender, self._receiver):
            if link is not None:
                await link.close()

    # The sender's owner.

    def on_credit(self) -> None:
        self._credit.set()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for _, state in outcomes:
            if state is not ACCEPTED:
                error = getattr(state, "error", None)
                reason = str(error) if error is not None else type(state).__name__
                self._answer.on_closed(
                    AdminError(
                        f"{self._what}: not taken: {reason}", code="invalid-argument", status=400, retriable=False
                    )
                )

    def on_closed(self, error: HoldfastError) -> None:
        self._credit.set()
        self._answer.on_closed(error)


def _of(node: int | None) -> dict[str, int]:
    return {} if node is None else {"node": node}


def _number(partition: str) -> int:
    """Partitions are named by numbers in requests."""
    if not partition.isdecimal():
        raise ConfigurationError(f"{partition!r} is no partition: they are numbers, from 0 on")
    return int(partition)


def plain(value: Any) -> Any:
    """AMQP values as plain JSON-like ones."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, symbol):
        return str(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return value
