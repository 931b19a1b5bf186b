"""Parser: tokens into a tree, by recursive descent for conditions and one loop per level of precedence.

    OR  <  AND  <  NOT  <  = <> < <= > >= , LIKE, IN, IS NULL  <  + -  <  * / %  <  sign  <  operand

Comparisons do not chain. Reserved words are recognised in any case. The error for a word of another dialect (BETWEEN)
tells how to say it in this one.

Rule never broken: any text ends in a tree no deeper than MAX_DEPTH or in a FilterError that names the place. So code
that walks the tree may recurse.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from node.filters import vocabulary
from node.filters.functions import FUNCTIONS, MAX_SEARCHED, date_ms, searched
from node.filters.lexer import Token, tokens
from node.filters.syntax_tree import (
    ARITHMETIC,
    CONDITIONS,
    All,
    Any,
    Compare,
    Comparison,
    Exists,
    Field,
    FilterError,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
)

MAX_DEPTH = 24
"""Levels of a tree. Nobody writes ten; the tree becomes Python, whose own limits are far above this."""

MAX_NODES = 2000
"""Parts of the trees of all filters of a source together, and lines of their program. The words of one text make less
than a thousand; but an attach has room for hundreds of texts."""

_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_TOO_MUCH_SEARCHED = (
    "LIKE looks for {} characters in pieces with _ between two %; at most "
    f"{MAX_SEARCHED} are allowed in all; write shorter pieces, without _, or let the pattern begin or end with them"
)
_SPECIAL_NUMBERS = {"INF": float("inf"), "NAN": float("nan")}


def parse(text: str, *, event_fields: bool = False) -> Node:
    """Parse `text` into its condition. `event_fields`: see `tokens`. Raises FilterError."""
    return _Parser(tokens(text, event_fields=event_fields)).whole()


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._next = 0
        self._nesting = 0
        self._searched = 0

    # ------------------------------------------------------------------------------------------------- tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _is(self, *texts: str) -> bool:
        token = self._token
        return token.kind in ("word", "symbol") and token.text in texts

    def _took(self, text: str) -> bool:
        if self._is(text):
            self._next += 1
            return True
        return False

    def _expect(self, text: str, why: str) -> None:
        if not self._took(text):
            raise FilterError(f"expected {text} {why}, found {self._token.text}", self._token.at)

    # ------------------------------------------------------------------------------------------------- conditions

    def whole(self) -> Node:
        if self._token.kind == "end":
            raise FilterError("the filter is empty; leave it out to receive what comes from now on", 0)
        tree = self._condition()
        token = self._token
        if token.kind != "end":
            if token.kind == "field" and token.text.upper() == "BETWEEN":
                raise FilterError("BETWEEN is not in this language; write x >= 1 AND x <= 9", token.at)
            raise FilterError(f"expected AND, OR or the end, found {token.text}", token.at)
        if _depth(tree) > MAX_DEPTH:
            raise FilterError(f"the filter is nested deeper than {MAX_DEPTH} levels; write a simpler one", 0)
        return tree

    def _deeper(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            at = self._token.at
            raise FilterError(f"the filter is nested deeper than {MAX_DEPTH} levels; write a simpler one", at)

    def _condition(self) -> Node:
        at = self._token.at
        parts = [self._conjunction()]
        while self._took("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else Any(tuple(_truth(part, at) for part in parts))

    def _conjunction(self) -> Node:
        at = self._token.at
        parts = [self._negation()]
        while self._took("AND"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else All(tuple(_truth(part, at) for part in parts))

    def _negation(self) -> Node:
        at = self._token.at
        if not self._took("NOT"):
            return self._comparison()
        self._deeper()
        part = _truth(self._negation(), at)
        self._nesting -= 1
        return Not(part)

    def _comparison(self) -> Node:
        left = self._sum()
        token = self._token
        if token.kind == "symbol" and token.text in _COMPARISONS:
            self._next += 1
            if self._is("NULL"):
                raise FilterError("nothing equals NULL; write IS NULL or IS NOT NULL", self._token.at)
            right = self._sum()
            if self._token.kind == "symbol" and self._token.text in _COMPARISONS:
                raise FilterError("comparisons do not chain; join two with AND", self._token.at)
            sides = _comparable(left, right), _comparable(right, left)
            return Compare(cast(Comparison, token.text), *sides, token.at)
        if self._took("IS"):
            negated = self._took("NOT")
            self._expect("NULL", "after IS")
            return Not(IsNull(left)) if negated else IsNull(left)
        negated = self._is("NOT") and self._tokens[self._next + 1].text in ("LIKE", "IN")
        if negated:
            self._next += 1
        found: Node
        if self._took("LIKE"):
            found = self._like(left)
        elif self._took("IN"):
            found = self._in(left)
        else:
            return left
        return Not(found) if negated else found

    def _like(self, item: Node) -> Like:
        pattern_at = self._token.at
        pattern = self._string("after LIKE")
        escape = None
        if self._took("ESCAPE"):
            at = self._token.at
            escape = self._string("after ESCAPE")
            if len(escape) != 1:
                raise FilterError("ESCAPE names one character", at)
            if (len(pattern) - len(pattern.rstrip(escape))) % 2:
                raise FilterError("the pattern ends in the escape character, which escapes nothing", at)
        self._searched += searched(pattern, escape)
        if self._searched > MAX_SEARCHED:
            raise FilterError(_TOO_MUCH_SEARCHED.format(self._searched), pattern_at)
        return Like(item, pattern, escape)

    def _string(self, why: str) -> str:
        token = self._take()
        if not isinstance(token.node, Literal) or not isinstance(token.node.value, str):
            raise FilterError(f"expected a string {why}, found {token.text}", token.at)
        return token.node.value

    def _in(self, item: Node) -> In:
        self._expect("(", "after IN")
        options = [self._sum()]
        while self._took(","):
            options.append(self._sum())
        self._expect(")", "at the end of the list")
        return In(item, tuple(_comparable(option, item) for option in options))

    # ------------------------------------------------------------------------------------------------- values

    def _sum(self) -> Node:
        left = self._product()
        while self._is("+", "-"):
            token = self._take()
            left = _folded(
                FunctionCall(token.text, (_operand(left, token), _operand(self._product(), token)), token.at)
            )
        return left

    def _product(self) -> Node:
        left = self._signed()
        while self._is("*", "/", "%"):
            token = self._take()
            left = _folded(FunctionCall(token.text, (_operand(left, token), _operand(self._signed(), token)), token.at))
        return left

    def _signed(self) -> Node:
        if not self._is("+", "-"):
            return self._primary()
        token = self._take()
        self._deeper()
        part = _operand(self._signed(), token)
        self._nesting -= 1
        return _folded(FunctionCall("neg" if token.text == "-" else "pos", (part,), token.at))

    def _primary(self) -> Node:
        token = self._take()
        if token.node is not None:
            return token.node
        if token.kind == "symbol" and token.text == "(":
            self._deeper()
            inner = self._condition()
            self._nesting -= 1
            self._expect(")", "to close the bracket")
            return inner
        if token.kind == "word":
            if token.text in ("TRUE", "FALSE"):
                return Literal(token.text == "TRUE", token.at)
            if token.text in _SPECIAL_NUMBERS:
                return Literal(_SPECIAL_NUMBERS[token.text], token.at)
            if token.text == "EXISTS":
                return self._exists()
            if token.text in vocabulary.FUNCTIONS:
                return self._call(token)
            raise FilterError(
                f"{token.text} is a reserved word; write [{token.text.lower()}] if a property is called so", token.at
            )
        raise FilterError(f"expected a field, a constant or a function, found {token.text}", token.at)

    def _exists(self) -> Exists:
        self._expect("(", "after EXISTS")
        token = self._take()
        if not isinstance(token.node, Field):
            raise FilterError(f"EXISTS asks for a field, not for {token.text}", token.at)
        self._expect(")", "after the field")
        return Exists(token.node)

    def _call(self, token: Token) -> Node:
        self._expect("(", f"after {token.text}")
        self._deeper()
        arguments: list[Node] = []
        if not self._is(")"):
            arguments.append(self._condition())
            while self._took(","):
                arguments.append(self._condition())
        self._nesting -= 1
        self._expect(")", f"to close {token.text}")
        least, most = vocabulary.FUNCTIONS[token.text]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} or {most}"
            raise FilterError(f"{token.text} takes {wanted} arguments, not {len(arguments)}", token.at)
        if token.text == "DATE" and isinstance(arguments[0], Literal) and date_ms(arguments[0].value) is None:
            raise FilterError("DATE takes an ISO 8601 date or time: DATE('2026-11-20T10:00:00Z')", token.at)
        return _folded(FunctionCall(token.text, tuple(arguments), token.at))


def _folded(call: FunctionCall) -> Node:
    """Fold a call of constants into its value, if it has one; so a time may be written DATE('...') - 60000."""
    values = [argument.value for argument in call.arguments if isinstance(argument, Literal)]
    if call.name == "UTC" or len(values) < len(call.arguments):
        return call
    value = FUNCTIONS[call.name](*values)
    return call if value is None else Literal(value, call.at)


def _truth(node: Node, at: int) -> Node:
    """The node, if it can be true; else raise. A field can, unless the node knows its type; a node that only makes
    numbers or texts cannot."""
    match node:
        case Literal(value) if isinstance(value, bool):
            return node
        case Field(section, name) if section not in ("d", "b") and name != vocabulary.GROUP_KEY:
            return node
        case Literal() | Field() | FunctionCall():
            raise FilterError("a condition is expected here; compare the value with something", node.at or at)
    return node


def _comparable(node: Node, with_: Node) -> Node:
    """The constant in the type of the field that it is compared with. Raises for one that the field can never have."""
    if not isinstance(node, Literal) or not isinstance(with_, Field):
        return node
    value = node.value
    match with_:
        case Field("d", vocabulary.PARTITION):
            if isinstance(value, str) and value.isascii() and value.isdigit():
                return Literal(int(value), node.at)
            if not isinstance(value, int) or isinstance(value, bool):
                raise FilterError(f"{value!r} is no partition; they are numbers, partition = 0", node.at)
        case Field("b") if not isinstance(value, str | bytes):
            raise FilterError(f"the body is a text; compare it with one, '{value!r}'", node.at)
        case Field("m", vocabulary.GROUP_KEY) if not isinstance(value, str):
            raise FilterError(f"the key is a text; compare it with one, '{value!r}'", node.at)
    return node


def _operand(node: Node, sign: Token) -> Node:
    if isinstance(node, CONDITIONS):
        raise FilterError(f"{sign.text} takes numbers; a condition is true or false", sign.at)
    return node


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Compare(_, left, right):
            return (left, right)
        case All(parts) | Any(parts):
            return parts
        case Not(part) | IsNull(part) | Like(part) | Exists(part):
            return (part,)
        case In(item, options):
            return (item, *options)
        case FunctionCall(_, arguments):
            return arguments
        case _:
            return ()


class Size(NamedTuple):
    """Cost of a tree: its parts make the program, and the characters of its LIKEs are compared everywhere in a text."""

    parts: int
    searched: int

    def with_(self, other: Size) -> Size:
        """Size of both trees together. Raises FilterError when that is too much."""
        parts, characters = self.parts + other.parts, self.searched + other.searched
        if parts > MAX_NODES:
            raise FilterError(f"the filters have {parts} parts together; at most {MAX_NODES} are allowed", 0)
        if characters > MAX_SEARCHED:
            raise FilterError(_TOO_MUCH_SEARCHED.format(characters), 0)
        return Size(parts, characters)


def size_of(tree: Node) -> Size:
    parts = characters = 0
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        waiting += children(node)
        parts += 1
        characters += searched(node.pattern, node.escape) if isinstance(node, Like) else 0
    return Size(parts, characters)


def _depth(tree: Node) -> int:
    """Depth of a tree, counted without recursion: a sum of four hundred terms is four hundred levels deep."""
    level, depth = [tree], 0
    while level:
        level = [child for node in level for child in children(node)]
        depth += 1
    return depth


def condition(text: str, *, event_fields: bool = False) -> Node:
    """Parse a text like `parse`, and refuse a condition whose type can never be true."""
    tree = parse(text, event_fields=event_fields)
    return _truth(tree, 0)


__all__ = ["ARITHMETIC", "MAX_DEPTH", "MAX_NODES", "Size", "children", "condition", "parse", "size_of"]
