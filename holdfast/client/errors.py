"""Errors that a user of the client may see, and what to do about them.

Problem: a program must decide by itself whether to try again, and a person must learn whose fault it was.
Rule never broken: every error that leaves `holdfast.client` is a `HoldfastError`; it says whether the same call may
succeed later (`retriable`) and what to do (`advice`).
Rejected: passing AMQP conditions through as they are; two nodes' wordings would become everybody's interface.
"""

from __future__ import annotations

from typing import Any

from holdfast import protocol
from holdfast.amqp.errors import LINK_STOLEN, RESOURCE_DELETED, RESOURCE_LOCKED, UNAUTHORIZED_ACCESS

GRANT_ADVICE = "ask an administrator for that grant; `holdfast whoami` tells as whom the cluster knows you"


class HoldfastError(Exception):
    """Base of everything the client raises. `str(error)` is one or two sentences for a person."""

    retriable = False
    advice = ""

    def __init__(self, message: str, *, advice: str | None = None, retriable: bool | None = None) -> None:
        super().__init__(message)
        if advice is not None:
            self.advice = advice
        if retriable is not None:
            self.retriable = retriable


class ConfigurationError(HoldfastError):
    """The caller gave something that can never work: an address that is none, a negative window."""

    advice = "correct the argument"


class UnreachableError(HoldfastError):
    """The servers accepted no connection within the time allowed."""

    retriable = True
    advice = "check the address and that the cluster is up (holdfast cluster status); then try again"


class ConnectionLostError(HoldfastError):
    """The connection ended while it was in use."""

    retriable = True
    advice = "try again: the client connects to another node where it can"


class ProtocolError(HoldfastError):
    """The peer's bytes were not AMQP as we know it, or it broke a rule of the protocol."""

    advice = "check that the port is an AMQP 1.0 port of a Holdfast node"


class AuthenticationError(HoldfastError):
    """The node did not let this client in, or could not show that it is the node that was meant."""

    advice = "correct user, password, token or certificate; or ask who administers the cluster"


class DamagedEventError(ProtocolError):
    """An event that was read is no message that can be decoded. Nodes refuse such today; older logs may hold some."""

    advice = "read past it: on_damaged in the consumer's options, or `holdfast consume --skip-damaged`"

    def __init__(self, partition: str, offset: str, reason: str) -> None:
        super().__init__(f"event {offset} of partition {partition} is damaged: {reason}")
        self.partition, self.offset, self.reason = partition, offset, reason


class DamagedBatchError(ProtocolError):
    """Events were damaged on their way here: when they were asked for again, they came damaged again."""

    retriable = True
    advice = "check the network and the memory of the machines in between; then read on where this reader was"

    def __init__(self, partition: str, reason: str) -> None:
        super().__init__(f"what came of partition {partition} is not what was stored: {reason}")
        self.partition, self.reason = partition, reason


class InternalError(HoldfastError):
    """Something happened in this client that should not. It is the cause (`__cause__`) of what its user is told."""

    advice = "this is a defect of the client: report it, with the whole traceback"

    @classmethod
    def of(cls, cause: Exception) -> InternalError:
        error = cls(f"a defect of this client ({type(cause).__name__}: {cause})")
        error.__cause__ = cause
        return error


class TimeoutExpiredError(HoldfastError):
    """A wait reached its bound. What was asked may still take effect."""

    retriable = True
    advice = "try again, or allow more time"


class ClosedError(HoldfastError):
    """The object was closed by its owner."""

    advice = "open a new one"


class BufferFullError(HoldfastError):
    """The bounded buffer has no room now."""

    retriable = True
    advice = "await send(), which waits for room, or slow down"


class BatchFullError(HoldfastError):
    """The batch has no room for this event."""

    advice = "send the batch, and put the event into a new one"


class InvalidOperationError(HoldfastError):
    """The state does not allow it: a batch is being published or was, an event has its number already."""

    advice = "make a new batch, or new events"


class UnsupportedError(HoldfastError):
    """The feature does not exist (yet), here or at the node."""

    advice = "see docs/reference/client.md for what there is"


class LinkRefusedError(HoldfastError):
    """The node refused or ended a link. `condition` is the AMQP error condition."""

    def __init__(
        self, message: str, *, condition: str = "", advice: str | None = None, retriable: bool = False
    ) -> None:
        super().__init__(message, advice=advice, retriable=retriable)
        self.condition = condition


class NotFoundError(LinkRefusedError):
    """The log, or the partition, does not exist."""

    advice = "check the name with `holdfast log list`, or create the log"


class NotAuthorizedError(LinkRefusedError):
    """The identity that this client is known by may not do that, or may not any more."""

    advice = GRANT_ADVICE


class LogDeletedError(LinkRefusedError):
    """The log was deleted, or another cluster answers at the address. What has its name now is another log."""

    advice = "to use the log that has the name now, if there is one, open a new client"


