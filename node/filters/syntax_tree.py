"""The parts of a parsed filter: plain values, compared by what they say and not by where they stood in the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as OneOf

Comparison = OneOf["=", "<>", "<", "<=", ">", ">="]
Section = OneOf["h", "d", "m", "p", "a", "f", "b"]

MIRRORED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""`a < b` is `b > a`."""

NEGATED: dict[Comparison, Comparison] = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""`NOT a < b` is `a >= b`."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: bool | int | float | str | bytes
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Field:
    """A value of the message. `name` is that of the message, or for `h` and `p` the specification's. Section `b` is the
    body, as a whole."""

    section: Section
    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function, an arithmetic operator (`+`, `-`, `*`, `/`, `%`) or a sign (`neg`, `pos`)."""

    name: str
    arguments: tuple[Node, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    operator: Comparison
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Any:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Node


@dataclass(frozen=True, slots=True)
class In:
    item: Node
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Like:
    item: Node
    pattern: str
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class IsNull:
    item: Node


@dataclass(frozen=True, slots=True)
class Exists:
    field: Field


@dataclass(frozen=True, slots=True)
class AtOffset:
    """A comparison of the event's offset with a number, or with the end of the log at the attach (None)."""

    operator: Comparison
    offset: int | None


@dataclass(frozen=True, slots=True)
class AtTime:
    """A comparison of the event's time of append with milliseconds since 1970."""

    operator: Comparison
    time_ms: int | float


Node = Literal | Field | FunctionCall | Compare | All | Any | Not | In | Like | IsNull | Exists | AtOffset | AtTime

CONDITIONS = (Compare, All, Any, Not, In, Like, IsNull, Exists, AtOffset, AtTime)
"""Nodes that are true, false or unknown by their nature."""

ARITHMETIC = frozenset("+-*/%") | {"neg", "pos"}


class FilterError(ValueError):
    """The text is no filter. `at`: the place in it, from 0."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
