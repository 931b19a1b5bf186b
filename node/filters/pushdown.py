"""Bounds of a condition: the range of offsets and times in which it can be true, so that it is sought, not scanned.

Offsets and times of append only rise along a partition. Comparisons of them with constants are therefore places:
`placed` turns them into `AtOffset` and `AtTime`, refusing constants that cannot be one, and `bounds` works out the
smallest box that holds every event for which the condition can be true. The box may be too large, never too small: an
OR is as wide as both its sides, and a condition that is not about places is everywhere.

`@earliest` is below every offset. `@latest` is between the last event before the attach and the first one after it; so
`> '@latest'` means all later events. Both are recognised before anything is compared: as text, `@` sorts between digits
and letters.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import cast

from node.filters import vocabulary
from node.filters.parser import children
from node.filters.syntax_tree import (
    MIRRORED,
    NEGATED,
    All,
    Any,
    AtOffset,
    AtTime,
    Compare,
    Comparison,
    Field,
    FilterError,
    FunctionCall,
    In,
    Like,
    Literal,
    Node,
    Not,
)

END = 1 << 63
"""Bound beyond every offset and every time."""

_OFFSET = re.compile(r"[0-9a-f]{16}")
_UPWARD: tuple[Comparison, ...] = (">", ">=")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Range of offsets [first_offset, end_offset) and of times [first_ms, end_ms)."""

    first_offset: int = 0
    end_offset: int = END
    first_ms: int = 0
    end_ms: int = END

    @property
    def empty(self) -> bool:
        return self.first_offset >= self.end_offset or self.first_ms >= self.end_ms

    def __and__(self, other: Bounds) -> Bounds:
        return Bounds(
            max(self.first_offset, other.first_offset),
            min(self.end_offset, other.end_offset),
            max(self.first_ms, other.first_ms),
            min(self.end_ms, other.end_ms),
        )

    def __or__(self, other: Bounds) -> Bounds:
        if self.empty or other.empty:
            return other if self.empty else self
        return Bounds(
            min(self.first_offset, other.first_offset),
            max(self.end_offset, other.end_offset),
            min(self.first_ms, other.first_ms),
            max(self.end_ms, other.end_ms),
        )


EVERYWHERE = Bounds()
NOWHERE = Bounds(end_offset=0)


def placed(node: Node) -> Node:
    """The condition with its comparisons of places as such. Raises FilterError for constants that are none."""
    match node:
        case Compare(operator, left, right, at):
            if _place_of(right) and isinstance(left, Literal):
                return _comparison(MIRRORED[operator], cast(Field, right), left)
            if _place_of(left) and isinstance(right, Literal):
                return _comparison(operator, cast(Field, left), right)
            return Compare(operator, placed(left), placed(right), at)
        case In(item, options) if _place_of(item):
            parts = [placed(Compare("=", item, option)) for option in options]
            return parts[0] if len(parts) == 1 else Any(tuple(parts))
        case In(item, options):
            return In(placed(item), tuple(map(placed, options)))
        case All(parts) | Any(parts):
            return replace(node, parts=tuple(map(placed, parts)))
        case Not(part):
            return Not(placed(part))
        case Like(item, _, _):
            return replace(node, item=placed(item))
        case FunctionCall(_, arguments, _):
            return replace(node, arguments=tuple(map(placed, arguments)))
        case _:
            return node


def _place_of(node: Node) -> bool:
    return isinstance(node, Field) and node.section == "d" and node.name in (vocabulary.OFFSET, vocabulary.TIMESTAMP)


def _comparison(operator: Comparison, field: Field, literal: Literal) -> Node:
    value = literal.value
    if field.name == vocabulary.TIMESTAMP:
        if isinstance(value, bool | str | bytes) or not math.isfinite(value):
            raise FilterError(
                f"{value!r} is no time; write a number of milliseconds since 1970, UTC, or DATE('...')", literal.at
            )
        return AtTime(operator, value)
    if value == vocabulary.EARLIEST:
        return Literal(operator in (">", ">=", "<>"))
    if value == vocabulary.LATEST:
        if operator in ("=", "<>"):
            return Literal(operator == "<>")
        return AtOffset(">=" if operator in _UPWARD else "<", None)
    if not isinstance(value, str) or not _OFFSET.fullmatch(value):
        raise FilterError(
            f"{value!r} is no offset of this log; give back an offset as it was received, '{vocabulary.EARLIEST}' or "
            f"'{vocabulary.LATEST}'",
            literal.at,
        )
    return AtOffset(operator, int(value, 16))


def needs_latest(node: Node) -> bool:
    """Tell whether the condition depends on the end of the log at the attach."""
    return (isinstance(node, AtOffset) and node.offset is None) or any(map(needs_latest, children(node)))


def bounds(node: Node, latest: int, truth: bool = True) -> Bounds:
    """Bounds within which the condition can be true (or, with `truth` False, can be false). `latest`: the offset of the
    first event after the attach."""
    match node:
        case Literal(value) if isinstance(value, bool):
            return EVERYWHERE if value is truth else NOWHERE
        case Not(part):
            return bounds(part, latest, not truth)
        case All(parts) | Any(parts):
            boxes = [bounds(part, latest, truth) for part in parts]
            box = boxes[0]
            for other in boxes[1:]:
                box = box & other if isinstance(node, All) is truth else box | other
            return box
        case AtOffset(operator, offset):
            first, end = _interval(operator if truth else NEGATED[operator], latest if offset is None else offset)
            return Bounds(first_offset=first, end_offset=end)
        case AtTime(operator, time_ms):
            first, end = _interval(operator if truth else NEGATED[operator], time_ms)
            return Bounds(first_ms=first, end_ms=end)
        case _:
            return EVERYWHERE


def _interval(operator: Comparison, value: int | float) -> tuple[int, int]:
    """The whole numbers that compare so, as [first, end), from 0."""
    below, above = math.ceil(value), math.floor(value) + 1  # the first not below, the first above
    first, end = 0, END
    match operator:
        case ">":
            first = above
        case ">=":
            first = below
        case "<":
            end = below
        case "<=":
            end = above
        case "=":
            first, end = below, above
    return max(0, min(first, END)), max(0, min(end, END))


def beyond_bounds(node: Node) -> Node | None:
    """The part of the condition that is evaluated on events within the bounds; None: they all match."""
    if isinstance(node, All):
        left = [part for part in node.parts if beyond_bounds(part) is not None]
        return None if not left else left[0] if len(left) == 1 else All(tuple(left))
    exact = isinstance(node, AtOffset | AtTime) and node.operator != "<>"
    return None if exact or node == Literal(True) else node
