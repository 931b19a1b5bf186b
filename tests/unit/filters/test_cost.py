"""What a filter may cost: its program grows with its text, and what it searches has an end."""

from __future__ import annotations

from functools import reduce
from operator import and_

import pytest

from node.filters import FilterError, Predicate, functions, parse
from node.filters.functions import MAX_SEARCHED, searched
from node.filters.lexer import MAX_TOKENS
from node.filters.parser import MAX_DEPTH, MAX_NODES
from node.filters.syntax_tree import All, Any, Compare, Field, Literal
from tests.unit.filters.messages import message


def instructions(text: str) -> int:
    """Of the compiled program."""
    return len(parse(text).matching.__code__.co_code)


def chain(levels: int, around: str) -> str:
    text = "a = b"
    for _ in range(levels):
        text = around.format(text)
    return text


# ---------------------------------------------------------------- the program


@pytest.mark.parametrize(
    "around",
    [
        "({}) = c",
        "c = ({})",
        "({}) = TRUE",
        "NOT (({}) = c)",
        "({}) IN (c, d)",
        "c IN (d, ({}))",
        "LOWER({}) = c",
        "LOWER({}) LIKE 'x'",
        "({}) = c AND d",
        "({}) <> c OR d",
        "LOWER({}) IN (c, LOWER(d))",
    ],
)
def test_each_level_of_conditions_as_values_adds_as_much_as_the_one_before(around: str) -> None:
    few, more, most = (instructions(chain(levels, around)) for levels in (2, 4, 6))
    assert most - more <= 1.5 * (more - few)


def test_a_tree_of_conditions_as_values_grows_with_its_text() -> None:
    def tree(levels: int) -> str:
        return "a = b" if levels == 0 else f"({tree(levels - 1)}) = ({tree(levels - 1)})"

    small, large = tree(2), tree(5)
    assert instructions(large) / instructions(small) <= 2 * len(large) / len(small)


def test_the_deepest_chain_is_compiled() -> None:
    text = chain(MAX_DEPTH - 2, "({}) = c")
    assert instructions(text) < 200 * MAX_DEPTH
    assert parse(text).matching(0, 0, [message({"a": {"a": 1, "b": 1, "c": True}})], "0", 0, 0) == [0]


def test_conditions_that_are_equal_as_python_has_it_are_not_the_same_value() -> None:
    """TRUE is 1 in Python: a variable belongs to a part of the tree, not to what equals it."""
    record = message({"a": {"k": 7}})
    assert parse("(k = 1) IS NULL OR (k = TRUE) IS NULL").matching(0, 0, [record], "0", 0, 0) == [0]
    assert parse("(k = TRUE) IS NOT NULL OR (k = 1) IS NULL").matching(0, 0, [record], "0", 0, 0) == []


def test_a_variable_that_a_short_circuit_steps_over_can_be_read_behind_it() -> None:
    inner = Compare("=", Compare("=", Field("a", "k"), Literal(1)), Literal(True))
    tree = Compare("=", Any((All((Literal(False), inner)), inner)), All((inner, inner)))
    for value, expected in ((1, [0]), (2, [0]), ("x", [])):
        assert Predicate(tree).matching(0, 0, [message({"a": {"k": value}})], "0", 0, 0) == expected


def test_a_program_that_is_too_long_is_not_made() -> None:
    part = Compare("=", Field("a", "k"), Literal(True))
    tree = All(tuple(Compare("=", Compare("=", part, part), Field("a", "j")) for _ in range(2)))
    assert Predicate(tree).matching(0, 0, [message({})], "0", 0, 0) == []
    many = [Compare("=", Compare("=", Field("a", "k"), Literal(True)), Field("a", "j")) for _ in range(MAX_NODES + 1)]
    with pytest.raises(FilterError, match="write a simpler one"):
        Predicate(All(tuple(many))).matching  # noqa: B018 - it is made when it is asked for


# ---------------------------------------------------------------- several filters


