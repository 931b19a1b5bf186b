"""Retention, how long and how much a log keeps: as people write it, and what a change of it would delete.

Problem: retention deletes within seconds, and for good. A number without a unit is a guess (7 was meant as days, and
deleted everything older than 7 ms), and so is a bound that nobody held against what is stored.
Rule never broken: a quantity has a unit; and before a bound is made tighter, it is known how many events that costs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from holdfast.client.range_client import PartitionExtent, RangeClient

FOR_EVER = "forever"
MOST = (1 << 63) - 1
"""The largest number that a request carries."""


class Quantity(click.ParamType):
    """A duration ('7d', '90min', '1500ms') or a size ('512MiB'), or, where that is one, `forever`: no bound."""

    _PATTERN = re.compile(r"(-?\d{1,19})\s*([A-Za-z]*)", re.ASCII)

    def __init__(self, name: str, units: Mapping[str, int], usual: tuple[str, ...], *, bounded: bool = False) -> None:
        """`usual`: units to offer to a person who wrote none. `bounded`: `forever` is not one."""
        self.name = name
        self._or_for_ever = "" if bounded else f" or {FOR_EVER}"
        self._units, self._usual = units, usual

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if isinstance(value, int) or (value == FOR_EVER and self._or_for_ever):
            return value
        match = self._PATTERN.fullmatch(str(value).strip())
        units = f"a number and one of {', '.join(self._units)}{self._or_for_ever.replace(' or', '; or')}"
        if match is not None and int(match[1]) <= 0:
            self.fail(f"{value!r}: a {self.name} is more than 0; write {units}", param, ctx)
        if match is not None and not match[2]:
            offered = ", ".join(f"{match[1]}{unit}" for unit in self._usual)
            self.fail(f"{value!r} has no unit; write {offered}{self._or_for_ever}", param, ctx)
        # Elsewhere M means months, and minutes in their place would delete nearly everything.
        unit = None if match is None or match[2] == "M" else self._lengths().get(match[2].lower())
        if match is None or unit is None:
            self.fail(f"{value!r} is not a {self.name}: {units}", param, ctx)
        if (length := int(match[1]) * unit) > MOST:
            self.fail(f"{value!r}: a {self.name} is less than {1 + MOST // unit}{match[2]}", param, ctx)
        return length

    def _lengths(self) -> dict[str, int]:
        return {unit.lower(): length for unit, length in self._units.items()}


DURATION = Quantity(
    "duration",
    {"ms": 1, "s": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000},
    ("d", "h", "min", "s", "ms"),
)
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = Quantity("size", BYTES, ("GiB", "MiB", "KiB", "B"))
PACE = Quantity("size", BYTES, ("MiB", "GiB"), bounded=True)
"""A size that is copied in a second."""


class Losses(NamedTuple):
    """Events that a retention deletes of a log as it is now, and those that stay; about, where bytes decide."""

    deleted: int
    kept: int


async def retention_losses(
    ranges: RangeClient, present: Mapping[str, Any], retention_ms: int | None, retention_bytes: int | None
) -> Losses:
    """Events that bounds would delete of the log that is described as `present`. A bound that is none, or wider than
    the one that is in force, deletes nothing."""
    age_ms = retention_ms if _tighter(retention_ms, present.get("retention_ms")) else None
    size = retention_bytes if _tighter(retention_bytes, present.get("retention_bytes")) else None
    deleted = kept = 0
    if age_ms is not None or size is not None:
        for extent in await ranges.extents(present["name"]):
            lost = await _lost(ranges, present["name"], extent, age_ms, size)
            deleted, kept = deleted + lost, kept + extent.end - extent.start - lost
    return Losses(deleted, kept)


def _tighter(bound: int | None, present: int | None) -> bool:
    return bound is not None and (present is None or bound < present)


async def _lost(ranges: RangeClient, log: str, extent: PartitionExtent, age_ms: int | None, size: int | None) -> int:
    events, lost = extent.end - extent.start, 0
    if size is not None and extent.stored_bytes > size:
        lost = events * (extent.stored_bytes - size) // extent.stored_bytes
    if age_ms is not None and events:
        oldest_ms = max(0, int(time.time() * 1000) - age_ms)
        lost = max(lost, await ranges.offset_at(log, extent.partition, oldest_ms, extent.end) - extent.start)
    return lost
