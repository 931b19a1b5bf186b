"""Declares and discharges, as messages."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import (
    Described,
    MalformedMessage,
    Message,
    UsageError,
    Value,
    encode_message,
    symbol,
    ubyte,
    ulong,
)
from holdfast.amqp.transactions import (
    Declare,
    Discharge,
    decode_control,
    encode_declare,
    encode_discharge,
)
from tests.unit.amqp.transactions.support import TXN
from tests.unit.amqp.wire import message


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (Described(symbol("amqp:declare:list"), [None]), Declare()),  # as proton says it
        (Described(symbol("amqp:discharge:list"), [TXN, True]), Discharge(TXN, True)),
        (Described(ulong(0x31), []), Declare()),
        (Described(ulong(0x31), [b"global"]), Declare(b"global")),
        (Described(ulong(0x32), [TXN]), Discharge(TXN, False)),
        (Described(ulong(0x32), [TXN, None]), Discharge(TXN, False)),
        (Described(ulong(0x32), [TXN, False]), Discharge(TXN, False)),
    ],
)
def test_control_messages_are_read_under_either_descriptor(value: Any, meaning: Declare | Discharge) -> None:
    assert decode_control(encode_message(Message(Value(value)))) == meaning
    assert decode_control(encode_message(Message(Value(value), durable=True, message_id=7))) == meaning


def test_control_messages_are_written_as_they_are_read() -> None:
    assert decode_control(encode_declare()) == Declare()
    assert decode_control(encode_declare(b"global")) == Declare(b"global")
    assert decode_control(encode_discharge(TXN, fail=True)) == Discharge(TXN, True)
    assert decode_control(encode_discharge(TXN, fail=False)) == Discharge(TXN, False)
    for wrong in ("txn-1", b"x" * 33, None):
        with pytest.raises(UsageError):
            encode_discharge(wrong, fail=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00\x53",
        message(b"declare"),
        encode_message(Message(Value(None))),
        encode_message(Message(Value([TXN, True]))),
        encode_message(Message(Value(Described(ulong(0x33), [TXN])))),
        encode_message(Message(Value(Described(symbol("amqp:declare"), [])))),
        encode_message(Message(Value(Described(ulong(0x31), "no list")))),
        encode_message(Message(Value(Described(ulong(0x32), [])))),
        encode_message(Message(Value(Described(ulong(0x32), [None, False])))),
        encode_message(Message(Value(Described(ulong(0x32), ["txn-1", False])))),
        encode_message(Message(Value(Described(ulong(0x32), [b"x" * 33, False])))),
        encode_message(Message(Value(Described(ulong(0x32), [TXN, "true"])))),
        encode_message(Message(Value(Described(ulong(0x32), [TXN, ubyte(0)])))),
        encode_message(Message(Value(Described(ubyte(0x32), [TXN, False])))).replace(b"\x50\x32", b"\xa0\x012"),
    ],
)
def test_nothing_else_is_taken_for_a_declare_or_a_discharge(payload: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_control(payload)
