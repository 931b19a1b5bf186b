"""The filter language, sentence by sentence: what matches, what does not, and what is neither."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from holdfast.amqp import Described, encode_value, float32, symbol, timestamp, ubyte, uint, ulong
from holdfast.amqp.encoding.codec import decimal32
from node.filters import FilterError, Predicate, parse
from node.filters.functions import MAX_TEXT
from node.filters.lexer import MAX_CHARACTERS, MAX_TOKENS
from node.filters.parser import MAX_DEPTH
from tests.unit.filters.messages import message, section

NOW_MS = 1_760_000_000_000
ORDER = {
    "h": {"durable": True, "priority": ubyte(7), "ttl": uint(5000)},
    "m": {"x-opt-key": "ann", "x-opt-count": 3, "plain": symbol("word")},
    "p": {
        "message-id": ulong(7), "user-id": b"Bob", "to": "orders", "subject": "Order 66",
        "creation-time": timestamp(1_700_000_000_000), "group-id": "g", "group-sequence": uint(9),
    },
    "a": {
        "colour": "blue", "price": 12.5, "quantity": 7, "cancelled": False, "note": None, "rate": float32(0.5),
        "id": uuid.UUID(int=1), "order-status": "new", "odd [name]": 1, "in": 2, "tags": ["a"], "money": decimal32(5),
        "raw": b"\x01\x02", "mail": "50%_off",
    },
    "f": {"sum": 42},
}  # fmt: skip


def accepts(text: str, sections: Any = ORDER, **more: Any) -> bool:
    predicate = parse(text)
    found = predicate.matching(16, 1000, [message(sections, **more)], "3", NOW_MS, 20)
    assert found in ([], [0])
    return bool(found)


TRUE = [
    "colour = 'blue'", 'colour = "blue"', "a.colour = 'blue'", "application_properties.colour = 'blue'",
    "application-properties.colour = 'blue'", "[colour] = 'blue'", "a.[colour] = 'blue'", "'blue' = colour",
    "colour <> 'red'", "colour != 'red'", "colour > 'black'", "colour <= 'blue'",
    "price > 12", "price >= 12.5", "price < 1.3E1", "quantity = 7", "quantity = 7.0", "rate = .5", "7 < price",
    "quantity + 5 > price - 1", "quantity * 2 = 14", "quantity / 2 = 3.5", "quantity % 4 = 3", "-quantity % 4 = -3",
    "-quantity = -7", "+quantity = 7", "- -7 = quantity", "2 + 3 * 2 = 8", "(2 + 3) * 2 = 10", "colour + '!' = 'blue!'",
    "NOT cancelled", "cancelled = FALSE", "NOT (price > 100)", "not cancelled and price > 1 or colour = 'x'",
    "colour = 'x' AND price > 1 OR price > 1", "price > 1 OR colour = 'x' AND colour = 'y'",
    "colour LIKE 'b%'", "colour LIKE '%e'", "colour LIKE '%lu%'", "colour LIKE 'b__e'", "colour LIKE 'blue'",
    "colour LIKE 'b%l%e'", "colour LIKE '%'", "colour NOT LIKE 'r%'", "mail LIKE '50!%!_off' ESCAPE '!'",
    "colour IN ('red', 'blue')", "quantity IN (1, 7)", "colour NOT IN ('red')", "quantity IN (price, 3 + 4)",
    "note IS NULL", "missing IS NULL", "colour IS NOT NULL", "EXISTS(note)", "NOT EXISTS(missing)", "EXISTS(p.to)",
    "h.priority > 4", "header.durable", "h.delivery-count = 0", "h.ttl = 5000", "NOT h.first_acquirer",
    "p.subject LIKE 'Order%'", "properties.message_id = 7", "p.message-id = 7", "p.user_id = 0x426F62",
    "p.[message-id] = 7", "p.creation-time < 1700000000001", "p.group-sequence-1 = 8", "p.group-sequence - 1 = 8",
    "p.reply_to IS NULL", "p.creation_time = DATE('2023-11-14T22:13:20Z')",
    "m.x-opt-key = 'ann'", "m.[x-opt-key] = 'ann'", "message_annotations.x-opt-count-1 = 2", "m.plain = 'word'",
    "f.sum = 42", "footer.sum > 41",
    "d.event-streams-source-partition = '3'", "d.[event-streams-offset] = '0000000000000010'",
    "delivery_annotations.event_streams_timestamp = 1000", "d.event-streams-offset LIKE '%10'",
    "id = '00000000-0000-0000-0000-000000000001'", "raw = 0x0102", "raw > 0x01", "[order-status] = 'new'",
    "[odd [[name]]] = 1", "[in] = 2",
    "LOWER('ABC') = 'abc'", "UPPER(colour) = 'BLUE'", "LEFT(colour, 2) = 'bl'", "RIGHT(colour, 2) = 'ue'",
    "SUBSTRING(colour, 2) = 'lue'", "SUBSTRING(colour, 2, 2) = 'lu'", "UTC() = 1760000000000",
    "p.creation_time < UTC() - 1000", "price < INF", "NOT (price = NAN)", "price > -INF",
    "(quantity = 7) = TRUE", "(quantity = 7) <> cancelled", "(missing = 1) IS NULL", "TRUE", "NOT FALSE",
    "'' < 'a'", "'it''s' = \"it's\"", '"say ""hi""" = \'say "hi"\'',
]  # fmt: skip

