"""Conditions and dispositions between proton's C structures and our values.

What proton decodes of a peer's is read with care: its decoder lets a few bytes occupy megabytes of C memory and keeps
them in recycled deliveries. A server therefore reads only what is bounded (names, texts, flags); maps are read in the
client role, where the peer is the server that the client chose to trust. The fields of states that proton does not know
are read as bytes (raw_delivery_states.py), by our own decoder.

proton drops a state whose descriptor is a symbol, without a trace: it comes as if the peer had said none. (The engine
sees to it that a transactional one is not taken for that; see transfer_pump.py.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cproton import ffi, lib

from holdfast.amqp.encoding.codec import decode_value, encode_symbol_map
from holdfast.amqp.errors import Error, MalformedMessage, Unencodable
from holdfast.amqp.links.delivery_state_encoding import encoded_fields, outcome_of
from holdfast.amqp.links.delivery_states import (
    ACCEPTED,
    ACCEPTED_CODE,
    DECLARED_CODE,
    MODIFIED_CODE,
    RECEIVED_CODE,
    REJECTED_CODE,
    RELEASED,
    RELEASED_CODE,
    SETTLED_WITHOUT_STATE,
    TRANSACTIONAL_CODE,
    Declared,
    DeliveryState,
    Modified,
    OtherState,
    Rejected,
    Transactional,
)
from holdfast.amqp.links.raw_delivery_states import fields_of, raw_state, txn_id_in

_update, _settle = lib.pn_delivery_update, lib.pn_delivery_settle

_GARBLED = object()
_SCALARS = (int, str, type(None))


def text(raw: Any) -> str | None:
    """A C string; bytes that are not UTF-8 are replaced, never an error."""
    return None if raw == ffi.NULL else ffi.string(raw).decode("utf-8", "replace")


def write_data(data: Any, encoded: bytes) -> None:
    """Replaces the contents of a pn_data_t by one encoded value. Raises Unencodable for the few values that are
    good AMQP but that proton garbles (a described value directly inside another, arrays of described
    values)."""
    lib.pn_data_clear(data)
    if lib.pn_data_decode(data, encoded, len(encoded)) != len(encoded) or _reencoded(data) != decode_value(encoded)[0]:
        lib.pn_data_clear(data)
        raise Unencodable("the AMQP library below cannot carry this value")
    lib.pn_data_rewind(data)


def _reencoded(data: Any) -> Any:
    """Value that proton would send for the contents of a pn_data_t."""
    lib.pn_data_rewind(data)
    size = lib.pn_data_encoded_size(data)
    buffer = ffi.new("char[]", max(size, 1))
    written = lib.pn_data_encode(data, buffer, size) if size > 0 else -1
    try:
        return decode_value(ffi.buffer(buffer, written)[:])[0] if written > 0 else _GARBLED
    except MalformedMessage:
        return _GARBLED


def _read_data(data: Any) -> Any:
    """The single value in a pn_data_t (None if it is empty or malformed), copied out of C."""
    if data == ffi.NULL:
        return None
    value = _reencoded(data)
    return None if value is _GARBLED else value


def _read_map(data: Any) -> dict[str, Any]:
    value = _read_data(data)
    return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else {}


def read_condition(condition: Any, *, trusted: bool) -> Error | None:
    """Error in a pn_condition_t; its info map only from a trusted peer."""
    if condition == ffi.NULL or not lib.pn_condition_is_set(condition):
        return None
    info = _read_map(lib.pn_condition_info(condition)) if trusted else {}
    name = text(lib.pn_condition_get_name(condition)) or ""
    return Error(name, text(lib.pn_condition_get_description(condition)), info)


def write_condition(condition: Any, error: Error) -> None:
    lib.pn_condition_clear(condition)
    lib.pn_condition_set_name(condition, error.condition.encode())
    if error.description is not None:
        lib.pn_condition_set_description(condition, error.description.encode())
    if error.info:
        write_data(lib.pn_condition_info(condition), encode_symbol_map(error.info))


def read_state(delivery: Any, code: int, *, trusted: bool) -> DeliveryState | None:
    """The peer's state of a delivery of ours; None: it has said nothing final. code: pn_delivery_remote_state of it.
    Raises MalformedMessage if it names a transaction and cannot be read."""
    if code == ACCEPTED_CODE:
        return ACCEPTED
    if code == RELEASED_CODE:
        return RELEASED
    remote = lib.pn_delivery_remote(delivery)
    if code == REJECTED_CODE:
        return Rejected(read_condition(lib.pn_disposition_condition(remote), trusted=trusted))
    if code == MODIFIED_CODE:
        return Modified(
            bool(lib.pn_disposition_is_failed(remote)),
            bool(lib.pn_disposition_is_undeliverable(remote)),
            _read_map(lib.pn_disposition_annotations(remote)) if trusted else {},
        )
    if code in (0, RECEIVED_CODE):
        return SETTLED_WITHOUT_STATE if lib.pn_delivery_settled(delivery) else None
    if code == TRANSACTIONAL_CODE:
        return _transactional(fields_of(raw_state(delivery)), delivery, trusted)
    if code == DECLARED_CODE:
        return Declared(txn_id_in(fields_of(raw_state(delivery))))
    return OtherState(code, tuple(fields_of(raw_state(delivery))) if trusted else ())


def _transactional(fields: list[Any], delivery: Any, trusted: bool) -> Transactional:
    value = fields[1] if len(fields) > 1 else None
    outcome = None if value is None else outcome_of(value, trusted=trusted)
    return Transactional(txn_id_in(fields), outcome, bool(lib.pn_delivery_settled(delivery)))


def settle_one_by_one(deliveries: Iterable[Any], state: DeliveryState) -> None:
    """Settles deliveries with a state that takes a disposition for each."""
    if isinstance(state, Transactional | Declared | OtherState):
        encoded, checked = encoded_fields(state), _known(state)
        code = state.code if isinstance(state, OtherState) else _CODES[type(state)]
        for delivery in deliveries:
            write_fields(delivery, encoded, checked=checked)
            _update(delivery, code)
            _settle(delivery)
        return
    for delivery in deliveries:
        if code := _write_state(delivery, state):
            _update(delivery, code)
        _settle(delivery)


def _write_state(delivery: Any, state: DeliveryState) -> int:
    """Prepares a state that proton knows; returns its descriptor code (0 = no state)."""
    local = lib.pn_delivery_local(delivery)
    if isinstance(state, Rejected):
        if state.error is not None:
            write_condition(lib.pn_disposition_condition(local), state.error)
        return REJECTED_CODE
    if isinstance(state, Modified):
        lib.pn_disposition_set_failed(local, state.delivery_failed)
        lib.pn_disposition_set_undeliverable(local, state.undeliverable_here)
        if state.annotations:
            write_data(lib.pn_disposition_annotations(local), encode_symbol_map(state.annotations))
        return MODIFIED_CODE
    return {ACCEPTED: ACCEPTED_CODE, RELEASED: RELEASED_CODE}.get(state, 0)


_CODES: dict[type, int] = {Declared: DECLARED_CODE, Transactional: TRANSACTIONAL_CODE}


def write_fields(delivery: Any, encoded: bytes, *, checked: bool) -> None:
    """Sets the fields of our state of a delivery. checked: nothing is there that proton could garble."""
    data = lib.pn_disposition_data(lib.pn_delivery_local(delivery))
    if not checked:
        write_data(data, encoded)
        return
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, encoded, len(encoded))
    lib.pn_data_rewind(data)


def _known(state: Transactional | Declared | OtherState) -> bool:
    if isinstance(state, OtherState):
        return all(isinstance(field, _SCALARS) for field in state.fields)
    return isinstance(state, Declared) or state.outcome in (None, ACCEPTED, RELEASED)
