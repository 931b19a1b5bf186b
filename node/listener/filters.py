"""Where a receiver starts: the filter set of its source, understood or refused.

Problem: a filter that is silently ignored makes a receiver start at `@latest` and miss what it came for.
Rule never broken: a filter that speaks of positions is either obeyed exactly or the attach is refused; a filter about
anything else is left out of the answer, from which the receiver sees that it is not in force (core 3.5.3).
Rejected: evaluating filters on every event. Offset and time order the log, so a filter on them is a place to start.

The delivery-annotations filter is exclusive: an event passes when its value is *greater than* the one given, for
every key given (ES-53). `@earliest` is below and `@latest` above every offset (ES-48), and must be recognised
before comparing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.amqp.errors import INVALID_FIELD, NOT_IMPLEMENTED, Error
from node.listener import vocabulary as words
from node.listener.errors import Refused
from node.partition.api import After, AfterTime, Earliest, Latest, Start

_OFFSET = re.compile(f"[0-9a-f]{{{words.OFFSET_DIGITS}}}")
_TIMESTAMP_LIMIT_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Selection:
    """Events behind `start`, of them those above both bounds. `in_force` goes into the answer to the attach."""

    start: Start
    above_offset: int = -1
    above_time_ms: int = -1
    in_force: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bounded(self) -> bool:
        return self.above_offset >= 0 or self.above_time_ms >= 0


def select(filters: Mapping[str, Any] | None) -> Selection:
    """The selection that a source's filter map asks for; raises Refused."""
    offsets: list[str] = []
    times_ms: list[int] = []
    in_force: dict[str, Any] = {}
    for name, described in (filters or {}).items():
        if described is None:  # legal, and means no filter
            continue
        descriptor = getattr(described, "descriptor", None)
        if descriptor is None:
            raise _invalid(f"filter {str(name)!r} is not a described value: write {{name: described(code, value)}}")
        key = int(descriptor) if isinstance(descriptor, int) else str(descriptor)
        if key in words.DELIVERY_ANNOTATIONS_FILTER:
            _read_annotations(str(name), described.value, offsets, times_ms)
            in_force[name] = described
        elif key in words.SQL_FILTERS or key in words.SELECTOR_FILTERS:
            raise Refused(
                Error(
                    NOT_IMPLEMENTED,
                    f"filter {str(name)!r} ({key}) is not implemented here; use "
                    "amqp:event-streams-delivery-annotations-filter with an event-streams-offset or -timestamp",
                )
            )
    return _combine(offsets, times_ms, in_force)


def _read_annotations(name: str, value: Any, offsets: list[str], times_ms: list[int]) -> None:
    if not isinstance(value, Mapping):
        raise _invalid(f"filter {name!r}: its value must be a map of {words.ANNOTATION_OFFSET} and/or timestamp")
    for key, comparand in value.items():
        if key == words.ANNOTATION_OFFSET:
            offsets.append(_offset(name, comparand))
        elif key == words.ANNOTATION_TIMESTAMP:
            times_ms.append(_timestamp(name, comparand))
        else:
            raise _invalid(
                f"filter {name!r}: key {str(key)!r} is unknown; only {words.ANNOTATION_OFFSET} and "
                f"{words.ANNOTATION_TIMESTAMP} can be compared"
            )


def _offset(name: str, comparand: Any) -> str:
    text = str(comparand) if isinstance(comparand, str) else ""
    if text in (words.OFFSET_EARLIEST, words.OFFSET_LATEST) or _OFFSET.fullmatch(text):
        return text
    raise _invalid(
        f"filter {name!r}: {comparand!r} is no offset of this log; give back an offset as it was received, "
        f"{words.OFFSET_EARLIEST} or {words.OFFSET_LATEST}"
    )


def _timestamp(name: str, comparand: Any) -> int:
    if isinstance(comparand, int) and not isinstance(comparand, bool) and abs(comparand) < _TIMESTAMP_LIMIT_MS:
        return max(int(comparand), -1)
    raise _invalid(f"filter {name!r}: {comparand!r} is no timestamp (milliseconds since 1970, UTC)")


def _combine(offsets: list[str], times_ms: list[int], in_force: Mapping[str, Any]) -> Selection:
    """Every filter must pass, so the highest of each kind counts. `@` sorts between digits and letters: hence the
    sieve."""
    above_time_ms = max(times_ms, default=-1)
    numbers = [int(text, 16) for text in offsets if not text.startswith("@")]
    above_offset = max(numbers, default=-1)
    start: Start
    if words.OFFSET_LATEST in offsets or not (offsets or times_ms):
        start = Latest()  # no filter at all: only what comes after the attach (ES-8)
    elif above_time_ms >= 0:
        start = AfterTime(above_time_ms)
    elif above_offset >= 0:
        start = After(above_offset)
    else:
        start = Earliest()
    return Selection(start, above_offset, above_time_ms, in_force)


def _invalid(text: str) -> Refused:
    return Refused(Error(INVALID_FIELD, text))
