"""A request to `$management`, and its answer (`holdfast.protocol` has the protocol in full).

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
from collections.abc import Mapping
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import symbol
from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.links.delivery_states import ACCEPTED, DeliveryState, Transactional
from holdfast.amqp.messages.message import (
    Message,
    Value,
    decode_message,
    encode_message,
)
from holdfast.client.errors import AdminError, HoldfastError, ProtocolError, TimeoutExpiredError
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.log_info import OneMessage
from holdfast.client.transport.network import Network
from holdfast.client.waits.suspend_aware_timeout import Patience

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
    unanswered: Exchange | None = None
    in_doubt = False  # an earlier try may have been carried out

    async def question(connection: ClientConnection, bound_s: float) -> dict[str, Any]:
        nonlocal unanswered, in_doubt
        exchange = unanswered = Exchange(connection, what, bound_s)
        try:
            answer = await exchange.run(kind, operation, name, arguments)
        except HoldfastError as error:
            unanswered = None
            if changes and exchange.sent and not isinstance(error, AdminError):
                raise _outcome_unknown(what, error) from error
            if isinstance(error, AdminError) and not error.retriable:
                error.in_doubt = in_doubt
            else:
                in_doubt = in_doubt or exchange.sent
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


class Exchange:
    """One request and its answer, over a pair of links that live as long as it. `txn_id`: it is part of that
    transaction."""

    def __init__(self, connection: ClientConnection, what: str, bound_s: float, txn_id: bytes | None = None) -> None:
        self.sent = False
        self._connection, self._what, self._bound_s, self._txn_id = connection, what, bound_s, txn_id
        self._answer = OneMessage()
        self._receiver: Any = None
        self._sender: Any = None
        self._outcome: DeliveryState | None = None
        self._credit = asyncio.Event()

    async def run(self, kind: str, operation: str, name: str | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
        connection, bound_s = self._connection, self._bound_s
        self._receiver = await connection.attach_receiver(
            protocol.MANAGEMENT_ADDRESS, None, None, self._answer, bound_s=bound_s, dynamic=True
        )
        self._receiver.grant(1)
        self._sender = await connection.attach_sender(protocol.MANAGEMENT_ADDRESS, None, self, bound_s=bound_s)
        try:
            async with Patience(bound_s):
                while self._sender.credit < 1:
                    self._credit.clear()
                    await self._credit.wait()
        except TimeoutError:
            raise TimeoutExpiredError(f"{self._what}: the node takes no requests") from None
        properties = {"operation": operation, "type": kind}
        if name is not None:
            properties["name"] = name
        request = Message(
            message_id=f"request-{next(_numbers)}",
            reply_to=self._receiver.address,
            application_properties=properties,
            body=Value(dict(arguments)),
        )
        self._sender.send_many([encode_message(request)], txn_id=self._txn_id)
        self.sent = True
        return self._read(kind, await self._answer.wait(bound_s, self._what))

    def _read(self, kind: str, payload: bytes) -> dict[str, Any]:
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
            kind=kind,
        )

    async def close(self) -> None:
        for link in (self._sender, self._receiver):
            if link is not None:
                await link.close()

    # The sender's owner.

    def on_credit(self) -> None:
        self._credit.set()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for _, told in outcomes:
            state = told.outcome if isinstance(told, Transactional) else told
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
