"""The arithmetic of reading: ranges cover what lies between, once; limits hold; loss is judged by the start alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import PartitionExtent
from holdfast.spark.errors import DataLossError, OptionError
from holdfast.spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Place,
    Places,
    check_identity,
    check_reach,
    checkpointed,
    chosen,
    limited,
    offsets_for_bytes,
    parted,
    ranges,
    resolved,
    without_lost,
)

positions = st.dictionaries(st.sampled_from("01234"), st.integers(0, 1000), min_size=1)


def extent(partition: str, start: int, end: int, stored: tuple[int, int] = (0, 0)) -> PartitionExtent:
    return PartitionExtent(partition, start, end, *stored)


@given(positions, st.dictionaries(st.sampled_from("01234"), st.integers(0, 1000)), st.none() | st.integers(1, 50))
def test_ranges_cover_what_lies_between_once(start: dict[str, int], lengths: dict[str, int], least: int | None) -> None:
    end = {partition: start.get(partition, 0) + length for partition, length in lengths.items()}
    found = ranges(start, end, least)
    for partition, last in end.items():
        covered = [offset for each in found if each.partition == partition for offset in range(each.first, each.end)]
        assert covered == list(range(start.get(partition, 0), last))
    assert all(each.first < each.end for each in found)
    if least is not None:
        assert len(found) >= min(least, sum(lengths.values()))


@given(positions, positions, st.none() | st.integers(1, 2000))
def test_a_limit_holds_and_never_stops_everything(
    start: dict[str, int], ends: dict[str, int], most: int | None
) -> None:
    end = limited(start, ends, most)
    steps = {partition: end[partition] - start.get(partition, 0) for partition in end}
    behind = sum(max(0, last - start.get(partition, 0)) for partition, last in ends.items())
    assert all(step >= 0 for step in steps.values()), "nothing goes back"
    assert all(end[partition] <= max(ends[partition], start.get(partition, 0)) for partition in end)
    assert sum(steps.values()) == (behind if most is None else min(most, behind))


def test_places_become_positions() -> None:
    extents = [extent("0", 3, 9), extent("1", 0, 0)]
    asked: list[tuple[str, int]] = []

    def offset_at(of: PartitionExtent, timestamp_ms: int) -> int:
        asked.append((of.partition, timestamp_ms))
        return 5

    assert resolved(Places(every=EARLIEST), extents, offset_at) == {"0": 3, "1": 0}
    assert resolved(Places(every=LATEST), extents, offset_at) == {"0": 9, "1": 0}
    assert resolved(Places(of={"0": Place(offset=7), "1": LATEST}), extents, offset_at) == {"0": 7, "1": 0}
    assert asked == []
    assert resolved(Places(every=Place(timestamp_ms=8)), extents, offset_at) == {"0": 5, "1": 5}
    assert asked == [("0", 8), ("1", 8)]


def test_places_are_for_the_partitions_that_are_read() -> None:
    Places(of={"0": EARLIEST}).check("startingOffsets", ["0"])
    with pytest.raises(OptionError, match="lacks partition 1"):
        Places(of={"0": EARLIEST}).check("startingOffsets", ["0", "1"])
    with pytest.raises(OptionError, match="names partition 7"):
        Places(of={"0": EARLIEST, "7": LATEST}).check("startingOffsets", ["0"])
    extents = [extent("0", 0, 1), extent("1", 0, 1)]
    assert chosen(extents, None, "log") == extents
    assert chosen(extents, ("1",), "log") == [extents[1]]
    with pytest.raises(OptionError, match="names '2': log 'log' has 0, 1"):
        chosen(extents, ("2",), "log")


def test_loss_is_judged_by_the_start_of_the_log() -> None:
    extents = [extent("0", 100, 200)]
    assert without_lost({"0": 100}, extents, "log", True) == {"0": 100}
    with pytest.raises(DataLossError, match="from 90 to 99"):
        without_lost({"0": 90}, extents, "log", True)
    assert without_lost({"0": 90}, extents, "log", False) == {"0": 100}
    for fail in (True, False):
        with pytest.raises(DataLossError, match="go on at 201, but it ends at 200"):
            without_lost({"0": 201}, extents, "log", fail)
    assert without_lost({}, extents, "log", True) == {}, "a partition that is new begins where it begins"
    with pytest.raises(OptionError, match="ends at 200 now"):
        check_reach({"0": 201}, extents, "endingOffsets")
    check_reach({"0": 200}, extents, "endingOffsets")


def test_bytes_become_events_by_what_is_stored() -> None:
    extents = [extent("0", 0, 10, (10, 1000)), extent("1", 0, 10, (10, 3000))]
    assert offsets_for_bytes(4000, extents) == 20
    assert offsets_for_bytes(1, extents) == 1
    assert offsets_for_bytes(7, [extent("0", 0, 0)]) == 7
    assert ranges({}, {"0": 2}, None) == [OffsetRange("0", 0, 2)]


@given(positions, st.none() | st.just("00000000000000a1/1"))
def test_what_is_read_of_a_checkpoint_is_what_was_written(position: dict[str, int], identity: str | None) -> None:
    """Also as the text that Spark keeps: it compares texts, and takes a batch for empty when both ends are the same."""
    written = checkpointed(position, identity)
    read = json.loads(json.dumps(written))
    assert parted(read) == (position, identity)
    assert json.dumps(checkpointed(*parted(read))) == json.dumps(written)


def test_the_log_of_a_checkpoint_is_the_one_that_is_read() -> None:
    check_identity("a1/1", "a1/1", "trades")
    check_identity(None, "a1/1", "trades")
    check_identity("a1/1", None, "trades")
    with pytest.raises(DataLossError, match="the log was deleted and made anew") as error:
        check_identity("a1/1", "a1/2", "trades")
    assert "new checkpoint" in error.value.advice
    with pytest.raises(DataLossError, match="another cluster answers at this address"):
        check_identity("a1/1", "b2/1", "trades")
