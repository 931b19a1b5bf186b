"""Errors in the words of the Event Hubs service: SDKs map the conditions, and people search for the sentences."""

from __future__ import annotations

from holdfast import protocol
from holdfast.amqp.errors import (
    CONNECTION_FORCED,
    INVALID_FIELD,
    LINK_STOLEN,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    UNAUTHORIZED_ACCESS,
    Error,
)
from node.security.authorisation import Need


def hub_not_found(path: str) -> Error:
    return Error(NOT_FOUND, f"The messaging entity '{path}' could not be found.")


def partition_out_of_range(hub: str, partition: str, count: int) -> Error:
    text = (
        f"The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 and "
        f"{count - 1}: hub '{hub}' has no partition '{partition}'."
    )
    return Error(protocol.ARGUMENT_OUT_OF_RANGE, text)


def group_invalid(path: str, most: int) -> Error:
    text = f"The messaging entity '{path}' could not be found. A consumer group's name has 1 to {most} characters."
    return Error(NOT_FOUND, text)


def receiver_needs_partition(path: str) -> Error:
    text = f"'{path}' names no partition: receive from HUB/ConsumerGroups/GROUP/Partitions/ID, one link for each"
    return Error(NOT_ALLOWED, text)


def filter_invalid(expression: object) -> Error:
    return Error(NOT_ALLOWED, f"The filter '{expression}' is not a valid amqp filter for EventHub entities.")


def epoch_invalid(value: object) -> Error:
    text = f"{protocol.HUB_EPOCH} must be a whole number from 0 on, not {value!r}; correct the owner level"
    return Error(INVALID_FIELD, text)


def message_too_large(size: int, most: int) -> Error:
    text = f"The received message (size:{size} bytes) exceeds the limit ({most} bytes) currently allowed on the link."
    return Error(MESSAGE_SIZE_EXCEEDED, text)


def position_invalid(what: str, supplied: int, last: int, *, resets: bool = False) -> Error:
    """`resets`: the peer knows the condition by which its processor drops a checkpoint and begins anew."""
    text = f"The supplied {what} '{supplied}' is invalid. The last {what} in the system is '{last}'"
    return Error(protocol.INVALID_OFFSET if resets else protocol.ARGUMENT_ERROR, text)


def epoch_refused(receiver: str, epoch: int, other: str, higher: int) -> Error:
    text = (
        f"Receiver '{other}' with a higher epoch '{higher}' already exists. Receiver '{receiver}' with epoch {epoch} "
        "cannot be created. Make sure you are creating receiver with increasing epoch value to ensure connectivity, or "
        "ensure all old epoch receivers are closed or disconnected."
    )
    return Error(LINK_STOLEN, text)


def guest_refused(epoch: int) -> Error:
    text = (
        f"At least one receiver for the endpoint is created with epoch of '{epoch}', and so non-epoch receiver is not "
        "allowed. Either reconnect with a higher epoch, or make sure all epoch receivers are closed or disconnected."
    )
    return Error(LINK_STOLEN, text)


def receiver_disconnected(receiver: str, epoch: int, other: str, higher: int) -> Error:
    text = (
        f"New receiver '{other}' with higher epoch of '{higher}' is created hence current receiver '{receiver}' with "
        f"epoch '{epoch}' is getting disconnected. If you are recreating the receiver, make sure a higher epoch is "
        "used."
    )
    return Error(LINK_STOLEN, text)


def unauthorized(claim: str, path: str) -> Error:
    text = f"Unauthorized access. '{claim}' claim(s) are required to perform this operation. Resource: '{path}'."
    return Error(UNAUTHORIZED_ACCESS, text)


def unauthorized_for(need: Need, path: str) -> Error:
    return unauthorized("Send" if need.operation == "publish" else "Listen", path)


def send_again(why: str) -> Error:
    return Error(CONNECTION_FORCED, f"{why}; connect again and resend what was not accepted")