NOT_TRUE = [
    "colour = 'red'", "colour = 5", "colour > 5", "NOT (colour = 5)", "colour <> 5", "missing = 1", "missing <> 1",
    "NOT (missing = 1)", "NOT missing", "missing", "colour", "quantity", "cancelled", "quantity = '7'", "cancelled = 0",
    "quantity = TRUE", "price / 0 = 1", "price % 0 = 1", "colour + 1 = 'blue1'", "colour * 2 = 1", "-colour = 1",
    "missing LIKE '%'", "missing NOT LIKE 'a'", "quantity LIKE '7'", "quantity NOT LIKE '8'", "colour LIKE 'B%'",
    "colour LIKE 'blu'", "colour LIKE '_blue'", "colour LIKE 'bl%lue'", "missing IN (1)", "missing NOT IN (1)",
    "quantity NOT IN (1, 'x')", "colour IN (1, 2)", "tags = 'a'", "money = 5", "NOT (money = 5)", "EXISTS(missing)",
    "colour IS NULL", "LEFT(colour, -1) = ''", "LEFT(quantity, 1) = '7'", "SUBSTRING(colour, 0) = 'blue'",
    "DATE(colour) = 1", "p.correlation_id = 1", "h.ttl IS NULL", "price = NAN", "FALSE", "TRUE AND missing",
    "(colour = 5) = FALSE", "raw = '\x01\x02'", "m.missing = 1", "a.x-opt-key = 'ann'", "order-status = 'new'",
]  # fmt: skip


@pytest.mark.parametrize("text", TRUE)
def test_matches(text: str) -> None:
    assert accepts(text)


@pytest.mark.parametrize("text", NOT_TRUE)
def test_false_and_unknown_do_not_match(text: str) -> None:
    assert not accepts(text)


def test_without_a_header_its_defaults_hold() -> None:
    assert accepts("h.priority = 4 AND NOT h.durable AND h.ttl IS NULL AND NOT EXISTS(h.priority)", {})


def test_sections_that_are_not_there_have_no_values() -> None:
    assert accepts("p.subject IS NULL AND colour IS NULL AND m.x IS NULL AND f.x IS NULL", {})
    assert not accepts("p.subject = 'x' OR colour = 'x'", {})


