"""Selector filters of Event Hubs: where a receiver begins.

Problem: a start that is misunderstood skips events, or repeats a million. Rule never broken: an expression is one of
those that the service knows, in any spacing, quoted or not; every other is refused with the service's sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast import protocol
from node.listener.errors import Refused
from node.listener.event_hubs import hub_errors
from node.listener.outgoing.source_filters import Selection
from node.partition.api import After, AfterTime, Earliest, Latest, PartitionDescription, Start

_EXPRESSION = re.compile(
    r"\s*amqp\.annotation\.x-opt-(offset|sequence-number|enqueued-time)\s*(>=?)\s*('?)(@latest|-?\d{1,19})\3\s*",
    re.IGNORECASE,
)
_LATEST, _EARLIEST = "@latest", -1
_HIGHEST = 1 << 62


class Supplied(NamedTuple):
    """A position that a receiver states. `what`: "offset" or "sequence number"."""

    what: str
    value: int

    def check(self, info: PartitionDescription, *, resets: bool = False) -> None:
        """Raise Refused for a position that no event of the partition has had: it is of another life of the log.
        `resets`: the peer's processor can be told to begin anew."""
        last = info.next_offset - 1
        if self.value > last:
            raise Refused(hub_errors.position_invalid(self.what, self.value, last, resets=resets))


class Began(NamedTuple):
    selection: Selection
    supplied: Supplied | None


def read_selector(filters: Mapping[str, Any] | None) -> Began | None:
    """The start that a source's selector filter asks for. None: it has none. Raises Refused."""
    found = {
        name: described
        for name, described in (filters or {}).items()
        if getattr(described, "descriptor", None) in protocol.SELECTOR_FILTERS
    }
    if not found:
        return None
    if len(found) > 1 or len(found) < len(filters or {}):
        raise Refused(hub_errors.filter_invalid(", ".join(map(str, filters or {}))))
    expression = next(iter(found.values())).value
    match = _EXPRESSION.fullmatch(expression) if isinstance(expression, str) else None
    if match is None:
        raise Refused(hub_errors.filter_invalid(expression))
    start, supplied = _start(match[1].lower(), match[2] == ">=", match[4].lower(), expression)
    above = start.offset if isinstance(start, After) else -1
    time_ms = start.timestamp_ms if isinstance(start, AfterTime) else -1
    return Began(Selection(start, above, time_ms, found), supplied)


def _start(field: str, inclusive: bool, text: str, expression: str) -> tuple[Start, Supplied | None]:
    if text == _LATEST:
        if field != "offset":
            raise Refused(hub_errors.filter_invalid(expression))
        return Latest(), None
    value = min(int(text), _HIGHEST)
    if field == "enqueued-time":
        return AfterTime(max(value - inclusive, -1)), None
    if value <= _EARLIEST:
        return Earliest(), None
    what = "offset" if field == "offset" else "sequence number"
    after = value - inclusive
    return (After(after) if after >= 0 else Earliest()), Supplied(what, value)
