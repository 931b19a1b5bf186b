"""Filters of a receiver's source: understood, or refused.

Problem: a filter that is silently ignored makes a receiver start at `@latest` and miss what it came for.
Rules never broken: a filter that speaks of positions, or selects events in a language known here, is either obeyed
exactly or the attach is refused; a filter unknown here is left out of the answer, from which the receiver sees that it
is not in force (core 3.5.3). A filter in force selects from everything retained, from the earliest to the latest
(ES-52); without any, only what comes after the attach is delivered (ES-8).

A JMS selector is SQL over application properties, too. It says nothing of where to begin: a consumer with one hears of
what comes, as one without does.

The isolation filter says which events of transactions are delivered, and nothing of where to begin: alone, it leaves a
receiver at the latest event.

Two kinds select. The delivery-annotations filter is exclusive: an event passes when its value is *greater than* the
one given, for every key given (ES-53). The SQL filter is `node.filters`. Both become bounds, which are sought in the
index; what a SQL filter says beyond them is looked up in each event between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast import protocol
from holdfast.amqp.errors import INVALID_FIELD, NOT_IMPLEMENTED, Error
from node.filters import END, Bounds, FilterError, Predicate, parse
from node.listener.errors import Refused
from node.partition.api import After, AfterTime, Earliest, Latest, Start

_OFFSET = re.compile(f"[0-9a-f]{{{protocol.OFFSET_DIGITS}}}")
_TIMESTAMP_LIMIT_MS = 1 << 62
_TEXTS = re.compile(r"'[^']*'|\"[^\"]*\"")
_JMS_HEADER = re.compile(r"\bJMS\w+")

_SHOWN_CHARACTERS = 24
"""Characters shown of the place where a SQL filter went wrong: enough to find it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Events after `start`, within all bounds, that match `predicate`. `in_force` goes into the answer to the
    attach."""

    start: Start
    above_offset: int = -1
    above_time_ms: int = -1
    in_force: Mapping[str, Any] = field(default_factory=dict)
    below_offset: int = END
    below_time_ms: int = END
    predicate: Predicate | None = None
    latest: int = 0  # what the predicate takes for `@latest`: the first offset after the attach
    uncommitted: bool = False  # events of transactions that are open, or were aborted, too

    @property
    def needs_latest(self) -> bool:
        """True if `at` must be called, for each partition."""
        return self.predicate is not None and self.predicate.needs_latest

    @property
    def empty(self) -> bool:
        """True if no event can ever pass."""
        return self.above_offset + 1 >= self.below_offset or self.above_time_ms + 1 >= self.below_time_ms

    def at(self, latest: int) -> Selection:
        """The selection with `@latest` resolved."""
        if self.predicate is None:
            return self
        return replace(self._within(self.predicate.bounds(latest)), latest=latest)

    def before(self, offset: int) -> Selection:
        """The selection without events at or after the offset."""
        return replace(self, below_offset=min(self.below_offset, offset))

    def _within(self, box: Bounds) -> Selection:
        above_offset = max(self.above_offset, box.first_offset - 1)
        above_time_ms = max(self.above_time_ms, box.first_ms - 1)
        return replace(
            self,
            start=self.start if isinstance(self.start, Latest) else _start(above_offset, above_time_ms),
            above_offset=above_offset,
            above_time_ms=above_time_ms,
            below_offset=min(self.below_offset, box.end_offset),
            below_time_ms=min(self.below_time_ms, box.end_ms),
        )


def select(
    filters: Mapping[str, Any] | None, start_offset: str | None = None, start_ms: int | None = None
) -> Selection:
    """Read the selection that a source's filter map asks for. `start_offset`, `start_ms`: where its address lets it
    begin. Raises Refused."""
    offsets = [] if start_offset is None else [_offset("of the address", start_offset)]
    times_ms = [] if start_ms is None else [start_ms]
    predicate: Predicate | None = None
    in_force: dict[str, Any] = {}
    elsewhere: dict[str, Any] = {}  # in force, and silent about where to begin
    uncommitted = False
    for name, described in (filters or {}).items():
        if described is None:  # legal, and means no filter
            continue
        key = _descriptor(str(name), described)
        if key == protocol.ISOLATION_FILTER:
            uncommitted = _read_isolation(str(name), described.value)
            elsewhere[name] = described
            continue
        if key in protocol.DELIVERY_ANNOTATIONS_FILTER:
            _read_annotations(str(name), described.value, offsets, times_ms)
        elif key in protocol.SQL_FILTERS or key == protocol.EVENT_FILTER:
            fields = key == protocol.EVENT_FILTER
            predicate = _read_sql(str(name), described.value, predicate, event_fields=fields)
        elif key in protocol.SELECTOR_FILTERS:
            predicate = _read_selector(str(name), described.value, predicate)
            elsewhere[name] = described
            continue
        elif key in protocol.FILTER_EXPRESSIONS:
            raise _not_implemented(str(name), key)
        else:
            continue
        in_force[name] = described
    selection = _combine(offsets, times_ms, predicate, begins=bool(in_force or offsets or times_ms))
    return replace(selection, in_force={**in_force, **elsewhere}, uncommitted=uncommitted)


def read_until(value: Any) -> int | None:
    """Read the offset of a link property. Raises Refused."""
    if value is None:
        return None
    if not isinstance(value, str) or not _OFFSET.fullmatch(value):
        raise _invalid(f"{protocol.LINK_UNTIL} must be an offset, {protocol.OFFSET_DIGITS} hex digits, not {value!r}")
    return int(value, 16)


def _descriptor(name: str, described: Any) -> int | str:
    descriptor = getattr(described, "descriptor", None)
    if descriptor is None:
        raise _invalid(f"filter {name!r} is not a described value: write {{name: described(code, value)}}")
    if isinstance(descriptor, int) and not isinstance(descriptor, bool):
        return int(descriptor)
    if isinstance(descriptor, str):
        return str(descriptor)
    raise _invalid(f"filter {name!r} is described by a {type(descriptor).__name__}; a symbol or a ulong is expected")


def _read_annotations(name: str, value: Any, offsets: list[str], times_ms: list[int]) -> None:
    if not isinstance(value, Mapping):
        raise _invalid(f"filter {name!r}: its value must be a map of {protocol.ANNOTATION_OFFSET} and/or timestamp")
    for key, comparand in value.items():
        if key == protocol.ANNOTATION_OFFSET:
            offsets.append(_offset(name, comparand))
        elif key == protocol.ANNOTATION_TIMESTAMP:
            times_ms.append(_timestamp(name, comparand))
        else:
            raise _invalid(
                f"filter {name!r}: key {str(key)!r} is unknown; only {protocol.ANNOTATION_OFFSET} and "
                f"{protocol.ANNOTATION_TIMESTAMP} can be compared"
            )


def _offset(name: str, comparand: Any) -> str:
    text = str(comparand) if isinstance(comparand, str) else ""
    if text in (protocol.OFFSET_EARLIEST, protocol.OFFSET_LATEST) or _OFFSET.fullmatch(text):
        return text
    raise _invalid(
        f"filter {name!r}: {comparand!r} is no offset of this log; give back an offset as it was received, "
        f"{protocol.OFFSET_EARLIEST} or {protocol.OFFSET_LATEST}"
    )


def _timestamp(name: str, comparand: Any) -> int:
    if isinstance(comparand, int) and not isinstance(comparand, bool) and abs(comparand) < _TIMESTAMP_LIMIT_MS:
        return max(int(comparand), -1)
    raise _invalid(f"filter {name!r}: {comparand!r} is no timestamp (milliseconds since 1970, UTC)")


def _read_isolation(name: str, value: Any) -> bool:
    if value in (protocol.COMMITTED, protocol.UNCOMMITTED):
        return bool(value == protocol.UNCOMMITTED)
    raise _invalid(f"filter {name!r}: isolation is {protocol.COMMITTED!r} or {protocol.UNCOMMITTED!r}, not {value!r}")


def _read_sql(name: str, value: Any, before: Predicate | None, *, event_fields: bool) -> Predicate:
    """Parse a SQL filter, and combine it with the filters before it."""
    if not isinstance(value, str):
        raise _invalid(f"filter {name!r}: its value must be a string, not a {type(value).__name__}")
    try:
        found = parse(str(value), event_fields=event_fields)
        return found if before is None else before & found
    except FilterError as error:
        rest = value[error.at : error.at + _SHOWN_CHARACTERS]
        near = f" (at {rest!r})" if rest else ""
        raise _invalid(f"filter {name!r}, character {error.at + 1}{near}: {error.message}") from None


def _read_selector(name: str, value: Any, before: Predicate | None) -> Predicate:
    """Read a JMS selector: SQL whose names are application properties."""
    outside = _TEXTS.sub("", value) if isinstance(value, str) else ""
    if (header := _JMS_HEADER.search(outside)) is not None:
        raise _invalid(f"filter {name!r}: {header[0][:40]} is no application property; a selector can name only those")
    return _read_sql(name, value, before, event_fields=False)


def _combine(offsets: list[str], times_ms: list[int], predicate: Predicate | None, *, begins: bool) -> Selection:
    """Combine the filters: every one must pass, so the highest of each kind counts. `@` sorts between digits and
    letters, and is sieved out. `begins`: something says where to begin."""
    above_time_ms = max(times_ms, default=-1)
    above_offset = max((int(text, 16) for text in offsets if not text.startswith("@")), default=-1)
    from_now_on = protocol.OFFSET_LATEST in offsets or not begins
    start = Latest() if from_now_on else _start(above_offset, above_time_ms)
    selection = Selection(start, above_offset, above_time_ms, predicate=predicate)
    return selection if selection.needs_latest else selection.at(0)


def _start(above_offset: int, above_time_ms: int) -> Start:
    if above_time_ms >= 0:
        return AfterTime(above_time_ms, above_offset)
    return After(above_offset) if above_offset >= 0 else Earliest()


def _not_implemented(name: str, key: int | str) -> Refused:
    text = f"filter {name!r} ({key}) is not implemented here; say it as amqp:sql-filter, in SQL"
    return Refused(Error(NOT_IMPLEMENTED, text))


def _invalid(text: str) -> Refused:
    return Refused(Error(INVALID_FIELD, text))