@pytest.mark.parametrize("descriptor", ["short", "long", "symbol"])
def test_all_three_forms_of_section_descriptors_are_read(descriptor: str) -> None:
    assert accepts("colour = 'blue' AND p.to = 'orders' AND h.priority = 7 AND f.sum = 42", descriptor=descriptor)


def test_wide_encodings_are_read() -> None:
    many = {f"k{number}": "v" * 100 for number in range(300)} | {"last": 1}
    long_text = "x" * 1000
    assert accepts("last = 1 AND k7 LIKE 'v%'", {"a": many})
    assert accepts(f"p.subject = '{long_text}' AND p.group-id = 'g'", {"p": {"subject": long_text, "group-id": "g"}})


def test_a_large_body_is_stepped_over() -> None:
    assert accepts("f.sum = 42", body=bytes(1 << 20))


def test_keys_of_annotations_may_be_numbers() -> None:
    data = section(0x72, encode_value({ulong(5): 1, symbol("k"): 2})) + section(0x75, encode_value(b""))
    assert parse("m.k = 2").matching(0, 0, [data], "0", 0, 0) == [0]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x00", b"\x00\x53", b"\x00\x53\x74", b"\x00\x53\x74\xc1\xff", b"\x00\x53\x74\x45", b"\xff" * 20,
        b"\x00\x53\x74\xc1\x09\x02\xa1\x06colour", b"\x00\x53\x74\xc1\x0f\x02\xa1\x06colour\xa1\x20blue",
        b"\x00\x53\x01\xc1\x01\x00", b"\x00\x53\x74\xd1\xff\xff\xff\xff", b"\x00\x53\x74\xc1\x0a\x02\xa1\x06colour\xff",
        b"\x00\x53\x74\xc1\x0d\x02\xa1\x06colour\xa1\x02\xff\xff", b"\x00\xa1\x01x\x45",
    ],
)  # fmt: skip
def test_what_is_no_message_never_matches_and_never_raises(data: bytes) -> None:
    """A node keeps bodies and properties as they came; a filter meets whatever a producer sent."""
    assert parse("colour IS NULL OR colour = 'blue'").matching(0, 0, [data], "0", 0, 0) in ([], [0])
    assert parse("colour = 'blue'").matching(0, 0, [data], "0", 0, 0) == []


def test_described_values_compare_with_nothing() -> None:
    assert not accepts("k = 1 OR NOT (k = 1)", {"a": {"k": Described(ulong(1), 1)}})


# ---------------------------------------------------------------- what is no filter

WRONG = [
    ("", 0, "empty"), ("   ", 0, "empty"), ("5", 0, "a condition is expected"),
    ("'text'", 0, "a condition is expected"), ("a = 1 AND 5", 10, "a condition"), ("price + 1", 6, "a condition"),
    ("a = ", 4, "found the end"), ("(a = 1", 6, "expected )"), ("a = 1)", 5, "expected AND, OR or the end"),
    ("a = 'x", 4, "no closing '"), ('a = "x', 4, 'no closing "'), ("[a = 1", 0, "no closing ]"),
    ("[] = 1", 0, "no name"), ("[a[b] = 1", 2, "[["), ("a = 1 b = 2", 6, "expected AND"), ("a ~ 1", 2, "no meaning"),
    ("a = 1.2.3", 7, "expected AND"), ("a = 12ab", 4, "ends in a letter"), ("a = 0x1", 4, "two hexadecimal digits"),
    ("a = 0x", 4, "two hexa"), ("a = " + "1" * 50, 4, "digits"), ("a LIKE 5", 7, "a string after LIKE"),
    ("a LIKE b", 7, "a string after LIKE"), ("a LIKE 'x' ESCAPE 'ab'", 18, "one character"),
    ("a LIKE 'x!' ESCAPE '!'", 19, "escapes nothing"), ("a IN 5", 5, "expected ("),
    ("a IN ()", 6, "expected a field"), ("a IN (1", 7, "expected )"), ("a IS 5", 5, "NULL"),
    ("a NOT = 1", 2, "expected AND"), ("a < 1 < 2", 6, "do not chain"), ("EXISTS(1)", 7, "asks for a field"),
    ("LOWER() = 'a'", 0, "takes 1 arguments"), ("UTC(1) = 2", 0, "takes 0"), ("SUBSTRING('a') = 'a'", 0, "2 or 3"),
    ("DATE('tomorrow') = 1", 0, "ISO 8601"), ("and = 1", 0, "reserved"), ("NULL IS NULL", 0, "reserved"),
    ("q.x = 1", 0, "no section"), ("h.colour = 1", 2, "it has durable"), ("p.colour = 1", 2, "it has message-id"),
    ("d.colour = 1", 2, "it has event-streams-offset"), ("a = @latest", 4, "no meaning"),
    ("(a = 1) + 1 = 2", 8, "takes"), ("d.event-streams-offset = 'A000000000000000'", 25, "as it was received"),
    ("d.event_streams_timestamp > 'x'", 28, "ms|milli"), ("d.event-streams-timestamp > INF", 28, "milliseconds"),
    ("d.event-streams-offset IN ('0')", 27, "as it was"), ("a = \u0663", 4, "0 to 9"),
    ("a = 1 \u2014 2", 6, "no meaning"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "at", "advice"), WRONG)