def test_hundreds_of_filters_are_joined_on_one_level() -> None:
    """A nest of them would be more than Python takes."""
    predicate = reduce(and_, [parse("a = 1")] * 300)
    assert predicate.matching(0, 0, [message({"a": {"a": 1}}), message({"a": {"a": 2}})], "0", 0, 0) == [0]
    assert not predicate.needs_latest


def test_filters_are_limited_together() -> None:
    wide = parse(" OR ".join(["a = 1"] * (MAX_TOKENS // 4)))
    with pytest.raises(FilterError, match=f"at most {MAX_NODES}"):
        reduce(and_, [wide] * 20)
    searching = "a LIKE '%" + "_x" * (MAX_SEARCHED // 2) + "%'"
    with pytest.raises(FilterError, match=f"at most {MAX_SEARCHED}"):
        parse(searching) & parse("b LIKE '%_y%'")
    with pytest.raises(FilterError, match=f"at most {MAX_SEARCHED}"):
        parse([searching, "b LIKE '%_y%'"])
    assert parse([searching, "b LIKE '%y%'"]).tree == (parse(searching) & parse("b LIKE '%y%'")).tree


# ---------------------------------------------------------------- LIKE

MOST = "_x" * (MAX_SEARCHED // 2)


@pytest.mark.parametrize(
    ("pattern", "characters"),
    [
        ("a_b", 0), ("a_b%", 0), ("%a_b", 0), ("a_b%c_d", 0), ("%abc%", 0), ("%a%b%", 0), ("%___%", 0), ("%a!_b%", 0),
        ("%a_%", 2), ("%_b%", 2), ("%a_b%c_%d_e_%x", 4), ("%a_!_b%", 4), ("_____%a_b%______", 3), ("%a_b%cdefgh%", 3),
    ],
)  # fmt: skip
def test_what_a_pattern_looks_for_is_its_longest_piece_with_gaps_that_has_more_than_one_place(
    pattern: str, characters: int
) -> None:
    assert searched(pattern, "!") == characters


def test_patterns_with_long_pieces_that_are_looked_for_are_refused_at_their_place() -> None:
    for before, pattern in (
        ("a LIKE ", f"'%{MOST}_%'"),
        ("a NOT LIKE ", f"'%{MOST}!%%' ESCAPE '!'"),
        (f"a LIKE '%{MOST}%' OR b LIKE '%_%x%' AND c LIKE ", "'%y_%'"),
    ):
        with pytest.raises(FilterError, match="write shorter pieces, without _, or let the pattern begin or end") as no:
            parse(before + pattern)
        assert no.value.at == len(before)


def test_the_limit_is_for_what_is_tried_at_every_place() -> None:
    long = "_x" * 1500
    for pattern, text in (
        (long, "yx" * 1500),
        (f"{long}%", "yx" * 1501),
        (f"%{long}", "yx" * 1501),
        ("%" + "_" * 3000 + "%", "y" * 3000),
        ("%" + "x" * 3000 + "%", "x" * 3001),
        ("%" + "a_%" * 900, "ab" * 900),
    ):
        for stored, expected in ((text, [0]), (text[2:900], [])):
            record = message({"a": {"k": stored}})
            assert parse(f"k LIKE '{pattern}'").matching(0, 0, [record], "0", 0, 0) == expected


def test_no_place_of_a_text_is_tried_for_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the longest piece says what a LIKE costs, however many there are."""
    tried: list[int] = []

    class Counting(functions._Gapped):
        def find(self, text: str, pos: int, end: int) -> int:
            found = super().find(text, pos, end)
            tried.extend(range(pos, found + 1 if found >= 0 else end))
            return found

    monkeypatch.setattr(functions, "_Gapped", Counting)
    assert functions.matcher("%a_%b_%c_%d%", None)("ab-b-a-c-c-d")
    assert not functions.matcher("%a_%b_%c_%d%", None)("a-b-c-" * 50)
    assert not functions.matcher("%a_%a_%a_%b_%d%", None)("a" * 500)
    assert len(tried) <= 12 + 300 + 500
