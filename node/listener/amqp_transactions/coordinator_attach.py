"""Terms of an attach to the transaction coordinator, and the names of transactions on the wire."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import protocol
from holdfast.amqp import Coordinator, ReceiverLink
from holdfast.amqp.errors import INVALID_FIELD, Error
from holdfast.amqp.transactions import LOCAL_TRANSACTIONS, MULTI_SSNS_PER_TXN, MULTI_TXNS_PER_SSN
from node.client_transactions.transaction_group_member import DEFAULT_LEASE_MS, MemberTerms
from node.client_transactions.transactional_ids import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS
from node.listener.errors import Refused

MAX_ID_CHARACTERS = 256
MAX_HOLDER_CHARACTERS = 64

GRANTED = (LOCAL_TRANSACTIONS, MULTI_SSNS_PER_TXN)
"""Capabilities granted to every link: a transaction takes in all sessions of its connection."""

GRANTED_WITHOUT_AN_ID = (*GRANTED, MULTI_TXNS_PER_SSN)
"""Capabilities without a transactional id: several transactions may be open at a time."""


@dataclass(frozen=True, slots=True)
class CoordinatorTerms:
    transactional_id: str | None
    timeout_ms: int
    holder: str = ""  # the name that the client has drawn; "": this node draws one
    succeeds: str = ""  # the holder that comes back; "": the client takes the id, whoever has it
    member: MemberTerms | None = None  # of a transaction group; then there is no id and no timeout of its own
    answers_early: bool = False  # a discharge is answered when it is decided, not when readers see it


def coordinator_terms_of(link: ReceiverLink) -> CoordinatorTerms:
    """Read the terms of an attach. Raises Refused."""
    properties = link.remote_properties
    if protocol.GROUP_WRITER in properties:
        return _member_terms_of(properties)
    name = properties.get(protocol.TRANSACTIONAL_ID)
    if name is not None and (not isinstance(name, str) or not 0 < len(name) <= MAX_ID_CHARACTERS):
        raise _invalid(f"{protocol.TRANSACTIONAL_ID} must be a text of 1 to {MAX_ID_CHARACTERS} characters")
    timeout_ms = properties.get(protocol.TRANSACTION_TIMEOUT, DEFAULT_TIMEOUT_MS)
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or not 0 < timeout_ms <= MAX_TIMEOUT_MS:
        raise _invalid(f"{protocol.TRANSACTION_TIMEOUT} must be 1 to {MAX_TIMEOUT_MS} milliseconds, not {timeout_ms!r}")
    holder = _holder(properties, protocol.TRANSACTION_HOLDER)
    succeeds = _holder(properties, protocol.TRANSACTION_SUCCEEDS)
    early = _answers_early(properties)
    return CoordinatorTerms(None if name is None else str(name), int(timeout_ms), holder, succeeds, None, early)


def _holder(properties: Mapping[str, Any], key: str) -> str:
    """The holder that the property names; "": none."""
    holder = properties.get(key)
    if holder is None:
        return ""
    if protocol.TRANSACTIONAL_ID not in properties:
        raise _invalid(f"{key}: a holder has a transactional id; say {protocol.TRANSACTIONAL_ID}, too")
    if not isinstance(holder, str) or not 0 < len(holder) <= MAX_HOLDER_CHARACTERS:
        raise _invalid(f"{key} must be a text of 1 to {MAX_HOLDER_CHARACTERS} characters")
    return str(holder)


def _answers_early(properties: Mapping[str, Any]) -> bool:
    answer = properties.get(protocol.DISCHARGE_ANSWER, protocol.ANSWERED_WHEN_VISIBLE)
    if answer not in protocol.DISCHARGE_ANSWERS:
        raise _invalid(f"{protocol.DISCHARGE_ANSWER} is one of {', '.join(protocol.DISCHARGE_ANSWERS)}")
    return bool(answer == protocol.ANSWERED_WHEN_DECIDED)


def _member_terms_of(properties: Mapping[str, Any]) -> CoordinatorTerms:
    """Read a group member's terms; the coordinator checks their bounds."""
    if protocol.TRANSACTIONAL_ID in properties:
        raise _invalid(f"{protocol.TRANSACTIONAL_ID}: a member of a group has none; leave it out")
    texts = [properties.get(key) for key in (protocol.GROUP_WRITER, protocol.GROUP_RUN, protocol.GROUP_PART)]
    attempt = properties.get(protocol.GROUP_ATTEMPT) or ""
    if not all(isinstance(text, str) for text in (*texts, attempt)):
        raise _invalid(
            f"{protocol.GROUP_WRITER}, {protocol.GROUP_RUN} and {protocol.GROUP_PART} must be texts, and "
            f"{protocol.GROUP_ATTEMPT} one or absent"
        )
    batch, lease_ms = properties.get(protocol.GROUP_BATCH), properties.get(protocol.GROUP_LEASE) or DEFAULT_LEASE_MS
    if any(isinstance(number, bool) or not isinstance(number, int) for number in (batch, lease_ms)):
        raise _invalid(f"{protocol.GROUP_BATCH} must be a number, and {protocol.GROUP_LEASE} one or absent")
    writer, run, part = map(str, texts)
    member = MemberTerms(writer, int(batch or 0), run, part, str(attempt), int(lease_ms))
    return CoordinatorTerms(None, DEFAULT_TIMEOUT_MS, member=member)


def granted(terms: CoordinatorTerms) -> Coordinator:
    alone = terms.transactional_id is not None or terms.member is not None
    return Coordinator(GRANTED if alone else GRANTED_WITHOUT_AN_ID)


def new_txn_id(pair: tuple[int, int]) -> bytes:
    """A new name for a transaction, which nobody can guess."""
    return protocol.TRANSACTION_NAME.pack(protocol.TRANSACTION_NAME_VERSION, *pair, secrets.randbits(32))


def _invalid(text: str) -> Refused:
    return Refused(Error(INVALID_FIELD, text))
