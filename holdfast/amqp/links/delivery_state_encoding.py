"""Delivery states as AMQP values: what a transactional state holds, and what of ours proton has no words for.

No proton here: dispositions.py carries these values to and from its structures.
"""

from __future__ import annotations

from typing import Any

from holdfast.amqp.encoding.codec import Described, encode_value, symbol, ulong
from holdfast.amqp.errors import Error, MalformedMessage, UsageError
from holdfast.amqp.links.delivery_states import (
    ACCEPTED,
    ACCEPTED_CODE,
    MODIFIED_CODE,
    REJECTED_CODE,
    RELEASED,
    RELEASED_CODE,
    Declared,
    Modified,
    OtherState,
    Outcome,
    Rejected,
    Transactional,
)
from holdfast.amqp.links.raw_delivery_states import MAX_TXN_ID_BYTES

_OUTCOME_CODES: dict[Any, int] = {
    "amqp:accepted:list": ACCEPTED_CODE,
    "amqp:rejected:list": REJECTED_CODE,
    "amqp:released:list": RELEASED_CODE,
    "amqp:modified:list": MODIFIED_CODE,
}


def outcome_of(value: Any, *, trusted: bool) -> Outcome:
    """The outcome inside a transactional state. trusted: maps are taken over, as from outcomes outside of one. Raises
    MalformedMessage."""
    if not isinstance(value, Described) or not isinstance(value.value, list):
        raise MalformedMessage("a transactional state holds something that is no outcome")
    code = _OUTCOME_CODES.get(value.descriptor, value.descriptor) if isinstance(value.descriptor, (int, str)) else None
    fields: list[Any] = value.value + [None] * 3
    if code == ACCEPTED_CODE:
        return ACCEPTED
    if code == RELEASED_CODE:
        return RELEASED
    if code == REJECTED_CODE:
        return Rejected(_error_of(fields[0], trusted))
    if code == MODIFIED_CODE:
        notes = fields[2] if trusted and isinstance(fields[2], dict) else {}
        named = all(isinstance(key, str) for key in notes)
        return Modified(fields[0] is True, fields[1] is True, notes if named else {})
    if not isinstance(code, int):
        raise MalformedMessage(f"a transactional state holds an unknown outcome: {str(code)[:60]!r}")
    return OtherState(int(code), tuple(value.value) if trusted else ())


def _error_of(value: Any, trusted: bool) -> Error | None:
    if value is None:
        return None
    fields = value.value if isinstance(value, Described) and isinstance(value.value, list) else []
    match fields + [None] * (3 - len(fields)):
        case [str(name), str() | None as told, dict() | None as info, *_]:
            return Error(str(name), told, info if trusted and info else {})
    raise MalformedMessage("a rejected outcome holds something that is no error")


def encoded_fields(state: Transactional | Declared | OtherState) -> bytes:
    """The fields of a state, encoded. Raises UsageError for the name of a transaction that no peer would take."""
    if isinstance(state, OtherState):
        return encode_value(list(state.fields))
    if not isinstance(state.txn_id, bytes) or len(state.txn_id) > MAX_TXN_ID_BYTES:
        raise UsageError(f"a transaction's id is {MAX_TXN_ID_BYTES} bytes at most: {state.txn_id!r}")
    if isinstance(state, Declared):
        return encode_value([state.txn_id])
    if not state.settled:
        raise UsageError("settling says settled=True: an unsettled state can only be received")
    outcome = state.outcome
    return encode_value([state.txn_id] if outcome is None else [state.txn_id, _described(outcome)])


def _described(outcome: Outcome) -> Described:
    if isinstance(outcome, Rejected):
        return Described(ulong(REJECTED_CODE), [] if outcome.error is None else [error_value(outcome.error)])
    if isinstance(outcome, Modified):
        notes: Any = {symbol(key): item for key, item in outcome.annotations.items()}
        return Described(ulong(MODIFIED_CODE), [outcome.delivery_failed, outcome.undeliverable_here, notes or None])
    if isinstance(outcome, OtherState):
        return Described(ulong(outcome.code), list(outcome.fields))
    return Described(ulong(ACCEPTED_CODE if outcome == ACCEPTED else RELEASED_CODE), [])


def error_value(error: Error) -> Described:
    """An error as it is encoded."""
    info = {symbol(key): item for key, item in error.info.items()}
    fields: list[Any] = [symbol(error.condition), error.description, info]
    return Described(ulong(0x1D), fields)
