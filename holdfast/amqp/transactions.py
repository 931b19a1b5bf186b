"""Messages on a control link: they declare and discharge transactions (AMQP 1.0, part 4).

The coordinator names a transaction in a `Declared` state; the name then stands in the state of
each transfer and disposition that belongs to it (`Transfers.transactions`, `Transactional`). Nothing here or below
keeps book on transactions: the owner says if a name is known, and what a discharge means.

The rule never broken: a message that is not plainly a declare or a discharge is neither. One that cannot be read is its
sender's fault, and a caller's own mistake is a UsageError; a guess might commit what should be rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.amqp.encoding.codec import Described, ulong
from holdfast.amqp.errors import MalformedMessage, UsageError
from holdfast.amqp.links.raw_delivery_states import MAX_TXN_ID_BYTES, txn_id_in
from holdfast.amqp.messages.message import Message, Value, decode_message, encode_message

LOCAL_TRANSACTIONS = "amqp:local-transactions"
DISTRIBUTED_TRANSACTIONS = "amqp:distributed-transactions"
PROMOTABLE_TRANSACTIONS = "amqp:promotable-transactions"
MULTI_TXNS_PER_SSN = "amqp:multi-txns-per-ssn"
MULTI_SSNS_PER_TXN = "amqp:multi-ssns-per-txn"
"""Capabilities of a coordinator: a client asks for them, an answer states those that are granted."""

_DECLARE, _DISCHARGE = 0x31, 0x32
_CODES: dict[Any, int] = {
    _DECLARE: _DECLARE,
    "amqp:declare:list": _DECLARE,
    _DISCHARGE: _DISCHARGE,
    "amqp:discharge:list": _DISCHARGE,
}


@dataclass(frozen=True, slots=True)
class Declare:
    """Begin a transaction. global_id: the distributed transaction that it is to be part of; None: none."""

    global_id: Any = None


@dataclass(frozen=True, slots=True)
class Discharge:
    """End a transaction. fail: roll it back; False: commit it."""

    txn_id: bytes
    fail: bool = False


def encode_declare(global_id: Any = None) -> bytes:
    """The message that begins a transaction; it must be sent unsettled."""
    return encode_message(Message(Value(Described(ulong(_DECLARE), [global_id]))))


def encode_discharge(txn_id: bytes, fail: bool) -> bytes:
    """The message that ends a transaction; it must be sent unsettled. Raises UsageError for an id that nobody gave."""
    if not isinstance(txn_id, bytes) or len(txn_id) > MAX_TXN_ID_BYTES:
        raise UsageError(f"a transaction's id is {MAX_TXN_ID_BYTES} bytes at most, as declared: {txn_id!r}")
    return encode_message(Message(Value(Described(ulong(_DISCHARGE), [txn_id, bool(fail)]))))


def decode_control(payload: bytes) -> Declare | Discharge:
    """Decode a message on a control link. Raises MalformedMessage, the sender's fault, for anything else."""
    body = decode_message(payload).body
    value = body.value if isinstance(body, Value) else None
    if not isinstance(value, Described):
        raise MalformedMessage("a control link takes messages whose body is one value, a declare or a discharge")
    known = isinstance(value.descriptor, (int, str))
    code = _CODES.get(value.descriptor) if known else None
    if code is None:
        raise MalformedMessage(f"neither a declare nor a discharge: {str(value.descriptor)[:60]}")
    if not isinstance(value.value, list):
        raise MalformedMessage("a declare or discharge does not hold a list of fields")
    fields: list[Any] = value.value
    if code == _DECLARE:
        return Declare(fields[0] if fields else None)
    fail = fields[1] if len(fields) > 1 else None
    if fail is not None and not isinstance(fail, bool):
        raise MalformedMessage(f"a discharge fails or not: {type(fail).__name__} is neither")
    return Discharge(txn_id_in(fields), bool(fail))
