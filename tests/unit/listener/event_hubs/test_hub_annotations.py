"""Events in two dialects: stored once, read alike by both."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import Message, decode_message, encode_message, ingest, timestamp
from node.listener.event_hubs.hub_annotations import HubPrefix, LastEvent, as_stored

SENT_MS = 1_700_000_000_000


def sent(record: bytes, offset: int = 12, last: LastEvent | None = None) -> Message:
    [payload] = HubPrefix("0", last).splice_batch(offset, SENT_MS, [record])
    return decode_message(payload)


def test_a_partition_key_is_stored_as_a_group_key_and_goes_out_as_one_again() -> None:
    stored = as_stored(encode_message(Message(body=b"x", message_annotations={"x-opt-partition-key": "k", "mine": 1})))
    assert ingest(stored).group_key == "k"
    assert decode_message(stored).message_annotations == {"event-streams-group-key": "k", "mine": 1}
    out = sent(stored)
    assert out.message_annotations == {
        "x-opt-sequence-number": 12, "x-opt-offset": "12", "x-opt-enqueued-time": SENT_MS, "x-opt-partition-key": "k",
        "mine": 1,
    }  # fmt: skip
    assert isinstance(out.message_annotations["x-opt-enqueued-time"], timestamp)
    assert out.body == b"x"


def test_what_the_service_wrote_is_dropped_when_an_event_is_forwarded() -> None:
    forwarded = encode_message(sent(encode_message(Message(body=b"x"))))
    assert as_stored(forwarded) == encode_message(Message(body=b"x"))
    stale = encode_message(Message(body=b"x", message_annotations={"x-opt-offset": "7", "x-opt-sequence-number": 7}))
    assert sent(stale).message_annotations["x-opt-offset"] == "12"


@pytest.mark.parametrize(
    "message",
    [
        Message(body=b"plain"),
        Message(body=b"durable", durable=True),
        Message(body=b"durable", durable=True, message_annotations={"a": 1}),
        Message(body=b"rich", message_annotations={"a" * 300: "b" * 300}, application_properties={"n": 1}, subject="s"),
    ],
)
def test_the_rest_of_a_message_passes_unchanged(message: Message) -> None:
    record = encode_message(message)
    assert as_stored(record) == record
    out = sent(record, offset=1 << 40)
    assert out.message_annotations["x-opt-offset"] == str(1 << 40)
    for name, value in message.message_annotations.items():
        assert out.message_annotations[name] == value
    for name in ("body", "durable", "subject", "application_properties"):
        assert getattr(out, name) == getattr(message, name)


def test_offsets_of_any_length_fit() -> None:
    record = encode_message(Message(body=b"x"))
    offsets = [0, 9, 10, 99_999, (1 << 62) - 1]
    assert [sent(record, offset).message_annotations["x-opt-offset"] for offset in offsets] == list(map(str, offsets))


def test_the_last_event_is_told_and_never_lies_behind_the_delivery() -> None:
    last = LastEvent()
    last.is_at_least(3, SENT_MS - 5)
    told: dict[str, Any] = dict(sent(encode_message(Message(body=b"x")), 12, last).delivery_annotations)
    assert told.pop("runtime_info_retrieval_time_utc") > SENT_MS
    assert told == {
        "last_enqueued_sequence_number": 12, "last_enqueued_offset": "12", "last_enqueued_time_utc": SENT_MS,
    }  # fmt: skip
    last.is_at_least(40, SENT_MS + 5)
    assert sent(encode_message(Message(body=b"x")), 13, last).delivery_annotations["last_enqueued_offset"] == "40"