class ProducerStateError(LinkRefusedError):
    """An idempotent producer and the partition disagree about its identity, or which number comes next."""

    advice = (
        "recreate the client: without options it takes the partition's numbers (what was in doubt may then be stored "
        "twice), with the saved ones it continues its own"
    )


class OutOfOrderError(ProducerStateError):
    """A sequence number was neither the next one, nor known for the same event. Nothing of it was stored."""


class ProducerStolenError(LinkRefusedError):
    """Another client opened the same producer group with a higher owner level: this one must not publish any more."""

    advice = "stop publishing to this partition; only who is to take it over opens it with a higher owner level"


class ProducerFencedError(HoldfastError):
    """Another producer holds the transactional id now. What was not committed before never will be."""

    advice = (
        "stop: another instance of this program goes on; do not open the id again unless this one is to take it back"
    )


class TransactionRolledBackError(HoldfastError):
    """Nothing of the transaction counts, now or ever. `condition`: the node's, if it said so."""

    retriable = True
    advice = "do the work again, in a new transaction"

    def __init__(
        self, message: str, *, condition: str = "", advice: str | None = None, retriable: bool | None = None
    ) -> None:
        super().__init__(message, advice=advice, retriable=retriable)
        self.condition = condition


class GroupFencedError(ProducerFencedError):
    """A newer run of the writer has the batch, or the batch is closed. What was not committed before never will be."""

    advice = "stop: a newer run of this writer goes on, or the batch is done"


class GroupAbortedError(TransactionRolledBackError):
    """Nothing of the batch counts, now or ever, as it was opened."""

    advice = "open the batch again, and write it anew"


class NotPreparedError(HoldfastError):
    """Members that were named as winners are not prepared. Nothing was decided."""

    advice = "name only what `prepare` has returned; parts whose attempts were lost have to be written again"


class WriterChangedError(HoldfastError):
    """The batch would be taken for done, but it is another query's than the one that was done."""

    advice = "give the query a writer of its own; if its checkpoint was deleted on purpose, a new name starts from 0"


class TransactionOutcomeUnknownError(HoldfastError):
    """The answer to the commit got lost, and what became of it cannot be learnt here. `producer_id` and `epoch` name
    the transaction, if the node told them."""

    advice = (
        "find out by what was to be written before you do the work again; with a transactional_id the client can ask"
    )

    def __init__(
        self, message: str, *, producer_id: int | None = None, epoch: int | None = None, advice: str | None = None
    ) -> None:
        super().__init__(message, advice=advice)
        self.producer_id, self.epoch = producer_id, epoch


class PartitionOwnedError(LinkRefusedError):
    """Another receiver reads the partition for this group, and no greater epoch was claimed."""

    advice = "wait until the other receiver has gone, or claim the partition with a greater epoch"


class OwnershipLostError(LinkRefusedError):
    """Another receiver reads the partition for this group now. What was not committed is delivered to it. `in_doubt`:
    of a commit that was refused so, when an earlier try of it was not answered: it may have counted, before the other
    receiver came."""

    advice = "stop working on the partition; do not claim it again unless this consumer is to take it back"

    def __init__(
        self,
        message: str,
        *,
        condition: str = "",
        advice: str | None = None,
        retriable: bool = False,
        in_doubt: bool = False,
    ) -> None:
        super().__init__(message, condition=condition, advice=advice, retriable=retriable)
        self.in_doubt = in_doubt


class LinkRedirected(HoldfastError):
    """The node says where the partition is served: followed inside the client, never seen by its users."""

    retriable = True
    advice = "attach at the address given"

    def __init__(self, host: str, port: int, hostname: str, address: str) -> None:
        super().__init__(f"the link is served at {host}:{port}")
        self.host, self.port, self.hostname, self.address = host, port, hostname, address


NO_ROOM = "amqp:resource-limit-exceeded"
NO_ROOM_ADVICE = (
    "the event is as it should be: send it again later; where a disk is full, free space on that node or shorten the"
    " retention of logs (holdfast log alter NAME --retention 7d)"
)


class RejectedError(HoldfastError):
    """The node refused an event. It was not stored, and sending the same again would be refused again, unless the node
    had no room for it (`condition` amqp:resource-limit-exceeded)."""

    advice = "correct the event; the reason is in the message"

    def __init__(self, message: str, *, condition: str = "") -> None:
        super().__init__(message, advice=NO_ROOM_ADVICE if condition == NO_ROOM else None)
        self.condition = condition


class EventTooLargeError(RejectedError):
    """The event is larger than the node takes, or than the batch may become."""

    advice = "split the event, or have the node's max_message_size raised"

    def __init__(self, message: str, *, condition: str = "amqp:link:message-size-exceeded") -> None:
        super().__init__(message, condition=condition)

    @classmethod
    def of(cls, size: int, limit: int) -> EventTooLargeError:
        return cls(f"event refused: it has {size} bytes, encoded, and the node takes {limit}: split it")