def test_what_is_no_filter_is_refused_at_its_place_with_advice(text: str, at: int, advice: str) -> None:
    with pytest.raises(FilterError) as refusal:
        parse(text)
    assert refusal.value.at == at
    assert any(part in refusal.value.message for part in advice.split("|")), refusal.value.message


def test_limits() -> None:
    wide = " OR ".join(["a = 1"] * (MAX_TOKENS // 4))
    assert isinstance(parse(wide), Predicate)
    parse("(" * (MAX_DEPTH - 2) + "a = 1" + ")" * (MAX_DEPTH - 2))
    for text in (
        " OR ".join(["a = 1"] * MAX_TOKENS),
        "a = '" + "x" * MAX_CHARACTERS + "'",
        "(" * (MAX_DEPTH + 1) + "a = 1" + ")" * (MAX_DEPTH + 1),
        "NOT " * (MAX_DEPTH + 1) + "a",
        "- " * (MAX_DEPTH + 1) + "b = 1",
        "1 = " + " + ".join(["b"] * (MAX_DEPTH + 1)),
        "LOWER(" * (MAX_DEPTH + 1) + "b" + ")" * (MAX_DEPTH + 1) + " = 'x'",
    ):
        with pytest.raises(FilterError):
            parse(text)


def test_numbers_do_not_grow_without_bound() -> None:
    factors = " * ".join(["big"] * 20)
    assert not accepts(f"{factors} > 0", {"a": {"big": 2**62}})
    assert accepts("big * big > 0", {"a": {"big": 2**62}})


def test_texts_that_are_too_long_compare_with_nothing_but_are_there() -> None:
    long = {"a": {"k": "x" * (MAX_TEXT + 1), "b": b"x" * (MAX_TEXT + 1), "fits": "x" * MAX_TEXT}}
    assert accepts("k IS NOT NULL AND EXISTS(k) AND EXISTS(b)", long)
    for text in ("k LIKE 'x%'", "k NOT LIKE 'y%'", "k <> 'a'", "b > 0x00", "UPPER(k) > ''", "fits + fits > ''"):
        assert not accepts(text, long)
    assert accepts("fits LIKE 'x%' AND UPPER(fits) LIKE '%X'", long)


@pytest.mark.parametrize("text", ["a" * 3000 + "b", "ab" * 2000])
def test_like_takes_time_in_proportion(text: str) -> None:
    """A regular expression of as many stars would run for years here."""
    assert not accepts("k LIKE '%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%c'", {"a": {"k": text}})
    assert not accepts("k LIKE '%_a_%_a_%_a_%_a_%_a_%_a_%_a_%c'", {"a": {"k": text}})
