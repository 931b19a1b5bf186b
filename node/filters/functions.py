"""Operators and functions on values at run time.

Rule: None is "unknown". It goes in and comes out: a missing field, a value of the wrong type, a division by zero or a
number too large make the result unknown, never an error. Numbers compare with numbers (a timestamp is the number of its
milliseconds), texts with texts (strings and symbols alike, by code point), booleans and binaries with their own kind. A
UUID is its text. Lists, maps and decimals compare with nothing.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from holdfast.amqp import byte, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort
from holdfast.amqp.encoding.codec import char
from node.filters.syntax_tree import Comparison

NUMBERS = frozenset({int, float, ubyte, ushort, uint, ulong, byte, short, int32, float32, timestamp})
TEXTS = frozenset({str, symbol, char})

OPERATORS: dict[Comparison, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

MAX_NUMBER = 1 << 256
"""Bound of whole numbers; those beyond are unknown: no product of fields makes an event cost more than the next."""


MAX_TEXT = 64 * 1024
"""Length beyond which texts and binaries are unknown: a hundred LIKEs over megabytes would hold up everybody else.
Usual texts have a hundredth of it."""


MAX_SEARCHED = 128
"""Characters of pieces with `_` that the LIKEs of a filter look for; the longest piece of each LIKE counts. Each may be
compared at every place of a text, which takes a tenth of a millisecond for MAX_TEXT; a whole piece without `_` takes as
long."""


class TooLong:
    """Type of a value that is there, but compares with nothing."""


TOO_LONG = TooLong()


def plain(value: Any) -> Any:
    """A value of a message as conditions see it."""
    kind = value.__class__
    if (kind in TEXTS or kind is bytes) and len(value) > MAX_TEXT:
        return TOO_LONG
    return str(value) if kind is UUID else value


def alike(left: Any, right: Any) -> bool:
    """Tell whether the two values can be compared."""
    kind, other = left.__class__, right.__class__
    if kind in NUMBERS:
        return other in NUMBERS
    if kind in TEXTS:
        return other in TEXTS
    return kind is other and kind in (bool, bytes)


def compare(sign: Comparison, left: Any, right: Any) -> bool | None:
    return OPERATORS[sign](left, right) if alike(left, right) else None


def within(item: Any, options: tuple[Any, ...]) -> bool | None:
    """Evaluate `item IN (options)`: unknown when no option equals it and one might."""
    result: bool | None = False
    for option in options:
        if not alike(item, option):
            result = None
        elif item == option:
            return True
    return result


# ---------------------------------------------------------------- arithmetic


def _both_numbers(left: Any, right: Any) -> bool:
    return left.__class__ in NUMBERS and right.__class__ in NUMBERS


def _bounded(value: Any) -> Any:
    return value if isinstance(value, float) or -MAX_NUMBER < value < MAX_NUMBER else None


def add(left: Any, right: Any) -> Any:
    """Add numbers, or concatenate texts."""
    if left.__class__ in TEXTS and right.__class__ in TEXTS:
        return str(left) + str(right) if len(left) + len(right) <= MAX_TEXT else None
    return _arithmetic(operator.add, left, right)


def subtract(left: Any, right: Any) -> Any:
    return _arithmetic(operator.sub, left, right)


def multiply(left: Any, right: Any) -> Any:
    return _arithmetic(operator.mul, left, right)


def divide(left: Any, right: Any) -> Any:
    """Divide with a fraction: 7 / 2 is 3.5."""
    return _arithmetic(operator.truediv, left, right)


def remainder(left: Any, right: Any) -> Any:
    """Remainder with the sign of the dividend, as in C and SQL: -7 % 3 is -1."""
    return _arithmetic(_truncating_remainder, left, right)


def _truncating_remainder(left: Any, right: Any) -> Any:
    if left.__class__ is float or right.__class__ is float:
        return math.fmod(left, right)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _arithmetic(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if not _both_numbers(left, right):
        return None
    # Arithmetic on the subclasses that stand for AMQP's types would keep to their ranges.
    left = float(left) if isinstance(left, float) else int(left)
    right = float(right) if isinstance(right, float) else int(right)
    try:
        return _bounded(function(left, right))
    except (ArithmeticError, ValueError):
        return None


def negate(value: Any) -> Any:
    return subtract(0, value)


def positive(value: Any) -> Any:
    return value if value.__class__ in NUMBERS else None


# ---------------------------------------------------------------- functions


def lower(text: Any) -> Any:
    return str(text).lower() if text.__class__ in TEXTS else None


def upper(text: Any) -> Any:
    return str(text).upper() if text.__class__ in TEXTS else None


def left_of(text: Any, count: Any) -> Any:
    return str(text)[:count] if text.__class__ in TEXTS and _is_count(count) else None


def right_of(text: Any, count: Any) -> Any:
    return str(text)[max(0, len(text) - count) :] if text.__class__ in TEXTS and _is_count(count) else None


def substring(text: Any, first: Any, count: Any = MAX_NUMBER) -> Any:
    """Part of a text; `first` counts from 1, as in SQL."""
    if text.__class__ not in TEXTS or not _is_count(first) or not _is_count(count) or first < 1:
        return None
    return str(text)[first - 1 : min(first - 1 + count, len(text))]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value.__class__ in NUMBERS and value >= 0


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def date_ms(text: Any) -> int | None:
    """An ISO 8601 date or time as milliseconds since 1970; UTC where it does not say."""
    if text.__class__ not in TEXTS or not _DAY.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": add, "-": subtract, "*": multiply, "/": divide, "%": remainder, "neg": negate, "pos": positive,
    "LOWER": lower, "UPPER": upper, "LEFT": left_of, "RIGHT": right_of, "SUBSTRING": substring, "DATE": date_ms,
}  # fmt: skip


# ---------------------------------------------------------------- LIKE


def matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """Make a test whether a text is like the pattern: `%` stands for any characters, `_` for one.

    The pieces between `%` are looked for from left to right, each at its first place: one pass over the text for each,
    where a regular expression with as many `.*` could be sent round and round by its text."""
    pieces = _pieces(pattern, escape)
    if len(pieces) == 1:
        whole = _piece(pieces[0])
        return lambda text: len(text) == whole.length and whole.at(text, 0)
    first, *middle, last = [_piece(piece) for piece in pieces]
    if not middle and not first.length:
        return lambda text: len(text) >= last.length and last.at(text, len(text) - last.length)
    if not middle and not last.length:
        return lambda text: first.at(text, 0)
    inner = [piece for piece in middle if piece.length]

    def like(text: str) -> bool:
        end = len(text) - last.length
        pos = first.length
        if pos > end or not first.at(text, 0) or not last.at(text, end):
            return False
        for piece in inner:
            pos = piece.find(text, pos, end)
            if pos < 0:
                return False
            pos += piece.length
        return True

    return like


def searched(pattern: str, escape: str | None) -> int:
    """Number of the pattern's characters that may be compared at every place of a text: those of its longest piece that
    has `_` and signs, and is between two `%`. The first and the last piece have one place, and `_` alone fit at once;
    no place is tried for two pieces, so the others cost nothing more."""
    between = _pieces(pattern, escape)[1:-1]
    return max((len(piece) for piece in between if None in piece and any(piece)), default=0)


class _Plain:
    """A piece without `_`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.length = len(text)

    def at(self, text: str, pos: int) -> bool:
        return text.startswith(self._text, pos)

    def find(self, text: str, pos: int, end: int) -> int:
        return text.find(self._text, pos, end)


class _Gapped:
    """A piece with `_`, of fixed length: the expression cannot go back and forth. Yet all of it may be compared at each
    place of a text, which MAX_SEARCHED bounds."""

    def __init__(self, chars: list[str | None]) -> None:
        source = "".join("." if sign is None else re.escape(sign) for sign in chars)
        self._pattern = re.compile(source, re.DOTALL)
        self.length = len(chars)

    def at(self, text: str, pos: int) -> bool:
        return self._pattern.match(text, pos) is not None

    def find(self, text: str, pos: int, end: int) -> int:
        found = self._pattern.search(text, pos, max(pos, end))
        return -1 if found is None else found.start()


def _piece(chars: list[str | None]) -> _Plain | _Gapped:
    given = [sign for sign in chars if sign is not None]
    return _Plain("".join(given)) if len(given) == len(chars) else _Gapped(chars)


def _pieces(pattern: str, escape: str | None) -> list[list[str | None]]:
    """Pieces of a pattern between its `%`; None is a `_`."""
    pieces: list[list[str | None]] = [[]]
    chars = iter(pattern)
    for sign in chars:
        if sign == escape:
            pieces[-1].append(next(chars))  # the parser has seen to it that there is one
        elif sign == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if sign == "_" else sign)
    return pieces
