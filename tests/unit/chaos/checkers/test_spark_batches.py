"""What a checkpoint of Spark says of a query's batches."""

from __future__ import annotations

import json
import os
from pathlib import Path

from chaos.workloads.spark_batches import Batch, batches, is_in_a_batch, made_of, place_of


def checkpoint(directory: Path, ends: list[dict[str, int]], committed: int) -> Path:
    """As Spark 4 writes it, with files of its own beside."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir()
        (directory / name / ".0.crc").write_bytes(b"crc")
    for number, end in enumerate(ends):
        (directory / "offsets" / str(number)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', json.dumps(end)]))
        if number < committed:
            (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return directory


def test_a_batch_begins_where_the_one_before_ended_and_counts_when_spark_says_so(tmp_path: Path) -> None:
    ends = [{"0": 5}, {"0": 5, "1": 7}, *({"0": 5 + number, "1": 7} for number in range(1, 10))]
    found = list(batches(checkpoint(tmp_path, ends, 10)))
    assert found[:2] == [Batch(0, {}, {"0": 5}, True), Batch(1, {"0": 5}, {"0": 5, "1": 7}, True)]
    assert [batch.number for batch in found] == list(range(11)), "10 comes behind 9"
    assert [batch.is_committed for batch in found] == [True] * 10 + [False]
    assert [found[0].has("0", offset) for offset in (0, 4, 5)] == [True, True, False]
    assert [found[1].has(*place) for place in (("0", 4), ("0", 5), ("1", 0), ("1", 6), ("1", 7))] == [
        False, False, True, True, False
    ]  # fmt: skip
    assert not found[0].has("1", 0)


def test_a_batch_is_under_way_from_its_plan_to_its_commit_for_who_has_committed_another(tmp_path: Path) -> None:
    assert not is_in_a_batch(tmp_path / "none", 1.0)
    directory = checkpoint(tmp_path, [{"0": 5}, {"0": 9}], 1)
    planned, committed = directory / "offsets" / "1", directory / "commits" / "0"
    os.utime(committed, (100, 100))
    os.utime(planned, (110, 110))
    assert is_in_a_batch(directory, 100)
    assert not is_in_a_batch(directory, 105), "it is the first of who began then"
    os.utime(committed, (120, 120))
    assert not is_in_a_batch(directory, 115), "an earlier one has planned it"
    (directory / "commits" / "1").touch()
    assert not is_in_a_batch(directory, 100)


def test_a_query_that_never_began_has_none(tmp_path: Path) -> None:
    assert list(batches(tmp_path / "none")) == []


def test_what_is_made_of_a_value_is_always_the_same_and_always_in_one_place() -> None:
    values = [made_of("spark", f"p0:{number}") for number in range(100)]
    assert len(set(values)) == 100
    assert values[7] == "spark.p0:7"
    places = [place_of(value, 3) for value in values]
    assert set(places) == {0, 1, 2}
    assert places == [place_of(value, 3) for value in values]
