"""SQL filters: a text out of an attach, parsed, turned into a place to start and a fast test of what lies behind it.

The language is the filter language of AMQP Filter Expressions 1.0 (OASIS, committee specification draft 01): fields of
all sections of a message, comparison, AND OR NOT, arithmetic, LIKE, IN, IS NULL, EXISTS, LOWER UPPER LEFT RIGHT
SUBSTRING UTC DATE. Of it the event stream extensions use a part, for which they have a descriptor of their own.

    text -> lexer -> parser -> tree -> places (bounds: what can be sought) -> compiler (what must be looked at)

Sans-IO: nothing here knows links, partitions or clocks; the time and the end of the log come as arguments.

Rules never broken: any text ends in a `Predicate` or a `FilterError` that names the place and what to write instead;
any bytes of a message end in "matches" or "does not", and what cannot be read or compared does not match; no event
that matches lies outside `bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from node.filters.compiler import Matching, compiled
from node.filters.parser import condition
from node.filters.pushdown import (
    END,
    EVERYWHERE,
    Bounds,
    beyond_bounds,
    bounds,
    needs_latest,
    placed,
)
from node.filters.syntax_tree import (
    All,
    FilterError,
    Literal,
    Node,
)

__all__ = ["END", "EVERYWHERE", "Bounds", "FilterError", "Predicate", "parse"]


class Predicate:
    """A condition on events. Immutable; links may share it."""

    def __init__(self, tree: Node) -> None:
        self.tree = tree
        self._rest = beyond_bounds(tree)

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(All((self.tree, other.tree)))

    @cached_property
    def needs_latest(self) -> bool:
        """It speaks of `@latest`: `latest` must be given, the first offset after the attach, in each partition."""
        return needs_latest(self.tree)

    def bounds(self, latest: int = 0) -> Bounds:
        """Every event that matches lies within."""
        return bounds(self.tree, latest)

    @property
    def is_range(self) -> bool:
        """Every event within the bounds matches."""
        return self._rest is None

    @cached_property
    def matching(self) -> Matching:
        """Which records of a batch, all within the bounds, match."""
        return compiled(Literal(True) if self._rest is None else self._rest)


def parse(texts: str | Iterable[str]) -> Predicate:
    """The condition that a text says, or that all of several say. Raises FilterError."""
    listed: Sequence[str] = [texts] if isinstance(texts, str) else list(texts)
    trees = [placed(condition(text)) for text in listed]
    return Predicate(trees[0] if len(trees) == 1 else All(tuple(trees)))
