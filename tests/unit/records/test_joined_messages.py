"""Joined messages are what a list of the same messages is, to everybody who has one in hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import Message, encode_message
from holdfast.records.joined_messages import (
    JoinedMessages,
    are_bodies,
    bytes_in,
    pieces_of,
    put_together,
    split_off,
    table_of,
)

lists = st.lists(st.binary(max_size=40), max_size=30) | st.lists(st.binary(min_size=7, max_size=7), max_size=30)
bounds = st.none() | st.integers(-35, 35)


def joined(messages: Sequence[bytes], before: bytes = b"", behind: bytes = b"") -> JoinedMessages:
    data = before + b"".join(messages) + behind
    return JoinedMessages(table_of(messages), data, len(before), sum(map(len, messages)))


@given(lists, st.binary(max_size=9), st.binary(max_size=9))
def test_it_is_the_list_of_its_messages(messages: list[bytes], before: bytes, behind: bytes) -> None:
    found = joined(messages, before, behind)
    assert found == messages
    assert messages == found
    assert (len(found), list(found), found.split(), bool(found)) == (len(messages), messages, messages, bool(messages))
    assert [found[place] for place in range(-len(messages), len(messages))] == messages * 2
    assert list(found.ends) == list(accumulate(map(len, messages)))
    assert bytes(found.data) == b"".join(messages)
    assert found != [*messages, b""]
    assert found != "something else"


@given(lists, st.binary(max_size=9), bounds, bounds, st.sampled_from([None, 1, 2, -1]))
def test_a_part_of_it_is_the_same_part_of_the_list(
    messages: list[bytes], before: bytes, start: int | None, stop: int | None, step: int | None
) -> None:
    part = joined(messages, before, b"behind")[start:stop:step]
    wanted = messages[start:stop:step]
    assert part == wanted
    assert (table_of(part), bytes_in(part), b"".join(pieces_of(part))) == (
        table_of(wanted), bytes_in(wanted), b"".join(wanted)
    )  # fmt: skip
    assert part[1:][:2] == wanted[1:][:2]


def test_a_place_that_is_not_there_is_an_error() -> None:
    with pytest.raises(IndexError):
        joined([b"a", b"b"])[2]


@given(st.lists(st.tuples(lists, st.booleans()), min_size=1, max_size=5))
def test_put_together_they_are_the_messages_of_all_parts(parts: list[tuple[list[bytes], bool]]) -> None:
    whole = put_together([joined(part, b"x", b"y") if join else part for part, join in parts])
    wanted = [message for part, _ in parts for message in part]
    assert b"".join(pieces_of(whole)) == b"".join(wanted)
    assert list(whole) == wanted
    assert (table_of(whole), bytes_in(whole)) == (table_of(wanted), sum(map(len, wanted)))
    assert split_off(whole) == wanted


def test_what_is_put_together_is_not_copied_before_somebody_asks_for_a_message() -> None:
    one, other = joined([bytes(1000)] * 10), joined([b"1", b"2"])
    whole = put_together([one, other])
    assert [id(piece) for piece in pieces_of(whole)] == [id(part.data) for part in (one, other)]
    assert whole[11] == b"2"
    assert len(pieces_of(whole)) == 1


def test_a_part_shares_the_memory_of_the_whole() -> None:
    messages = joined([bytes(1000)] * 100)
    part = messages[10:90]
    assert isinstance(part, JoinedMessages)
    (piece,) = pieces_of(part)
    assert isinstance(piece, memoryview)
    assert piece.obj is messages.data


@given(lists, lists, st.binary(max_size=9), bounds, bounds)
def test_of_bodies_the_messages_are_those_that_have_them(
    bodies: list[bytes], others: list[bytes], before: bytes, start: int | None, stop: int | None
) -> None:
    messages = [encode_message(Message(body=body)) for body in bodies]
    table, data = table_of(bodies), before + b"".join(bodies)
    found = JoinedMessages(table, data, len(before), sum(map(len, bodies)), bodies=True)
    assert found == messages
    assert found[start:stop] == messages[start:stop]
    assert found.parts() == bodies
    assert put_together([found, found]) == messages * 2
    assert are_bodies(put_together([found, found]))
    for among in (others, joined(others)):
        whole = put_together([found, among, found])
        assert list(whole) == [*messages, *others, *messages]
        assert not are_bodies(whole)
        assert bytes_in(whole) == sum(map(len, whole))
