"""The compiled filter against a plain one, on made-up conditions and events; and any text, any bytes.

`HOLDFAST_EXAMPLES` multiplies the examples (`make soak`).
"""

from __future__ import annotations

import os
from typing import Any as Anything

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.amqp import symbol, timestamp, ubyte, uint
from node.filters import END, FilterError, Predicate, parse
from node.filters.syntax_tree import (
    All,
    Any,
    AtOffset,
    AtTime,
    Compare,
    Exists,
    Field,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Not,
)
from tests.unit.filters.messages import message
from tests.unit.filters.oracle import OracleEvent, matches

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "1"))
many = settings(max_examples=300 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

KEYS = ["k", "key", "other", "x-opt"]
TEXTS = st.text("ab%_é\n", max_size=6)
NUMBERS = st.integers(-3, 12) | st.sampled_from([0.5, 2.0, -1.5, float("inf"), 2**40])
VALUES = NUMBERS | TEXTS | st.booleans() | st.binary(max_size=2)
STORED = VALUES | st.none() | st.just(["list"]) | TEXTS.filter(str.isascii).map(symbol) | st.integers(0, 12).map(uint)

fields = st.one_of(
    st.sampled_from(KEYS).map(lambda name: Field("a", name)),
    st.sampled_from(KEYS).map(lambda name: Field("m", name)),
    st.sampled_from(["subject", "group-sequence", "creation-time"]).map(lambda name: Field("p", name)),
    st.sampled_from(["durable", "priority", "ttl"]).map(lambda name: Field("h", name)),
    st.sampled_from(["event-streams-offset", "event-streams-timestamp"]).map(lambda name: Field("d", name)),
)
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
calls = st.sampled_from(
    [("+", 2), ("-", 2), ("*", 2), ("/", 2), ("%", 2), ("neg", 1), ("LOWER", 1), ("UPPER", 1), ("LEFT", 2),
     ("RIGHT", 2), ("SUBSTRING", 2), ("SUBSTRING", 3), ("DATE", 1), ("UTC", 0)]
)  # fmt: skip
leaves = VALUES.map(Literal) | fields
values = st.recursive(
    leaves,
    lambda inner: calls.flatmap(
        lambda call: st.tuples(*[inner] * call[1]).map(lambda arguments: FunctionCall(call[0], arguments))
    ),
    max_leaves=4,
)
places = st.one_of(
    st.builds(AtOffset, signs, st.integers(0, 20) | st.none()),
    st.builds(AtTime, signs, st.integers(0, 20) | st.sampled_from([2.5, -7, 7.0])),
)
simple = st.one_of(
    places,
    st.builds(Compare, signs, values, values),
    st.builds(In, values, st.lists(values, min_size=1, max_size=3).map(tuple)),
    st.builds(Like, values, st.text("ab%_é", max_size=6)),
    st.builds(IsNull, values),
    fields.map(Exists),
    st.booleans().map(Literal),
    fields,
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: All(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Any(tuple(parts))),
        inner.map(Not),
        st.builds(Compare, signs, inner, inner),
        inner.map(IsNull),
    ),
    max_leaves=8,
)
pairs = st.dictionaries(st.sampled_from(KEYS), STORED, max_size=4)
sections = st.fixed_dictionaries(
    {},
    optional={
        "h": st.fixed_dictionaries(
            {}, optional={"durable": st.booleans(), "priority": st.integers(0, 9).map(ubyte), "ttl": st.just(uint(3))}
        ),
        "m": pairs,
        "p": st.fixed_dictionaries(
            {},
            optional={
                "subject": TEXTS,
                "group-sequence": st.integers(0, 9).map(uint),
                "creation-time": st.integers(0, 20).map(timestamp),
            },
        ),
        "a": pairs,
        "f": pairs,
    },
)
events = st.builds(
    OracleEvent,
    offset=st.integers(0, 20),
    time_ms=st.integers(0, 20),
    partition=st.just("0"),
    sections=sections,
    now_ms=st.integers(0, 20),
    latest=st.integers(0, 20),
)


def accepted(predicate: Predicate, event: OracleEvent, descriptor: str = "short") -> bool:
    """As a node decides: by the bounds, and what they do not say by the compiled function."""
    box = predicate.bounds(event.latest)
    within = box.first_offset <= event.offset < box.end_offset and box.first_ms <= event.time_ms < box.end_ms
    record = message(event.sections, descriptor=descriptor)
    found = predicate.matching(event.offset, event.time_ms, [record], event.partition, event.now_ms, event.latest)
    return within and found == [0]


