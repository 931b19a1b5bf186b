"""The fields of a peer's delivery state, as the peer wrote them: read without proton's decoder.

The problem: proton keeps the fields of a state that it does not know (transactional-state, declared) as the bytes that
came, and its only way to show them is to unpack them into a tree in which a few bytes occupy megabytes, for as long as
the delivery is recycled. A server must not let any peer do that, and it must read what a transaction sends.

So the bytes are taken from where proton keeps them (`pn_disposition_t` of the pinned version) and go to our own bounded
decoder. The rule never broken: nothing is read from a place that is not proved. proton's public functions say where
three neighbours of those bytes lie; a proton that keeps them elsewhere is refused when this module is imported.

Rejected: reading the frames again (frame_scanner.py). It costs a walk through everything that came with each
transactional transfer, and a disposition names its deliveries by numbers that proton does not tell.
"""

from __future__ import annotations

from typing import Any, Final

from cproton import ffi, lib

from holdfast.amqp.encoding.codec import decode_value
from holdfast.amqp.errors import MalformedMessage

MAX_TXN_ID_BYTES = 32
"""The specification's limit on the name of a transaction."""

_TYPE, _DATA, _SIZE, _START, _ANNOTATIONS = 5, 6, 7, 8, 9
"""Places in a pn_disposition_t, in words: the descriptor, proton's tree (unused), the bytes, what follows them."""

_WORDS: Final = ffi.typeof("uint64_t *")
_BYTES: Final = ffi.typeof("char *")
_cast, _buffer, _remote = ffi.cast, ffi.buffer, lib.pn_delivery_remote

_LIST8, _BINARY8 = 0xC0, 0xA0


def _check_layout() -> None:
    """Sets a state and asks for its neighbours through public functions, then looks where they lie."""
    connection = lib.pn_connection()
    sender = lib.pn_sender(lib.pn_session(connection), b"layout")
    delivery = lib.pn_delivery(sender, ffi.new("pn_bytes_t *", {"size": 0, "start": ffi.NULL})[0])
    code = 0x1234_5678_9ABC
    lib.pn_delivery_update(delivery, code)
    local = lib.pn_delivery_local(delivery)
    data, annotations = lib.pn_disposition_data(local), lib.pn_disposition_annotations(local)
    words = _cast(_WORDS, local)
    known = ffi.sizeof("void *") == 8 and (
        (words[_TYPE], words[_DATA], words[_ANNOTATIONS])
        == (code, int(_cast("uintptr_t", data)), int(_cast("uintptr_t", annotations)))
    )
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)
    if not known:
        raise ImportError("this python-qpid-proton keeps delivery states elsewhere: install the locked version")


_check_layout()


def raw_state(delivery: Any) -> bytes:
    """The encoded fields (a list, if the peer knows AMQP) of the peer's state of a delivery; b"" if there are none or
    proton has read them itself."""
    words = _cast(_WORDS, _remote(delivery))
    size = words[_SIZE]
    return _buffer(_cast(_BYTES, words[_START]), size)[:] if size else b""


def fields_of(raw: bytes) -> list[Any]:
    """The fields of a state. Raises MalformedMessage."""
    fields = decode_value(raw)[0] if raw else []
    if not isinstance(fields, list):
        raise MalformedMessage("a delivery state does not hold a list of fields")
    return fields


def txn_id_in(fields: list[Any]) -> bytes:
    """The name of the transaction, which comes first in each of its states. Raises MalformedMessage."""
    txn_id = fields[0] if fields else None
    if not isinstance(txn_id, bytes):
        raise MalformedMessage(f"a transaction's id is a binary, not {type(txn_id).__name__}")
    if len(txn_id) > MAX_TXN_ID_BYTES:
        raise MalformedMessage(f"a transaction's id has {len(txn_id)} bytes, more than {MAX_TXN_ID_BYTES}")
    return txn_id


def txn_id_of(raw: bytes) -> bytes:
    """The name of the transaction, out of encoded fields. The usual encoding, a list of the id alone, is not parsed."""
    size = len(raw)
    if 5 <= size <= 5 + MAX_TXN_ID_BYTES and raw[:5] == bytes((_LIST8, size - 2, 1, _BINARY8, size - 5)):
        return raw[5:]
    return txn_id_in(fields_of(raw))
