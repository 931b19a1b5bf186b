"""Arithmetic of reading, from options and extents to ranges of offsets, without a socket.

A *position* is the next offset to be read, by partition. Spark writes a position into a checkpoint, and the
identity of the log that it is in: the same offsets of another log are other events. A range holds the events
with first <= offset < end. A reader gets no events that were rolled back or that its filter leaves out, so a range may
hold fewer events than it has offsets, or none.

Rules never broken: the same start and end give the same ranges, whatever the log has become meanwhile; a limit is never
exceeded, and never stops everything; loss is judged by the start of the log alone, never by gaps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.client import PartitionExtent
from holdfast.spark.errors import DataLossError, OptionError

Position = dict[str, int]

Checkpointed = dict[str, int | str]
"""A position, and beside the partitions, whose names are numbers, the log."""

LOG: Final = "log"


@dataclass(frozen=True)
class Place:
    """A place in any partition."""

    offset: int | None = None
    timestamp_ms: int | None = None
    word: str | None = None


EARLIEST, LATEST = Place(word="earliest"), Place(word="latest")


@dataclass(frozen=True)
class Places:
    """One place for every partition, or one for each by name."""

    every: Place | None = None
    of: Mapping[str, Place] = field(default_factory=dict)

    def check(self, option: str, partitions: Sequence[str]) -> None:
        """Raise OptionError unless it says something of each partition, and of no other."""
        if self.every is not None:
            return
        missing = [name for name in partitions if name not in self.of]
        strange = [name for name in self.of if name not in partitions]
        if missing or strange:
            what = f"lacks partition {', '.join(missing)}" if missing else f"names partition {', '.join(strange)}"
            raise OptionError(f"option {option} {what}: the partitions that are read are {', '.join(partitions)}")

    def place(self, partition: str) -> Place:
        return self.every or self.of[partition]


@dataclass(frozen=True)
class OffsetRange:
    partition: str
    first: int
    end: int


def chosen(extents: Sequence[PartitionExtent], wanted: tuple[str, ...] | None, log: str) -> list[PartitionExtent]:
    """Extents of the partitions that are to be read; raises OptionError."""
    if wanted is None:
        return list(extents)
    known = {extent.partition: extent for extent in extents}
    for name in wanted:
        if name not in known:
            raise OptionError(f"option partitions names {name!r}: log {log!r} has {', '.join(known)}")
    return [known[name] for name in wanted]


def resolved(
    places: Places, extents: Sequence[PartitionExtent], offset_at: Callable[[PartitionExtent, int], int]
) -> Position:
    """Offsets of the places. `offset_at`: returns that of the first event at a time or later."""
    position = {}
    for extent in extents:
        place = places.place(extent.partition)
        if place.timestamp_ms is not None:
            position[extent.partition] = offset_at(extent, place.timestamp_ms)
        elif place.offset is not None:
            position[extent.partition] = place.offset
        else:
            position[extent.partition] = extent.start if place == EARLIEST else extent.end
    return position


def check_reach(position: Position, extents: Sequence[PartitionExtent], option: str) -> None:
    """Raise OptionError for offsets that the log does not have yet."""
    for extent in extents:
        if position[extent.partition] > extent.end:
            raise OptionError(
                f"option {option} says {position[extent.partition]} of partition {extent.partition}, "
                f"which ends at {extent.end} now"
            )


def checkpointed(position: Position, identity: str | None) -> Checkpointed:
    """Position and log as a checkpoint has them. The log is last: Spark takes two for one if their texts are alike."""
    return {**position, **({} if identity is None else {LOG: identity})}


def parted(written: Checkpointed) -> tuple[Position, str | None]:
    """The position, and the identity of its log; None: nobody told one."""
    identity = written.get(LOG)
    return {name: int(at) for name, at in written.items() if name != LOG}, None if identity is None else str(identity)


def check_identity(written: str | None, found: str | None, log: str) -> None:
    """Raise DataLossError if the log of a checkpoint is not the one that was found."""
    if None in (written, found) or written == found:
        return
    same_cluster = str(written).partition("/")[0] == str(found).partition("/")[0]
    why = "the log was deleted and made anew" if same_cluster else "another cluster answers at this address"
    raise DataLossError(
        f"log {log!r} is not the one that the checkpoint is of ({found}, not {written}): {why}",
        advice="begin with a new checkpoint, or correct the address",
    )


def without_lost(position: Position, extents: Sequence[PartitionExtent], log: str, fail: bool) -> Position:
    """The position, or where the log begins by now. `fail`: raises DataLossError instead of passing over anything."""
    kept = dict(position)
    for extent in extents:
        at = position.get(extent.partition)
        if at is None:
            continue
        if at < extent.start:
            if fail:
                raise DataLossError(
                    f"log {log!r}, partition {extent.partition}: the events from {at} to {extent.start - 1} are asked "
                    "for, and are not retained any more"
                )
            kept[extent.partition] = extent.start
        elif at > extent.end:
            raise DataLossError(
                f"log {log!r}, partition {extent.partition}: reading is to go on at {at}, but it ends at {extent.end}: "
                "it is not the log that was read before",
                advice="begin with a new checkpoint",
            )
    return kept


def ranges(start: Position, end: Position, min_partitions: int | None) -> list[OffsetRange]:
    """Ranges between two positions, at least so many pieces if there are as many offsets. A partition that is new to
    `end` is read from its first offset on."""
    whole = [OffsetRange(partition, start.get(partition, 0), last) for partition, last in end.items()]
    whole = [each for each in whole if each.first < each.end]
    if min_partitions is None or min_partitions <= len(whole):
        return whole
    total = sum(each.end - each.first for each in whole)
    return [piece for each in whole for piece in _pieces(each, total, min_partitions)]


def _pieces(whole: OffsetRange, total: int, min_partitions: int) -> list[OffsetRange]:
    length = whole.end - whole.first
    count = min(length, -(-length * min_partitions // total))
    bounds = [whole.first + length * number // count for number in range(count + 1)]
    return [OffsetRange(whole.partition, first, end) for first, end in itertools.pairwise(bounds)]


def limited(start: Position, ends: Position, max_offsets: int | None) -> Position:
    """Position up to which the limit lets one batch go: each partition gets its share by what it has to be read."""
    behind = {partition: max(0, end - start.get(partition, 0)) for partition, end in ends.items()}
    total = sum(behind.values())
    # A partition never goes back, not even when the log was replaced by a shorter one.
    if max_offsets is None or total <= max_offsets:
        return {partition: start.get(partition, 0) + count for partition, count in behind.items()}
    shares = {partition: count * max_offsets // total for partition, count in behind.items()}
    left = max_offsets - sum(shares.values())
    for partition in sorted(behind, key=lambda name: (shares[name] - behind[name], name)):
        if left > 0 and shares[partition] < behind[partition]:
            shares[partition] += 1
            left -= 1
    return {partition: start.get(partition, 0) + share for partition, share in shares.items()}


def offsets_for_bytes(max_bytes: int, extents: Sequence[PartitionExtent]) -> int:
    """Number of events that have about so many bytes, by what is stored; at least one."""
    events = sum(extent.stored_events for extent in extents)
    size = sum(extent.stored_bytes for extent in extents)
    return max(1, max_bytes * events // size) if events and size else max_bytes
