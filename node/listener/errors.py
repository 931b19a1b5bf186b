"""Errors that attaches and messages are refused with: whose fault it is, what to do, and whether to retry.

Problem: "amqp:not-found" alone leaves the reader guessing what was not found, and whether it will be.
Rule never broken: every error that leaves a listener names the thing, blames a side, and says what to do next.
Rejected: one exception class per condition. Nobody catches them by kind; they are all sent.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast import protocol
from holdfast.amqp.errors import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    DETACH_FORCED,
    INTERNAL_ERROR,
    INVALID_FIELD,
    LINK_STOLEN,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_DELETED,
    RESOURCE_LIMIT_EXCEEDED,
    RESOURCE_LOCKED,
    TRANSACTION_UNKNOWN_ID,
    UNAUTHORIZED_ACCESS,
    Error,
)
from node.partition.api import Failed, FailureKind, ReadError
from node.partition.consumer_groups.group_state import DenialCode, Denied


class Refused(Exception):
    """Refusal of an attach or a request, with an AMQP error."""

    def __init__(self, error: Error) -> None:
        super().__init__(f"{error.condition}: {error.description}")
        self.error = error


def credential_ended() -> Error:
    return Error(UNAUTHORIZED_ACCESS, "the credential that this connection was opened with has ended; log in anew")


def no_token(waited_s: float) -> Error:
    text = f"no token was shown to $cbs within {waited_s:g} s, and without one nothing is allowed: log in, or show it"
    return Error(UNAUTHORIZED_ACCESS, text)


def unknown_log(name: str) -> Error:
    return Error(NOT_FOUND, f"there is no log {name!r}; create it first, or correct the address")


def unknown_partition(log: str, partition: str, known: int) -> Error:
    return Error(
        NOT_FOUND, f"log {log!r} has no partition {partition!r} (it has {known}); ask {log}/$info for their names"
    )


def wrong_partition(wanted: str, bound: str) -> Error:
    return Error(
        PRECONDITION_FAILED,
        f"the message asks for partition {wanted!r} but this link is bound to {bound!r}; send it on another link",
    )


def log_deleted(log: str) -> Error:
    return Error(RESOURCE_DELETED, f"log {log!r} was deleted while this link was open")


def log_made_anew(log: str) -> Error:
    text = f"the log {log!r} that is meant was deleted; the one that has its name now is another: attach anew to use it"
    return Error(RESOURCE_DELETED, text)


def another_cluster(meant: str, own: str) -> Error:
    text = (
        f"another cluster answers at this address: cluster {meant[:40]} is meant, and this is {own}; correct the "
        "address, or attach anew to use what is here"
    )
    return Error(RESOURCE_DELETED, text)


def cluster_unknown() -> Error:
    return Error(DETACH_FORCED, "this node does not know yet which cluster it is a node of; attach again later")


def not_confirmed() -> Error:
    return Error(
        DETACH_FORCED,
        "it is not known here, and nobody could confirm that it is not there, since this node hears no majority of the "
        "nodes; attach again later, or through another node",
    )


def why_cut_off(silent: Collection[int]) -> str:
    """The sentence that names the nodes that do not answer (`silent`)."""
    *most, last = map(str, silent)
    nodes = f"nodes {', '.join(most)} and {last} do" if most else f"node {last} does"
    return f"this node is cut off: {nodes} not answer; start a majority of the cluster's nodes, or ask another node"


def cut_off(silent: Collection[int]) -> Error:
    return Error(CONNECTION_FORCED, why_cut_off(silent))


def out_of_reach(address: str, silent: Collection[int]) -> Error:
    what = address or "the coordinator of transactions"
    return Error(DETACH_FORCED, f"{what} is out of reach: {why_cut_off(silent)}")


def no_leader(log: str, partition: str, waited_s: float) -> Error:
    return Error(
        DETACH_FORCED,
        f"partition {partition!r} of {log!r} had no reachable leader for {waited_s:g} s; attach again later",
    )


def moved(log: str, partition: str) -> Error:
    return Error(DETACH_FORCED, f"partition {partition!r} of {log!r} changed its leader; attach again")


def order_at_risk(log: str) -> Error:
    return Error(
        DETACH_FORCED,
        f"a message to {log!r} was not accepted while later ones were under way; attach again and resend, in order, "
        "everything that was not accepted",
    )


def outcome_unknown(log: str) -> Error:
    return Error(
        DETACH_FORCED,
        f"the leader of {log!r} changed, and it cannot be known whether the unanswered messages are stored: attach "
        "again, look, or send them again and bear copies",
    )


def key_too_long(length: int, limit: int) -> Error:
    return Error(INVALID_FIELD, f"the group key has {length} characters; at most {limit} are allowed")


def batch_under_key(log: str) -> Error:
    text = (
        f"the address of this link to {log!r} gives a key to single messages, and this is a batch of Event Hubs: send "
        "that to the address without a key, with its own"
    )
    return Error(NOT_ALLOWED, text)


def search_too_long(waited_s: float) -> Error:
    return Error(DETACH_FORCED, f"the durable source was not found within {waited_s:g} s: attach again later")


def batch_without_target() -> Error:
    text = "a batch of Event Hubs on a link without a target: attach to the log, and send it there"
    return Error(NOT_ALLOWED, text)


def address_too_long(size: int, most: int) -> Error:
    text = f"the message's property `to` has {size} bytes, and an address at most {most}: name a log there"
    return Error(INVALID_FIELD, text)


def message_without_address() -> Error:
    text = "the link has no target, and the message no address in its property `to`: name a log there"
    return Error(INVALID_FIELD, text)


def unknown_transaction() -> Error:
    text = "no transaction of that id is open on this connection: it was never declared here, or discharged before"
    return Error(TRANSACTION_UNKNOWN_ID, text)


def transaction_in_doubt(log: str) -> Error:
    return Error(
        DETACH_FORCED,
        f"nobody knows whether the transaction counts under which events of {log!r} were accepted on this link: attach "
        "again, and begin where the group stands",
    )


def not_idempotent_in_transaction() -> Error:
    text = (
        "a link for idempotent publishing takes no messages in a transaction, whose messages are numbered by the node: "
        "send them on a link of their own"
    )
    return Error(NOT_ALLOWED, text)


_CONDITIONS: dict[FailureKind, str] = {
    "disk_full": RESOURCE_LIMIT_EXCEEDED,
    "overloaded": RESOURCE_LIMIT_EXCEEDED,
    "too_large": MESSAGE_SIZE_EXCEEDED,
    "malformed": DECODE_ERROR,
    "deleted": RESOURCE_DELETED,
    "rejected": PRECONDITION_FAILED,
    "producer_stolen": protocol.PRODUCER_STOLEN,
    "out_of_order": protocol.OUT_OF_ORDER,
    "producer_unknown": NOT_ALLOWED,
    "producer_invalid": protocol.ARGUMENT_OUT_OF_RANGE,
    "transaction_ended": TRANSACTION_UNKNOWN_ID,
}


def append_refused(why: Failed, log: str) -> Error:
    """The AMQP error for a partition's final refusal of an append."""
    retry = "try again later" if why.retriable else "do not send it again"
    condition = _CONDITIONS.get(why.kind, INTERNAL_ERROR)
    return Error(condition, f"log {log!r} did not take the message: {why.detail}; {retry}")


