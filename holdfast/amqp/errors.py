"""Errors on an AMQP connection, and whose fault they are.

Two families, never mixed. An `Error` is *data*: the AMQP error (condition, description, info) that travels in
close, end, detach and rejected, in either direction; a peer's misbehaviour is always reported as such data in
an event, so that one bad peer cannot throw an exception through a server's loop. Exceptions are for our own
side: `UsageError` says the caller broke the engine's rules (a bug here), `MalformedMessage` says that bytes
handed to a codec are not an AMQP message (the sender's fault; do not retry the same bytes). Rejected
alternative: exceptions for peer errors, which every call site would have to catch and translate back into a
condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# amqp-error
INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
RESOURCE_LOCKED = "amqp:resource-locked"
PRECONDITION_FAILED = "amqp:precondition-failed"
RESOURCE_DELETED = "amqp:resource-deleted"
ILLEGAL_STATE = "amqp:illegal-state"
# connection-error
CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
CONNECTION_REDIRECT = "amqp:connection:redirect"
# session-error
ERRANT_LINK = "amqp:session:errant-link"
HANDLE_IN_USE = "amqp:session:handle-in-use"
# link-error
DETACH_FORCED = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
LINK_REDIRECT = "amqp:link:redirect"
LINK_STOLEN = "amqp:link:stolen"
# transaction-error
TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT = "amqp:transaction:timeout"


@dataclass(frozen=True, slots=True)
class Error:
    """An AMQP error as it travels: `info` is a map whose keys are written as symbols."""

    condition: str
    description: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}" if self.description else self.condition


class AmqpException(Exception):
    """Base of the exceptions of this package."""


class UsageError(AmqpException):
    """The caller of the engine broke one of its rules; a bug on this side, never a peer's doing."""


class MalformedMessage(AmqpException):
    """The bytes are not an AMQP message (or value). The sender's fault; the same bytes will fail again."""


class Unencodable(AmqpException):
    """A Python value has no AMQP form (or does not fit the one asked for). The caller's fault."""
