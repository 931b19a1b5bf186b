"""The short cuts of the event codec say the same as the codec itself, for any key and body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import DeliveryPrefix, Message, decode_message, encode_message, splice, symbol
from holdfast.client import ConfigurationError, HoldfastError, ProtocolError, ReceivedEvent, encode_event
from holdfast.client.events import DeliveryReader

KEYS = st.none() | st.text(max_size=300).filter(lambda key: len(key.encode("utf-8", "surrogatepass")) <= 1000)
BODIES = st.binary(max_size=600)


def delivered(payload: bytes, offset: int = 7, timestamp_ms: int = 1000, partition: str = "3") -> bytes:
    return splice(payload, DeliveryPrefix(partition).build(offset, timestamp_ms))


@given(key=KEYS.filter(lambda key: key is None or key.isprintable()), body=BODIES)
def test_what_is_written_quickly_is_what_the_codec_reads(key: str | None, body: bytes) -> None:
    message = decode_message(encode_event(body, key))
    assert message.body == body
    assert message.message_annotations == ({} if key is None else {"event-streams-group-key": key})


@given(key=KEYS.filter(lambda key: key is None or key.isprintable()), body=BODIES, ours=st.booleans())
def test_what_the_codec_writes_is_read_the_same_way(key: str | None, body: bytes, ours: bool) -> None:
    annotations = {} if key is None else {symbol("event-streams-group-key"): key}
    payload = encode_event(body, key) if ours else encode_message(Message(body=body, message_annotations=annotations))
    event = DeliveryReader("3").read(delivered(payload))
    assert (event.body, event.key, event.partition, event.timestamp_ms) == (body, key, "3", 1000)


@given(numbers=st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 2**45)), min_size=1, max_size=20))
def test_offsets_and_times_are_found_by_pattern_and_in_full_alike(numbers: list[tuple[int, int]]) -> None:
    reader = DeliveryReader(None)
    for offset, timestamp_ms in numbers:
        payload = delivered(encode_event(b"body", "key"), offset, timestamp_ms, "12")
        by_pattern, in_full = reader.read(payload), DeliveryReader(None).read(payload)
        for event in (by_pattern, in_full):
            assert event.offset == f"{offset:016x}"
            assert (event.timestamp_ms, event.partition, event.body, event.key) == (timestamp_ms, "12", b"body", "key")


def test_a_message_with_a_header_in_front_is_read_all_the_same() -> None:
    reader = DeliveryReader("3")
    reader.read(delivered(encode_event(b"first")))
    stored = encode_message(Message(body=b"durable", durable=True, application_properties={"colour": "blue"}))
    event = reader.read(delivered(stored, offset=9))
    assert (event.body, event.offset, event.properties) == (b"durable", f"{9:016x}", {"colour": "blue"})


@pytest.mark.parametrize(
    "payload",
    [b"", b"garbage", encode_event(b"no annotations"), delivered(encode_event(b"elsewhere"), partition="4")],
)
def test_deliveries_that_break_the_protocol_are_said_so(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        DeliveryReader("3").read(payload)


def test_a_damaged_event_is_an_error_of_ours() -> None:
    event = ReceivedEvent("0", "00", 0, b"\x00\x53\x72\xd1\x00", 0)
    with pytest.raises(HoldfastError):
        _ = event.body


@given(data=st.data(), key=st.sampled_from([None, "key"]), body=st.sampled_from([b"", b"body", b"b" * 300]))
def test_damaged_bytes_end_in_an_event_or_in_an_error_of_ours(
    data: st.DataObject, key: str | None, body: bytes
) -> None:
    whole = delivered(encode_event(body, key))
    cut = data.draw(st.integers(0, len(whole)))
    damaged = bytearray(whole[:cut])
    for _ in range(data.draw(st.integers(0, 2))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    reader = DeliveryReader("3")
    reader.read(whole)
    try:
        event = reader.read(bytes(damaged))
        assert isinstance(event.body, bytes)
        assert event.key is None or isinstance(event.key, str)
        assert isinstance(event.properties, dict)
    except HoldfastError:
        pass


def test_keys_and_properties_have_limits() -> None:
    with pytest.raises(ConfigurationError, match="at most 1024 bytes"):
        encode_event(b"", "k" * 1025)
    with pytest.raises(ConfigurationError, match="properties"):
        encode_event(b"", None, {"thing": object()})
