"""`$cbs`: the link by which a peer shows tokens, each for one audience. What a token allows is `node/security/`'s word.

Rule never broken: every put-token that can be read is answered once, with the service's status: 202, 401 for a token
that is not believed, 400 for what is no token.
"""

from __future__ import annotations

from typing import Any

from holdfast import protocol
from holdfast.amqp import Message, Value, encode_message, int32
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.event_hubs.addresses import path_of
from node.listener.management import Management, correlation_of

PUT_TOKEN, SET_TOKEN = "put-token", "set-token"
ACCEPTED_STATUS = 202

MAX_AUDIENCE_CHARACTERS = 1024
"""Characters of an audience, which is kept as long as its connection: a host, a hub and a group."""


class TokenLink(Management):
    """The link that takes tokens."""

    async def _answer(self, message: Message, own: ClientTransaction | None) -> bytes:
        said = message.application_properties
        body = message.body.value if isinstance(message.body, Value) else message.body
        operation = said.get(protocol.OPERATION)
        if own is not None:
            own.refuse("a token cannot be part of a transaction")
            return _told(message, 400, "a token cannot be part of a transaction: put it without one")
        if operation not in (PUT_TOKEN, SET_TOKEN):
            return _told(message, 400, f"no operation {str(operation)[:40]!r} here; known: {PUT_TOKEN}, {SET_TOKEN}")
        token = body.decode("ascii", "replace") if isinstance(body, bytes) else body
        audience, kind = said.get(protocol.NAME), said.get(protocol.TYPE)
        if not isinstance(token, str) or not isinstance(audience, str) or not isinstance(kind, str):
            return _told(message, 400, "put-token needs texts: a type, the audience as name, and a token")
        if len(audience) > MAX_AUDIENCE_CHARACTERS:
            return _told(message, 400, f"the audience has more than {MAX_AUDIENCE_CHARACTERS} characters")
        why = await self.host.put_token(str(kind), path_of(audience), str(token))
        return _told(message, ACCEPTED_STATUS, "Accepted") if why is None else _told(message, 401, why)


def _told(message: Message, status: int, description: str) -> bytes:
    properties: dict[str, Any] = {
        protocol.STATUS_CODE: int32(status),
        protocol.STATUS_DESCRIPTION: description,
    }
    return encode_message(
        Message(correlation_id=correlation_of(message), application_properties=properties, body=Value(None))
    )
