"""Event filters: a name without a section is a field of the event, and one that no event has is refused."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import encode_value
from node.filters import FilterError, parse
from node.filters.functions import MAX_TEXT
from tests.unit.filters.messages import message, section

EVENT = {"m": {"event-streams-group-key": "ann"}, "a": {"key": "other", "price": 12, "body": "b", "offset": 1}}
OFFSET, TIME_MS, PARTITION = 16, 1000, "12"


def matches(text: str, data: bytes) -> bool:
    return bool(parse(text, event_fields=True).matching(OFFSET, TIME_MS, [data], PARTITION, 0, 20))


def within_bounds(text: str) -> bool:
    found = parse(text, event_fields=True).bounds(20)
    return found.first_offset <= OFFSET < found.end_offset and found.first_ms <= TIME_MS < found.end_ms


def accepts(text: str, sections: Any = EVENT, body: bytes = b"hello world") -> bool:
    return within_bounds(text) and matches(text, message(sections, body))


@pytest.mark.parametrize(
    "text",
    [
        "key = 'ann'", "key LIKE 'a%'", "'ann' = key", "key IN ('bob', 'ann')", "EXISTS(key)", "NOT key = 'bob'",
        "body = 'hello world'", "body LIKE '%world'", "UPPER(body) = 'HELLO WORLD'", "key + body = 'annhello world'",
        "partition = 12", "partition = '12'", "'12' = partition", "partition > 9", "partition IN (1, '12')",
        "partition <> 0", "partition % 2 = 0", "d.event-streams-source-partition = '12'",
        "offset = '0000000000000010'", "offset <= '@latest'", "timestamp_ms = 1000", "timestamp_ms > 999",
        "timestamp_ms < DATE('2026-01-01')",
        "a.key = 'other'", "[key] = 'other'", "a.price > 10", "[price] > 10", "a.[price] > 10", "a.offset = 1",
        "key = 'ann' AND a.price = 12 OR body = ''", "m.event-streams-group-key = 'ann'",
    ],
)  # fmt: skip
def test_fields_and_properties(text: str) -> None:
    assert accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "key = 'other'", "body = 'hello'", "partition = 1", "partition = '1'", "partition <> '12'",
        "partition NOT IN ('12')", "offset > '@latest'", "timestamp_ms > 1000", "a.body = 'hello world'",
    ],
)  # fmt: skip
def test_what_does_not_match(text: str) -> None:
    assert not accepts(text)


@pytest.mark.parametrize(
    ("text", "at", "advice"),
    [
        ("price > 100", 0, "key, body, partition, offset, timestamp_ms. An application property is written a.price"),
        ("key = ann", 6, "an event has no field 'ann'"), ("Key = 'ann'", 0, "no field 'Key'"),
        ("EXISTS(colour)", 7, "written a.colour"), ("a.x = 1 OR y", 11, "written a.y"),
        ("key = 5", 6, "'5'"), ("key IN ('a', 5)", 13, "'5'"), ("body > 1.5", 7, "'1.5'"), ("key = 0x01", 6, "a text"),
        ("partition = 'x'", 12, "partition = 0"), ("partition = TRUE", 12, "partition = 0"),
        ("partition IN (0, 1.5)", 17, "partition = 0"), ("offset > 5", 9, "as it was received"),
        ("timestamp_ms > 'today'", 15, "milliseconds"), ("key", 0, "compare"), ("NOT body", 4, "compare"),
        ("a.x = 1 AND partition", 12, "compare"), ("order-status = 'new'", 0, "written a.order"),
    ],
)  # fmt: skip
def test_what_can_never_match_is_refused_with_what_to_write(text: str, at: int, advice: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse(text, event_fields=True)
    assert advice in refused.value.message
    assert refused.value.at == at


def test_the_standard_language_stays_as_it_is() -> None:
    """There a name without a section is an application property, whatever it is called."""
    found = parse("key = 'other' AND price = 12 AND body = 'b' AND offset = 1")
    assert found.matching(OFFSET, TIME_MS, [message(EVENT)], PARTITION, 0, 20) == [0]


@pytest.mark.parametrize("descriptor", ["short", "long", "symbol"])
def test_the_body_however_it_is_written(descriptor: str) -> None:
    assert matches("body = 'x' AND key = 'ann'", message(EVENT, b"x", descriptor))


def test_a_body_is_a_text_or_else_its_bytes() -> None:
    def data(*parts: bytes) -> bytes:
        return b"".join(section(0x75, encode_value(part)) for part in parts)

    def value(content: Any) -> bytes:
        return section(0x77, encode_value(content))

    assert matches("body = 'grün'", data("grün".encode()))
    assert matches("body = 'grün'", data("grün".encode()[:3], "grün".encode()[3:])), "cut within a character"
    assert matches("body = 0xff00", data(b"\xff", b"\x00"))
    assert matches("body = ''", data(b""))
    assert matches("body = 'word'", value("word"))
    assert matches("body = 'word'", value(b"word"))
    assert matches("body = '5'", value(5))
    assert not matches("body = 'a' OR body <> 'a'", value(["a"]))
    assert matches("body IS NULL AND NOT EXISTS(body)", b"")


def test_a_body_that_is_too_long_compares_with_nothing_but_is_there() -> None:
    for body in (b"x" * (MAX_TEXT + 1), b"\xff" * (MAX_TEXT + 1)):
        assert not accepts("body LIKE '%x%' OR body <> 'y' OR body > 0x00", body=body)
        assert accepts("EXISTS(body) AND body IS NOT NULL", body=body)
    assert accepts("body LIKE 'x%'", body=b"x" * MAX_TEXT)
    many = section(0x75, encode_value(b"x")) * (MAX_TEXT + 1)
    assert not matches("body LIKE 'x%'", many)
    assert matches("body IS NOT NULL", many)


@pytest.mark.parametrize(
    "data",
    [b"\x00\x53\x75\xa1\x01x", b"\x00\x53\x75\xa0\xffx", b"\x00\x53\x75", b"\x00\x53\x77\xa1\x02\xff\xff"],
)
def test_a_body_that_is_none_never_matches(data: bytes) -> None:
    assert not matches("body IS NULL OR body = 'x'", data)