def producer_refused(why: Failed, log: str) -> Error:
    """The AMQP error for a producer that may not attach."""
    condition = _CONDITIONS.get(why.kind, INTERNAL_ERROR)
    return Error(condition, f"the producer cannot be opened on {log!r}: {why.detail}")


def producer_fenced(producer_id: int, epoch: int, by: int) -> Error:
    text = f"producer {producer_id} was opened with epoch {by}; this link has epoch {epoch} and must not send any more"
    return Error(protocol.PRODUCER_STOLEN, text)


def producer_needs_partition(log: str) -> Error:
    text = (
        f"idempotent publishing to {log!r} needs a link that is bound to a partition; "
        f"name one ({protocol.LINK_PARTITION})"
    )
    return Error(NOT_ALLOWED, text)


def numbers_unasked() -> Error:
    text = (
        "the message carries a producer's numbers, but its link was not attached for idempotent publishing: attach to a"
        f" partition with {', '.join(protocol.PRODUCER_NAMES)}, or send without them"
    )
    return Error(NOT_ALLOWED, text)


def numbers_wrong(text: str) -> Error:
    return Error(protocol.ARGUMENT_ERROR, f"{text}; correct the producer, do not resend the message")


def numbers_out_of_range(name: str, value: int, highest: int) -> Error:
    return Error(
        protocol.ARGUMENT_OUT_OF_RANGE, f"{name} lies between 0 and {highest}, not at {value}; correct the producer"
    )


_DENIALS: dict[DenialCode, str] = {
    "owned": RESOURCE_LOCKED,
    "behind": RESOURCE_LOCKED,
    "invalid": INVALID_FIELD,
    "too-many": RESOURCE_LIMIT_EXCEEDED,
    "deciding": RESOURCE_LOCKED,
}


def claim_denied(why: Denied, log: str, partition: str, group: str) -> Error:
    """The AMQP error for a receiver that may not read in a group's name."""
    return Error(
        _DENIALS.get(why.code, NOT_ALLOWED),
        f"partition {partition!r} of {log!r} is not given to this receiver of group {group!r}: {why.detail}",
    )


def group_full(log: str, group: str, waited_s: float | None) -> Error:
    """The AMQP error for a full group. `waited_s` None: the receiver did not wait."""
    text = f"every partition of {log!r} has its receiver in group {group!r}"
    if waited_s is not None:
        text += f", for {waited_s:g} s now"
    return Error(DETACH_FORCED, f"{text}; attach again later")


def group_failed(why: Failed, log: str) -> Error:
    return Error(_CONDITIONS.get(why.kind, INTERNAL_ERROR), f"log {log!r}, consumer group: {why.detail}")


def stolen(why: ReadError, log: str, partition: str) -> Error:
    return Error(LINK_STOLEN, f"partition {partition!r} of {log!r} is read by another receiver now: {why.detail}")


def lapsed(why: ReadError, log: str, partition: str) -> Error:
    return Error(DETACH_FORCED, f"partition {partition!r} of {log!r}: {why.detail}; attach again to claim it anew")


def internal(detail: str) -> Error:
    return Error(INTERNAL_ERROR, f"the node failed: {detail}; try again, and report it if it stays")