@many
@given(conditions, events, st.sampled_from(["short", "long"]))
def test_the_compiled_filter_decides_like_a_plain_one(condition: Anything, event: OracleEvent, descriptor: str) -> None:
    assert accepted(Predicate(condition), event, descriptor) == matches(condition, event)


def nested(inner: st.SearchStrategy[Anything]) -> st.SearchStrategy[Anything]:
    """Conditions as values, in every place that takes one; and one part in two places."""
    sides = inner | st.sampled_from([Literal(value) for value in (True, False, 1, 0, "true")]) | truths
    listed = st.lists(inner | sides, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Compare, signs, inner, sides),
        st.builds(Compare, signs, sides, inner),
        st.builds(Compare, signs, inner, inner),
        inner.map(lambda part: Compare("=", part, part)),
        st.builds(In, inner, listed),
        st.builds(In, sides, listed),
        inner.map(IsNull),
        inner.map(lambda part: Like(FunctionCall("LOWER", (part,)), "%")),
        inner.map(Not),
        st.tuples(inner, inner).map(All),
        st.tuples(inner, inner).map(Any),
        inner.map(lambda part: Any((All((part, IsNull(part))), part))),
    )


truths = st.sampled_from(["yes", "no", "none", "one", "zero"]).map(lambda name: Field("a", name))
TRUTHS = OracleEvent(offset=5, time_ms=5, sections={"a": {"yes": True, "no": False, "none": None, "one": 1, "zero": 0}})
deep = st.recursive(
    truths
    | st.builds(Compare, signs, truths, st.sampled_from([True, 1, 0]).map(Literal))
    | st.builds(Compare, signs, truths, truths)
    | st.builds(AtOffset, signs, st.integers(4, 6)),
    nested,
    max_leaves=20,
)


@many
@given(deep)
def test_conditions_as_values_are_decided_like_plain_ones_however_they_nest(condition: Anything) -> None:
    for asked in (condition, Not(condition), IsNull(condition)):
        assert accepted(Predicate(asked), TRUTHS) == matches(asked, TRUTHS)


@many
@given(conditions, st.integers(0, 20))
def test_bounds_are_in_order_and_only_narrow(condition: Anything, latest: int) -> None:
    box = Predicate(condition).bounds(latest)
    assert 0 <= box.first_offset <= END
    assert 0 <= box.end_offset <= END
    narrower = Predicate(All((condition, AtOffset("<", 5)))).bounds(latest)
    assert narrower.end_offset <= min(box.end_offset, 5)


def attempt(text: str) -> tuple[Predicate | None, FilterError | None]:
    try:
        return parse(text), None
    except FilterError as error:
        return None, error


WORDS = [
    "AND", "OR", "NOT", "LIKE", "IN", "IS", "NULL", "ESCAPE", "EXISTS", "TRUE", "LOWER", "UTC", "DATE", "(", ")", ",",
    "=", "<>", "<", ">=", "+", "-", "*", "/", "%", "'a'", "'%'", "5", "1.5", "0x41", "k", "a.k", "[a b]", "p.subject",
    "p.group-sequence", "h.priority", "m.x-opt-k", "d.event-streams-offset", "d.event-streams-timestamp", "'@latest'",
    "'0000000000000005'", "INF",
]  # fmt: skip


@many
@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join), events)
def test_any_text_is_a_filter_or_is_refused_at_a_place_in_it(text: str, event: OracleEvent) -> None:
    predicate, problem = attempt(text)
    if predicate is None:
        assert problem is not None
        assert 0 <= problem.at <= len(text)
        assert problem.message
        return
    assert accepted(predicate, event) == matches(predicate.tree, event)


ASKS_EVERYTHING = parse(
    "h.priority > 1 OR m.key = 1 OR p.subject = 'x' OR p.group-id = 'y' OR key = 'a' OR f.key = 1 OR NOT EXISTS(other)"
)


@many
@given(st.binary(max_size=80))
def test_any_bytes_match_or_do_not(data: bytes) -> None:
    assert ASKS_EVERYTHING.matching(0, 0, [data], "0", 0, 0) in ([], [0])


@many
@given(sections, st.data())
def test_damaged_messages_match_or_do_not(stored: Anything, data: st.DataObject) -> None:
    whole = bytearray(message(stored))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    for damaged in (bytes(whole), cut):
        assert ASKS_EVERYTHING.matching(0, 0, [damaged], "0", 0, 0) in ([], [0])