class UndeliveredError(HoldfastError):
    """Events could not be confirmed before the producer gave up; they may or may not be stored."""

    advice = "check that the cluster has a majority of its nodes, then send them again (readers may see copies)"

    def __init__(self, message: str, *, count: int, advice: str | None = None) -> None:
        super().__init__(message, advice=advice)
        self.count = count

    @classmethod
    def of(cls, text: str, count: int, cause: HoldfastError | None, *, advice: str | None = None) -> UndeliveredError:
        """Make the error of `text` and of its cause, if that is known. Without an `advice` it has the cause's, unless
        the cause may pass."""
        if advice is None and cause is not None and not cause.retriable:
            advice = cause.advice or None
        error = cls(text if cause is None else f"{text}: {cause}", count=count, advice=advice)
        error.__cause__ = cause
        return error


class AdminError(HoldfastError):
    """The cluster answered an administrative request with a failure. `code` is its error code. `in_doubt`: an earlier
    try of the request was not answered, and may have been carried out before this one was refused."""

    in_doubt = False

    def __init__(self, message: str, *, code: str, status: int, retriable: bool, kind: str = "log") -> None:
        """`kind`: of what was asked for, as in the request."""
        advice = NOT_FOUND_ADVICE.get(kind, "") if code == "not-found" else ADMIN_ADVICE.get(code, "")
        super().__init__(message, retriable=retriable, advice=advice)
        self.code, self.status = code, status


NOT_FOUND_ADVICE = {
    "log": "see what exists: `holdfast log list`",
    "node": "see what exists: `holdfast node list`",
    "group": "see what exists: `holdfast group list LOG`; and of logs: `holdfast log list`",
    "producer": "see what exists: `holdfast producer list LOG`; and of logs: `holdfast log list`",
    "transaction": "see what exists: `holdfast txn list`",
    "transaction-group": "see what exists: `holdfast txn groups list`",
    "user": "see what exists: `holdfast user list`",
    "grant": "see what exists: `holdfast grant list`",
}


ADMIN_ADVICE = {
    "invalid-argument": "correct the request",
    "not-authorized": GRANT_ADVICE,
    "already-exists": "use the one that exists, or choose another name",
    "not-enough-nodes": "ask for fewer replicas, or add nodes",
    "unavailable": "nothing was changed; try again when a majority of the nodes is up",
    "unknown": "it may have been done: look before you repeat it",
    "internal-error": "the node's log has the cause",
    "group-active": "stop the group's receivers first",
    "not-owner": "stop working on the partition: another receiver has it now",
    "group-aborted": "see what is open: `holdfast txn groups list`",
    "not-implemented": "the node is older than this client",
}

# Conditions after which the same attach, perhaps at another node, may succeed.
RETRIABLE_CONDITIONS = frozenset(
    {
        "amqp:link:detach-forced",
        "amqp:connection:forced",
        "amqp:resource-locked",
        "amqp:resource-limit-exceeded",
        "amqp:internal-error",
    }
)


# What ends an idempotent producer, by condition.
FATAL_TO_PRODUCERS: dict[str, type[LinkRefusedError]] = {
    protocol.PRODUCER_STOLEN: ProducerStolenError,
    protocol.OUT_OF_ORDER: OutOfOrderError,
    RESOURCE_DELETED: LogDeletedError,
}


def link_error(condition: str | None, description: str | None, info: dict[Any, Any] | None, what: str) -> HoldfastError:
    """The typed error for a link that a node refused, redirected or ended."""
    condition, text = condition or "", description or ""
    if condition == "amqp:link:redirect":
        details = {str(key): value for key, value in (info or {}).items()}
        hostname = str(details.get("hostname") or "")
        host, port = str(details.get("network-host") or hostname), details.get("port")
        if not host or not isinstance(port, int) or not 0 < port < 65536:
            return ProtocolError(f"{what}: the node redirects without a usable address ({details})")
        return LinkRedirected(host, int(port), hostname, str(details.get("address") or ""))
    if condition == UNAUTHORIZED_ACCESS:
        return NotAuthorizedError(f"{what}: {text or condition}", condition=condition)
    message = f"{what}: {text or condition or 'ended by the node without a reason'}"
    if condition == "amqp:not-found":
        return NotFoundError(message, condition=condition)
    if condition in FATAL_TO_PRODUCERS:
        return FATAL_TO_PRODUCERS[condition](message, condition=condition)
    if condition == LINK_STOLEN:
        return OwnershipLostError(message, condition=condition)
    if condition == RESOURCE_LOCKED:
        return PartitionOwnedError(message, condition=condition, retriable=True)
    retriable = condition in RETRIABLE_CONDITIONS or not condition
    advice = "try again" if retriable else f"the node's reason is final ({condition})"
    return LinkRefusedError(message, condition=condition, retriable=retriable, advice=advice)
