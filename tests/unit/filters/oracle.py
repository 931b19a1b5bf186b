"""A second, slow and plain evaluator of filters: the message is decoded whole, logic has its three values, LIKE is a
regular expression. The compiled one is held against it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any as Anything
from uuid import UUID

from node.filters import functions, vocabulary
from node.filters.syntax_tree import (
    All,
    Any,
    AtOffset,
    AtTime,
    Compare,
    Exists,
    Field,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
)


@dataclass
class OracleEvent:
    """An event as it was meant, not as it is encoded."""

    offset: int = 0
    time_ms: int = 0
    partition: str = "0"
    sections: dict[str, dict[str, Anything]] = field(default_factory=dict)
    now_ms: int = 0
    latest: int = 0


def value_of(node: Node, event: OracleEvent) -> Anything:
    match node:
        case Literal(value):
            return value
        case Field(section, name):
            return _field(section, name, event)
        case FunctionCall("UTC", _):
            return event.now_ms
        case FunctionCall(name, arguments):
            return functions.FUNCTIONS[name](*(value_of(argument, event) for argument in arguments))
        case Compare(operator, left, right):
            return functions.compare(operator, value_of(left, event), value_of(right, event))
        case AtOffset(operator, offset):
            return functions.OPERATORS[operator](event.offset, event.latest if offset is None else offset)
        case AtTime(operator, time_ms):
            return functions.OPERATORS[operator](event.time_ms, time_ms)
        case All(parts):
            values = [_truth(part, event) for part in parts]
            return False if False in values else None if None in values else True
        case Any(parts):
            values = [_truth(part, event) for part in parts]
            return True if True in values else None if None in values else False
        case Not(part):
            value = _truth(part, event)
            return None if value is None else not value
        case In(item, options):
            found = [functions.compare("=", value_of(item, event), value_of(option, event)) for option in options]
            return True if True in found else None if None in found else False
        case Like(item, pattern, escape):
            text = value_of(item, event)
            return re.fullmatch(_expression(pattern, escape), text, re.DOTALL) is not None if _is_text(text) else None
        case IsNull(item):
            return value_of(item, event) is None
        case Exists(asked):
            return asked.section == "d" or _has(asked, event)
    raise AssertionError(node)


def matches(node: Node, event: OracleEvent) -> bool:
    return _truth(node, event) is True


def _truth(node: Node, event: OracleEvent) -> bool | None:
    value = value_of(node, event)
    return value if isinstance(value, bool) else None


def _field(section: str, name: str, event: OracleEvent) -> Anything:
    if section == "d":
        return {
            vocabulary.OFFSET: f"{event.offset:016x}",
            vocabulary.TIMESTAMP: event.time_ms,
            vocabulary.SOURCE_PARTITION: event.partition,
        }[name]
    value = event.sections.get(section, {}).get(name)
    if section == "h" and value is None:
        return vocabulary.HEADER_DEFAULTS[vocabulary.HEADER_FIELDS.index(name)]
    return str(value) if isinstance(value, UUID) else value


def _has(asked: Field, event: OracleEvent) -> bool:
    found = event.sections.get(asked.section, {})
    if asked.section in ("h", "p"):
        return found.get(asked.name) is not None
    return asked.name in found


def _is_text(value: Anything) -> bool:
    return value.__class__ in functions.TEXTS


def _expression(pattern: str, escape: str | None) -> str:
    parts = []
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            parts.append(re.escape(next(signs)))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign, re.escape(sign)))
    return "".join(parts)
