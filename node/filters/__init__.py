"""SQL filters: parses a text of an attach into a place to start and a fast test of later events.

The language is the filter language of AMQP Filter Expressions 1.0 (OASIS, committee specification draft 01): fields of
all sections of a message, comparison, AND OR NOT, arithmetic, LIKE, IN, IS NULL, EXISTS, LOWER UPPER LEFT RIGHT
SUBSTRING UTC DATE. The event stream extensions use a part of it, for which they have a descriptor of their own. In an
event filter, which our own clients send, a name without a section is a field that every event has.

    text -> lexer -> parser -> tree -> places (bounds: what can be sought) -> compiler (what must be looked at)

Sans-IO: nothing here knows links, partitions or clocks; the time and the end of the log come as arguments.

Rules never broken: any text ends in a `Predicate` or a `FilterError` that names the place and what to write instead;
any bytes of a message end in "matches" or "does not", and what cannot be read or compared does not match; no event
that matches lies outside `bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, reduce
from operator import and_

from node.filters.compiler import Matching, compiled
from node.filters.parser import Size, condition, size_of
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

    def __init__(self, tree: Node, size: Size | None = None) -> None:
        self.tree = tree
        self._size = size_of(tree) if size is None else size

    def __and__(self, other: Predicate) -> Predicate:
        """The condition that both hold. Raises FilterError when the two cost too much together."""
        size = self._size.with_(other._size)
        # On one level: a nest of hundreds is more than Python's own limits allow.
        return Predicate(All((*_parts(self.tree), *_parts(other.tree))), size)

    @cached_property
    def _rest(self) -> Node | None:
        return beyond_bounds(self.tree)

    @cached_property
    def needs_latest(self) -> bool:
        """True if the condition names `@latest`: each partition needs `latest`, the first offset after the attach."""
        return needs_latest(self.tree)

    def bounds(self, latest: int = 0) -> Bounds:
        """Bounds within which every matching event lies."""
        return bounds(self.tree, latest)

    @property
    def is_range(self) -> bool:
        """True if every event within the bounds matches."""
        return self._rest is None

    @cached_property
    def matching(self) -> Matching:
        """Function that finds the matching records of a batch, all within the bounds."""
        return compiled(Literal(True) if self._rest is None else self._rest)


def _parts(tree: Node) -> tuple[Node, ...]:
    return tree.parts if isinstance(tree, All) else (tree,)


def parse(texts: str | Iterable[str], *, event_fields: bool = False) -> Predicate:
    """Parse a text, or all of several, into a condition. `event_fields`: a name without a section is a field of the
    event, not an application property. Raises FilterError."""
    listed: Sequence[str] = [texts] if isinstance(texts, str) else list(texts)
    return reduce(and_, [Predicate(placed(condition(text, event_fields=event_fields))) for text in listed])
