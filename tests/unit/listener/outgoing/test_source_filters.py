"""Where a receiver starts, from the filters of its source."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.amqp import Described, symbol, timestamp, ulong
from node.listener.errors import Refused
from node.listener.outgoing.source_filters import select
from node.partition.api import After, AfterTime, Earliest, Latest

CODE = ulong(0x200)
OFFSET = symbol("event-streams-offset")
TIMESTAMP = symbol("event-streams-timestamp")


def annotations(value: Any, code: Any = CODE) -> dict[str, Any]:
    return {"my filter": Described(code, value)}


def test_no_filter_means_only_what_comes_later() -> None:
    assert select({}).start == Latest()
    assert select(None).start == Latest()
    assert select({"nothing": None}).start == Latest()


def test_an_offset_is_exclusive_and_may_come_as_symbol_or_string() -> None:
    for comparand in (symbol("00000000000000ff"), "00000000000000ff"):
        assert select(annotations({OFFSET: comparand})).start == After(255)


@pytest.mark.parametrize("code", [ulong(0x200), symbol("amqp:event-streams-delivery-annotations-filter")])
def test_the_descriptor_may_be_a_code_or_a_symbol(code: Any) -> None:
    selection = select(annotations({OFFSET: symbol("@earliest")}, code))
    assert selection.start == Earliest()
    assert list(selection.in_force) == ["my filter"]


def test_the_constants_are_recognised_before_anything_is_compared() -> None:
    assert select(annotations({OFFSET: symbol("@earliest")})).start == Earliest()
    assert select(annotations({OFFSET: symbol("@latest")})).start == Latest()


def test_a_time_may_be_a_timestamp_or_an_integer_of_milliseconds() -> None:
    assert select(annotations({TIMESTAMP: timestamp(1_600_000_000_000)})).start == AfterTime(1_600_000_000_000)
    assert select(annotations({TIMESTAMP: 5})).start == AfterTime(5)


def test_every_key_must_match_so_the_higher_bound_wins() -> None:
    selection = select(annotations({OFFSET: symbol("0000000000000010"), TIMESTAMP: timestamp(9)}))
    assert (selection.start, selection.above_offset, selection.above_time_ms) == (AfterTime(9, 16), 16, 9)
    both = {
        "a": Described(CODE, {OFFSET: symbol("0000000000000010")}),
        "b": Described(CODE, {OFFSET: symbol("0000000000000020")}),
    }
    assert select(both).start == After(32)
    assert select(annotations({OFFSET: symbol("@latest"), TIMESTAMP: timestamp(9)})).start == Latest()


@pytest.mark.parametrize(
    "value",
    [
        {OFFSET: symbol("@newest")},
        {OFFSET: symbol("12")},
        {OFFSET: symbol("00000000000000FF")},
        {OFFSET: 12},
        {OFFSET: None},
        {TIMESTAMP: "yesterday"},
        {TIMESTAMP: True},
        {TIMESTAMP: 1 << 62},
        {symbol("event-streams-colour"): symbol("red")},
        symbol("00000000000000ff"),
        [],
    ],
    ids=repr,
)
def test_a_bad_filter_is_refused_not_ignored(value: Any) -> None:
    with pytest.raises(Refused) as refusal:
        select(annotations(value))
    assert refusal.value.error.condition == "amqp:invalid-field"
    assert "my filter" in (refusal.value.error.description or "")


def test_a_filter_that_is_not_described_is_refused() -> None:
    with pytest.raises(Refused, match="amqp:invalid-field"):
        select({"plain": symbol("@earliest")})


@pytest.mark.parametrize(
    "code",
    [
        ulong(0x171),
        symbol("amqp:properties-filter"),
    ],
    ids=repr,
)
def test_filters_that_select_events_and_are_not_built_are_refused_rather_than_left_out(code: Any) -> None:
    with pytest.raises(Refused, match="amqp:not-implemented"):
        select(annotations("subject = 'x'", code))


def test_other_filters_are_left_out_of_the_answer() -> None:
    selection = select({"colour": Described(symbol("example:colour"), "red")})
    assert (selection.start, dict(selection.in_force)) == (Latest(), {})


def test_a_filter_in_force_selects_from_everything_that_is_retained() -> None:
    assert select(annotations({})).start == Earliest()
    assert select(annotations("a = 1", SQL)).start == Earliest()


# ---------------------------------------------------------------- SQL

SQL = ulong(0x201)
HERE, LATER = f"{255:016x}", f"{300:016x}"


@pytest.mark.parametrize(
    "code",
    [SQL, ulong(0x120), symbol("amqp:event-streams-sql-filter"), symbol("amqp:sql-filter")],
    ids=repr,
)
def test_both_sql_filters_are_understood_by_code_and_by_name(code: Any) -> None:
    selection = select(annotations(f"d.event-streams-offset > '{HERE}'", code))
    assert (selection.start, list(selection.in_force)) == (After(255), ["my filter"])
    assert selection.predicate is not None
    assert selection.predicate.is_range


def test_filters_that_cost_too_much_together_are_refused() -> None:
    one = f"colour LIKE '%_{'a' * 100}%'"
    assert select({"a": Described(SQL, one)}).predicate is not None
    with pytest.raises(Refused, match=r"amqp:invalid-field.*filter 'b'"):
        select({"a": Described(SQL, one), "b": Described(SQL, one)})


def test_sql_bounds_have_two_ends_and_are_sought() -> None:
    text = f"d.[event-streams-offset] >= '{HERE}' AND '{LATER}' >= d.event_streams_offset"
    selection = select(annotations(text, SQL))
    assert (selection.start, selection.below_offset) == (After(254), 301)
    timed = select(annotations("d.event-streams-timestamp > 5 AND d.event-streams-timestamp <= 9 AND a = 1", SQL))
    assert (timed.start, timed.below_time_ms) == (AfterTime(5), 10)
    assert timed.predicate is not None
    assert not timed.predicate.is_range


def test_the_constants_are_recognised_in_sql_too() -> None:
    assert select(annotations("d.event-streams-offset > '@earliest'", SQL)).start == Earliest()
    assert select(annotations("d.event-streams-offset < '@earliest'", SQL)).empty
    latest = select(annotations("d.event-streams-offset > '@latest'", SQL))
    assert latest.needs_latest
    assert latest.at(17).start == After(16)
    before = select(annotations("d.event-streams-offset <= '@latest'", SQL)).at(17)
    assert (before.start, before.below_offset) == (Earliest(), 17)


def test_sql_and_annotations_filters_must_both_pass() -> None:
    both = {
        "a": Described(CODE, {OFFSET: symbol("0000000000000010")}),
        "b": Described(SQL, "d.event-streams-offset < '0000000000000020'"),
        "c": Described(ulong(0x120), "d.event-streams-offset >= '0000000000000018'"),
    }
    selection = select(both)
    assert (selection.start, selection.below_offset) == (After(23), 32)
    assert list(selection.in_force) == ["a", "b", "c"]
    assert select(both | {"d": Described(SQL, "d.event-streams-offset = '0000000000000010'")}).empty


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "empty"),
        ("d.event-streams-offset >", "character 25: expected a field"),
        ("d.event-streams-offset > 'a4c5'", "character 26 .*as it was received"),
        ("d.event-streams-offset > '@newest'", "@latest"),
        ("d.event-streams-offset > 7", "as it was received"),
        ("d.event-streams-timestamp > '2026-11-20'", "milliseconds"),
        ("d.event-stream-offset > 'x'", "event-streams-offset"),
        ("event-streams-offset > 'x'", "d.event-streams-offset"),
        ("a BETWEEN 1 AND 2", "x >= 1 AND x <= 9"),
        ("a = 1 AND", "character 10"),
        (5, "must be a string"),
        (None, "must be a string"),
        ([], "must be a string"),
    ],
    ids=repr,
)
def test_malformed_sql_is_refused_with_its_place_and_advice(text: Any, advice: str) -> None:
    with pytest.raises(Refused, match=f"amqp:invalid-field.*my filter.*{advice}"):
        select(annotations(text, SQL))


@pytest.mark.parametrize("descriptor", [True, 1.5, b"amqp:sql-filter", None, []], ids=repr)
def test_a_descriptor_of_another_type_is_refused(descriptor: Any) -> None:
    with pytest.raises(Refused, match="amqp:invalid-field"):
        select(annotations("a = 1", descriptor))


def test_isolation_is_committed_unless_the_receiver_says_otherwise_and_says_nothing_of_where_to_start() -> None:
    assert not select({}).uncommitted
    for value, uncommitted in (("committed", False), ("uncommitted", True)):
        wish = {"isolation": Described(symbol("holdfast:isolation-filter:string"), value)}
        selection = select(wish)
        assert (selection.uncommitted, selection.start) == (uncommitted, Latest())
        assert dict(selection.in_force) == wish, "it is echoed"
        with_start = select(wish | annotations({OFFSET: symbol("@earliest")}))
        assert (with_start.uncommitted, with_start.start) == (uncommitted, Earliest())
        assert set(with_start.in_force) == {"isolation", "my filter"}


@pytest.mark.parametrize("value", ["read-committed", "", 1, None, True])
def test_an_isolation_that_is_not_known_is_refused(value: Any) -> None:
    with pytest.raises(Refused, match="isolation is 'committed' or 'uncommitted'"):
        select({"isolation": Described(symbol("holdfast:isolation-filter:string"), value)})


SELECTOR = [symbol("apache.org:selector-filter:string"), ulong(0x0000468C00000004), ulong(0x000000137000000A)]


@pytest.mark.parametrize("code", SELECTOR, ids=repr)
def test_a_selector_is_sql_over_application_properties_and_begins_with_what_comes(code: Any) -> None:
    asked = {"jms": Described(code, "price > 5 AND name = 'JMSType'")}
    selection = select(asked)
    assert selection.start == Latest()
    assert dict(selection.in_force) == asked
    assert selection.predicate is not None
    from_start = select(asked, "@earliest")
    assert (from_start.start, from_start.predicate is not None) == (Earliest(), True)


@pytest.mark.parametrize("text", ["JMSPriority > 4", "a = 1 AND JMSXGroupID = 'g'"])
def test_a_selector_of_jms_headers_is_refused_by_their_name(text: str) -> None:
    with pytest.raises(Refused, match=r"amqp:invalid-field.*JMS\w+ is no application property"):
        select({"jms": Described(SELECTOR[0], text)})


def test_a_start_of_the_address_is_combined_with_filters() -> None:
    assert select(None, "@earliest").start == Earliest()
    assert select(None, "@latest").start == Latest()
    assert select(None, f"{5:016x}").start == After(5)
    assert select(None, None, 7).start == AfterTime(7)
    assert dict(select(None, "@earliest").in_force) == {}
    with pytest.raises(Refused, match="is no offset of this log"):
        select(None, "five")
