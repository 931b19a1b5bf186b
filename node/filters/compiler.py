"""A condition as one Python function over a batch of events.

Problem: a condition is evaluated on every event that is scanned; walking a tree of objects costs a microsecond a node.
Rule: the text of the function is made only of the compiler's own words, numbered names and integers: fields, constants
and patterns of the filter enter it as arguments, never as text.

Three-valued logic costs nothing at run time. A condition is true, false or unknown; of each, two Python conditions can
be made: one that holds when it is true, one that holds when it is false. AND is false when a side is false, NOT is true
when its part is false, a comparison is neither unless its sides can be compared; what is neither is unknown. Only where
a condition is itself compared with something is its value made, in a variable.

Rule: no part of the tree has more than one variable. Both conditions of a comparison mention its sides; if each made
them again, every level of `((a = b) = c) = d` would double the program. All variables are made before the test, each
after those that it reads, whatever a short circuit leaves out; so one that is there can be read anywhere.

Rejected: closures (three times slower), and an interpreter over a stack (five).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any as Anything

from node.filters import functions, vocabulary
from node.filters.field_access import UNREADABLE, loader
from node.filters.parser import MAX_NODES, children
from node.filters.syntax_tree import (
    CONDITIONS,
    All,
    Any,
    AtOffset,
    AtTime,
    Compare,
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

Matching = Callable[[int, int, Sequence[bytes], str, int, int], list[int]]
"""(base offset, time of append, records, partition, now in ms, first offset after the attach) -> the indexes of the
records that match."""

_DELIVERY = {
    vocabulary.OFFSET: "'%016x' % (base + index)",
    vocabulary.TIMESTAMP: "time_ms",
    vocabulary.SOURCE_PARTITION: "partition",
    vocabulary.PARTITION: "int(partition)",
}
_SIGNS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def compiled(condition: Node) -> Matching:
    return _Compiler(condition).function()


class _Compiler:
    def __init__(self, condition: Node) -> None:
        self._condition = condition
        self._names: dict[str, Anything] = {"NUMBERS": functions.NUMBERS, "TEXTS": functions.TEXTS}
        self._numbers = count()
        self._lines: list[str] = []
        self._variables: dict[int, str] = {}  # by the identity of the part; as values, TRUE and 1 are equal
        self._fields = sorted(set(_fields(condition)), key=lambda field: (field.section, field.name))
        self._slots = {field: index for index, field in enumerate(self._fields)}

    def function(self) -> Matching:
        test = self._true(self._condition)
        body = [*self._loading(), *self._lines, f"if {test}: found.append(index)"]
        text = "\n".join(
            [
                "def matching(base, time_ms, records, partition, now_ms, latest):",
                " found = []",
                " for index, data in enumerate(records):",
                *("  " + line for line in body),
                " return found",
            ]
        )
        exec(compile(text, "<filter>", "exec"), self._names)
        matching: Matching = self._names["matching"]
        return matching

    def _loading(self) -> list[str]:
        if not self._fields:
            return []
        self._names["load"] = loader(self._fields)
        self._names["UNREADABLE"] = UNREADABLE
        targets = [f"{letter}{slot}" for letter in "fe" for slot in range(len(self._fields))]
        return [f"try: {', '.join(targets)} = load(data)", "except UNREADABLE: continue"]

    def _constant(self, value: Anything) -> str:
        name = f"c{next(self._numbers)}"
        self._names[name] = value
        return name

    def _variable(self, node: Node, text: Callable[[], str]) -> str:
        """The variable that holds the node's value; `text` makes the value, and is called once."""
        name = self._variables.get(id(node))
        if name is None:
            made = text()  # the lines of what it reads come first
            name = self._variables[id(node)] = f"v{next(self._numbers)}"
            self._lines.append(f"{name} = {made}")
            if len(self._lines) > MAX_NODES:
                raise FilterError("the filter makes too long a program; write a simpler one", 0)
        return name

    # ------------------------------------------------------------------------------------------------- conditions

    def _true(self, node: Node) -> str:
        """A Python condition that holds when the node is true."""
        match node:
            case All(parts):
                return "(" + " and ".join(map(self._true, parts)) + ")"
            case Any(parts):
                return "(" + " or ".join(map(self._true, parts)) + ")"
            case Not(part):
                return self._false(part)
            case _:
                return self._holds(node, True)

    def _false(self, node: Node) -> str:
        """A Python condition that holds when the node is false."""
        match node:
            case All(parts):
                return "(" + " or ".join(map(self._false, parts)) + ")"
            case Any(parts):
                return "(" + " and ".join(map(self._false, parts)) + ")"
            case Not(part):
                return self._true(part)
            case _:
                return self._holds(node, False)

    def _holds(self, node: Node, truth: bool) -> str:
        yes = "" if truth else "not "
        match node:
            case AtOffset(operator, offset):
                return f"({yes}base + index {_SIGNS[operator]} {'latest' if offset is None else int(offset)})"
            case AtTime(operator, time_ms):
                return f"({yes}time_ms {_SIGNS[operator]} {self._constant(time_ms)})"
            case Compare():
                return self._comparison(node, truth)
            case In(item, options):
                return self._within(item, options, truth)
            case Like(item, pattern, escape):
                text = self._name(item)
                like = self._constant(functions.matcher(pattern, escape))
                return f"({text}.__class__ in TEXTS and {yes}{like}({text}))"
            case IsNull(item):
                return f"({self._name(item)} is {yes}None)"
            case Exists(field):
                return f"({yes}{self._exists(field)})"
            case _:
                return f"({self._value(node)} is {truth})"

    def _comparison(self, node: Compare, truth: bool) -> str:
        left, right, sign = node.left, node.right, _SIGNS[node.operator]
        if isinstance(left, Literal) and not isinstance(right, Literal):
            kinds, value = _kinds(left), self._name(right)
            test = f"{self._constant(left.value)} {sign} {value}"
        elif isinstance(right, Literal):
            kinds, value = _kinds(right), self._name(left)
            test = f"{value} {sign} {self._constant(right.value)}"
        else:
            kinds, value, test = "", "", ""
        if kinds:
            return f"({value}.__class__ {kinds} and {'' if truth else 'not '}{test})"
        compare = self._constant(functions.compare)
        sides = f"{self._constant(node.operator)}, {self._value(left)}, {self._value(right)}"
        return f"({compare}({sides}) is {truth})"

    def _within(self, item: Node, options: tuple[Node, ...], truth: bool) -> str:
        value = self._name(item)
        kinds = {_kinds(option) for option in options}
        if kinds == {"in TEXTS"}:  # a set, since none of them can make the answer unknown
            texts = self._constant(frozenset(option.value for option in options if isinstance(option, Literal)))
            return f"({value}.__class__ in TEXTS and {value} {'in' if truth else 'not in'} {texts})"
        listed = ", ".join(map(self._value, options))
        return f"({self._constant(functions.within)}({value}, ({listed},)) is {truth})"

    # ------------------------------------------------------------------------------------------------- values

    def _value(self, node: Node) -> str:
        """A Python expression that makes the node's value; None where it is unknown."""
        if isinstance(node, CONDITIONS):
            return self._variable(
                node, lambda: f"True if {self._true(node)} else False if {self._false(node)} else None"
            )
        match node:
            case Literal(value):
                return self._constant(value)
            case Field(section, name):
                return _DELIVERY[name] if section == "d" else f"f{self._slots[node]}"
            case FunctionCall("UTC", _):
                return "now_ms"
            case FunctionCall(name, arguments):
                function = self._constant(functions.FUNCTIONS[name])
                return f"{function}({', '.join(map(self._value, arguments))})"
        raise AssertionError(f"no value: {node!r}")

    def _name(self, node: Node) -> str:
        """Make the node's value as a name that may be mentioned twice; else as `_value`."""
        if isinstance(node, FunctionCall) or (isinstance(node, Field) and node.section == "d"):
            return self._variable(node, lambda: self._value(node))
        return self._value(node)

    def _exists(self, field: Field) -> str:
        return "True" if field.section == "d" else f"e{self._slots[field]}"


def _kinds(node: Node) -> str:
    """Classes that a value must have to be compared with this constant, as a Python condition; "" if it is no
    constant."""
    if not isinstance(node, Literal):
        return ""
    kind = type(node.value)
    if kind is str:
        return "in TEXTS"
    return "in NUMBERS" if kind in (int, float) else f"is {kind.__name__}"


def _fields(node: Node) -> list[Field]:
    """Fields of the message that the condition reads; the node itself knows the others."""
    if isinstance(node, Field):
        return [] if node.section == "d" else [node]
    return [field for child in children(node) for field in _fields(child)]
