"""Error texts for a configuration of the wrong shape: the key, its value, and the allowed values.

The problem: msgspec says which type it expected, in the words of JSON, and does not list the allowed values of a
choice. The rule: the allowed values are read off the types of the sections themselves, so that they cannot become old.
Rejected: a table of texts for each key; it is forgotten with the next key.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

_PLACE = re.compile(r"^(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_NOT_THERE = object()


def described(error: msgspec.ValidationError, sections: type, document: Any) -> str:
    """Describe the fault of a document that does not fit `sections`, and what to write instead."""
    found = _PLACE.match(str(error))
    assert found is not None, "the pattern takes every text"
    path = (found["path"] or "").removeprefix("$").removeprefix(".")
    wanted, value = _at(path, inspect.type_info(sections), document)
    if unknown := re.search(r"unknown field `([^`]*)`", found["text"]):
        where = f"[{path}]" if path else "the top level"
        known = ", ".join(field.encode_name for field in wanted.fields) if _is_table(wanted) else ""
        return f"unknown key {unknown[1]!r} in {where}; remove it or correct its spelling; there may be: {known}"
    if missing := re.search(r"missing required field `([^`]*)`", found["text"]):
        key = f"{path}.{missing[1]}" if path else missing[1]
        return f"{key}: is missing; write {_allowed(_at(key, inspect.type_info(sections), None)[0], missing[1])}"
    name = _STEP.sub(lambda step: step[1] or "", path.rpartition(".")[2])
    stands = "" if value is _NOT_THERE or isinstance(value, dict | list) else f"{_written(value)} cannot stand here; "
    return f"{path}: {stands}write {_allowed(wanted, name)}"


def _at(path: str, kind: Any, document: Any) -> tuple[Any, Any]:
    """The type and the value at a path such as `listener[0].bind`; a value that cannot be found is `_NOT_THERE`."""
    for step in _STEP.finditer(path):
        kind = _one_of(kind)
        if step[2]:
            kind = kind.value_type if isinstance(kind, inspect.DictType) else kind.item_type
            place: Any = int(step[2]) if step[2].isdigit() else None
        else:
            kind = next(field.type for field in kind.fields if field.encode_name == step[1])
            place = step[1]
        try:
            document = document[place]
        except (KeyError, IndexError, TypeError):
            document = _NOT_THERE
    return _one_of(kind), document


def _one_of(kind: Any) -> Any:
    """The type itself, where it may also be None."""
    if isinstance(kind, inspect.UnionType):
        return next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    return kind


def _is_table(kind: Any) -> bool:
    return isinstance(kind, inspect.StructType)


def _allowed(kind: Any, name: str) -> str:
    match _one_of(kind):
        case inspect.LiteralType(values):
            *most, last = (_written(value) for value in values)
            return f"{', '.join(most)} or {last}" if most else last
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType(ge=least, le=most):
            return f"a whole number{_range(least, most)}"
        case inspect.FloatType(ge=least, le=most):
            return f"a number{_range(least, most)}"
        case inspect.StrType():
            return "a text in quotes"
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            if name == "listener":
                return "[[listener]], a table for each, with two brackets"
            return f"a list, [...], and in it {_allowed(item, '')}"
        case inspect.DictType(value_type=value):
            return f"a table, {{ key = value }}: for each key {_allowed(value, '')}"
        case inspect.StructType(fields=fields):
            return f"a table with {', '.join(field.encode_name for field in fields)}"
        case other:
            raise AssertionError(f"no setting is a {other}")


def _range(least: float | None, most: float | None) -> str:
    if least is None and most is None:
        return ""
    return f" from {least} to {most}" if most is not None else f" of {least} or more"


def _written(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
