"""Selector filters: every expression that SDKs write, and none besides."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import Described, symbol, ulong
from node.listener.errors import Refused
from node.listener.event_hubs.selectors import Supplied, read_selector
from node.partition.api import After, AfterTime, Earliest, Latest, PartitionDescription

NAME = "apache.org:selector-filter:string"


def filters(expression: Any, descriptor: Any = symbol(NAME)) -> dict[str, Any]:
    return {NAME: Described(descriptor, expression)}


@pytest.mark.parametrize(
    ("condition", "start", "supplied"),
    [
        ("x-opt-offset > '-1'", Earliest(), None),
        ("x-opt-offset > '@latest'", Latest(), None),
        ("x-opt-offset >= '@latest'", Latest(), None),
        ("x-opt-offset > '41'", After(41), Supplied("offset", 41)),
        ("x-opt-offset >= '41'", After(40), Supplied("offset", 41)),
        ("x-opt-offset >= '0'", Earliest(), Supplied("offset", 0)),
        ("x-opt-sequence-number > '7'", After(7), Supplied("sequence number", 7)),
        ("x-opt-sequence-number >= 7", After(6), Supplied("sequence number", 7)),
        ("x-opt-sequence-number > '-1'", Earliest(), None),
        ("x-opt-enqueued-time > '1585672841000'", AfterTime(1585672841000), None),
        ("x-opt-enqueued-time >= 1585672841000", AfterTime(1585672840999), None),
        ("x-opt-enqueued-time > '-9'", AfterTime(-1), None),
        ("x-opt-offset  >'5' ", After(5), Supplied("offset", 5)),
    ],
)
def test_what_sdks_write_is_a_start(condition: str, start: Any, supplied: Supplied | None) -> None:
    began = read_selector(filters(f"amqp.annotation.{condition}"))
    assert began is not None
    assert (began.selection.start, began.supplied) == (start, supplied)
    assert list(began.selection.in_force) == [NAME]


@pytest.mark.parametrize("descriptor", [symbol(NAME), ulong(0x0000468C00000004), ulong(0x000000137000000A)])
def test_a_selector_is_known_by_symbol_and_by_code(descriptor: Any) -> None:
    began = read_selector(filters("amqp.annotation.x-opt-offset > '5'", descriptor))
    assert began is not None
    assert began.selection.start == After(5)


@pytest.mark.parametrize(
    "expression",
    ["amqp.annotation.x-opt-offset > ", "amqp.annotation.x-opt-offset > '5", "amqp.annotation.x-opt-offset < '5'",
     "amqp.annotation.x-opt-offset > 'abc'", "amqp.annotation.x-opt-enqueued-time > '@latest'", "price > 5", "", None],
)  # fmt: skip
def test_everything_else_is_refused_in_the_words_of_the_service(expression: Any) -> None:
    with pytest.raises(Refused, match="is not a valid amqp filter for EventHub entities"):
        read_selector(filters(expression))


def test_a_position_beyond_the_end_is_of_another_life() -> None:
    info = PartitionDescription("0", 3, 1048, 1049, 1046, 9, 1)
    Supplied("offset", 1048).check(info)
    with pytest.raises(Refused) as refused:
        Supplied("sequence number", 71181).check(info)
    assert refused.value.error.condition == "com.microsoft:argument-error"
    assert refused.value.error.description == (
        "The supplied sequence number '71181' is invalid. The last sequence number in the system is '1048'"
    )
    with pytest.raises(Refused) as told:
        Supplied("sequence number", 71181).check(info, resets=True)
    assert told.value.error.condition == "com.microsoft:georeplication:invalid-offset"
    assert told.value.error.description == refused.value.error.description


@given(st.text() | st.integers() | st.binary() | st.none() | st.from_regex(r"amqp\.annotation\.x-opt-.{0,40}"))
def test_any_expression_is_a_start_or_is_refused(expression: Any) -> None:
    with contextlib.suppress(Refused):
        assert read_selector(filters(expression)) is not None


def test_without_a_selector_there_is_nothing_to_read() -> None:
    assert read_selector(None) is None
    assert read_selector({"other": Described(symbol("other"), "x")}) is None
