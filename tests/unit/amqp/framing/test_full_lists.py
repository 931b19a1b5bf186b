"""Performatives with all their fields, for peers that read fields by place."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import Described, decode_value, encode_value, symbol, uint, ulong
from holdfast.amqp.framing.full_lists import FIELDS, FullLists, full_performative, needs_full_lists
from holdfast.amqp.framing.handshake import AMQP_HEADER, frame, performative
from tests.unit.amqp.wire import LoopbackWire, frames, message, payloads_of

ERROR = Described(ulong(0x1D), [symbol("amqp:not-found"), "gone"])


def fields_of(body: bytes) -> tuple[int, list[Any], bytes]:
    value, end = decode_value(body)
    assert isinstance(value, Described)
    return int(value.descriptor), list(value.value), body[end:]  # type: ignore[call-overload]


@pytest.mark.parametrize("code", sorted(FIELDS))
@pytest.mark.parametrize("some", [[], ["a"], ["a", uint(7)], ["x" * 250], ["x" * 400]])
def test_fields_are_as_before_with_nulls_behind_them(code: int, some: list[Any]) -> None:
    some = some[: FIELDS[code]]
    payload = b"payload" if code == 0x14 else b""
    found = fields_of(full_performative(performative(code, some) + payload))
    assert found == (code, some + [None] * (FIELDS[code] - len(some)), payload)


def test_an_empty_list_is_filled_too() -> None:
    assert fields_of(full_performative(b"\x00\x53\x17\x45")) == (0x17, [None], b"")


@pytest.mark.parametrize("place", [(0x16, 2), (0x17, 0), (0x18, 0)])
def test_an_error_has_three_fields(place: tuple[int, int]) -> None:
    code, at = place
    _, fields, _ = fields_of(full_performative(performative(code, [None] * at + [ERROR])))
    assert fields[at].value == [symbol("amqp:not-found"), "gone", None]


def test_so_has_one_within_an_outcome() -> None:
    said = [True, uint(1), uint(1), True, Described(ulong(0x25), [ERROR])]
    _, fields, _ = fields_of(full_performative(performative(0x15, said)))
    assert fields[4].value[0].value == [symbol("amqp:not-found"), "gone", None]
    assert fields[5] is None


def test_a_stream_may_be_cut_anywhere() -> None:
    sasl = frame(1, encode_value(Described(ulong(0x44), [0])))
    stream = sasl + AMQP_HEADER + frame(0, performative(0x10, ["c"])) + frame(0, b"") + frame(0, performative(0x11, []))
    whole = FullLists().rewrite(stream)
    assert whole.startswith(sasl + AMQP_HEADER)
    assert frame(0, b"") in whole
    for step in range(1, len(stream)):
        lists = FullLists()
        assert b"".join(lists.rewrite(stream[at : at + step]) for at in range(0, len(stream), step)) == whole


def test_only_peers_that_write_all_fields_need_them() -> None:
    assert needs_full_lists([None] * 10)
    assert needs_full_lists([*[None] * 9, {"product": "azsdk-python-eventhubs"}])
    assert not needs_full_lists([*[None] * 9, {"product": "Holdfast"}])
    assert not needs_full_lists(["container", "host"])


def test_nothing_of_a_large_message_is_kept_back() -> None:
    """Its frame is larger than what an engine gives out at once; an owner that is given nothing stops asking."""
    peer = {"properties": {"product": "azsdk-python-eventhubs"}, "max_frame_size": 1 << 20}
    wire = LoopbackWire(client=peer)
    _, sender = wire.consumer()
    payload = message(b"x" * 1_000_000)
    sender.send_many([payload])
    _, heard = wire.talk()
    assert payloads_of(heard) == [payload]
    sender.send_many([payload], settled=True)
    [(code, fields, body)] = frames(b"".join(iter(wire.server.data_to_send, b"")))
    assert (code, len(fields), body) == (0x14, FIELDS[0x14], payload)
