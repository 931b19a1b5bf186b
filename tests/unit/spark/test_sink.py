"""The pure parts of writing: rows become the client's bytes at their places, and only what was written is committed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="there is no pyspark here: `make test` installs it")

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from holdfast.client import encode_event
from holdfast.client.transact.group_member import GroupNames
from holdfast.spark.errors import OptionError
from holdfast.spark.sink.columns import RUN_ROWS, Router, RowError, check_schema, encoded, pieces
from holdfast.spark.sink.options import parse
from holdfast.spark.sink.part_task import PartWritten, hold, joined_up
from holdfast.spark.sink.writers import Planned, StreamWriter, UnfitCommit, group_writer, winners_of

NEEDED = {"servers": "127.0.0.1:5672", "log": "trades"}
NAMES = GroupNames("me/trades", 7, "run")


def rows(**columns: Any) -> pa.RecordBatch:
    texts = {"key": pa.string(), "body": pa.binary(), "properties": pa.map_(pa.string(), pa.string())}
    return pa.record_batch({name: pa.array(values, texts.get(name)) for name, values in columns.items()})


def router(partitions: int = 4, turn: int = 0) -> Router:
    return Router("trades", [str(number) for number in range(partitions)], lambda key: str(len(key)), turn)


def test_events_are_those_that_the_client_writes() -> None:
    bodies = [b"", b"a", b"b" * 255, b"c" * 256, b"d" * 70_000, b"e"]
    keys = [None, "", "IBM", "IBM", "k" * 300, "\N{SNOWMAN}"]
    properties = [None, {}, {"a": "b"}, None, {"x": None, "y": "z"}, None]
    maps = [None if each is None else list(each.items()) for each in properties]
    found = pieces(encoded(rows(body=bodies, key=keys, properties=maps)))
    wanted = zip(bodies, keys, properties, strict=True)
    assert found == [encode_event(body, key, given) for body, key, given in wanted]
    sliced = rows(body=bodies, key=keys).slice(2, 3)
    assert pieces(encoded(sliced)) == [encode_event(*pair) for pair in zip(bodies[2:5], keys[2:5], strict=True)]
    texts = pa.record_batch({"body": pa.array(["gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n"])})
    assert pieces(encoded(texts)) == [encode_event("gr\xfcn".encode())]


def test_a_body_that_is_null_is_refused() -> None:
    with pytest.raises(RowError, match="the body of a row is null"):
        encoded(rows(body=[b"a", None]))


def test_the_partition_counts_before_the_key_and_the_key_before_the_turn() -> None:
    given = rows(body=[b"0", b"1", b"2", b"3"], key=["kk", "kk", None, None], partition=["1", None, "3", None])
    assert router(turn=1).places(given).tolist() == [1, 2, 3, 1]
    numbers = rows(body=[b"0", b"1"], partition=[3, 0])
    assert dict(router().split(numbers)) == {"3": [encode_event(b"0")], "0": [encode_event(b"1")]}
    with pytest.raises(RowError, match="names partition '9', and log 'trades' has 0, 1, 2, 3"):
        router().places(rows(body=[b"0"], partition=[9]))


def test_rows_without_a_place_are_spread_in_runs_and_go_on_in_turn() -> None:
    bodies = [b"%d" % number for number in range(4 * RUN_ROWS)]
    several = router(turn=2)
    found = dict(several.split(rows(body=bodies)))
    assert {name: len(events) for name, events in found.items()} == dict.fromkeys("0123", RUN_ROWS)
    assert found["2"] == [encode_event(body) for body in bodies[:RUN_ROWS]], "a run of rows, in their order"
    few = [several.places(rows(body=[b"a", b"b"])).tolist() for _ in range(2)]
    assert few == [[2, 2], [3, 3]]


TEXTS = MapType(StringType(), StringType())


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (schema(body=IntegerType()), "the column 'body' is binary or string, not int"),
        (schema(key=StringType()), "there is no column 'body'"),
        (schema(body=BinaryType(), colour=StringType()), "the column 'colour' has no place in an event"),
        (schema(body=BinaryType(), partition=DoubleType()), "the column 'partition' is string or int, not double"),
        (
            schema(body=BinaryType(), properties=MapType(StringType(), IntegerType())),
            "the column 'properties' is map<string,string>, not map<string,int>",
        ),
    ],
)
def test_schemas_that_are_refused(given: StructType, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_schema(given)


def test_schemas_that_are_taken() -> None:
    check_schema(schema(properties=TEXTS, partition=IntegerType(), key=StringType(), body=StringType()))
    check_schema(schema(body=BinaryType(), partition=StringType()))


# ---------------------------------------------------------------- options


def test_what_is_left_out_has_its_default() -> None:
    options = parse(NEEDED | {"checkpointlocation": "/c", "QUERYNAME": "q"}, streaming=True)
    assert (options.exactly_once, options.writer, options.batch, options.lease_s) == (True, None, None, 30.0)
    named = parse(NEEDED | {"writerid": "me", "batchid": "12"}, streaming=False)
    assert (named.writer, named.batch) == ("me", 12)
    assert parse(NEEDED | {"asyncprogresstrackingenabled": "false"}, streaming=True).exactly_once


@pytest.mark.parametrize(
    ("options", "streaming", "said"),
    [
        ({"guarantee": "once"}, False, "option guarantee is 'exactly-once' or 'at-least-once'"),
        ({"guarantee": "at-least-once", "writerid": "me"}, True, "writerId means nothing with the guarantee"),
        ({"writerid": "me"}, False, "writerId and batchId, or none of them"),
        ({"batchid": "1"}, False, "writerId and batchId, or none of them"),
        ({"writerid": "me", "batchid": "-1"}, False, "option batchId is a whole number from 0 on"),
        ({"writerid": "me", "batchid": "1"}, True, "Spark numbers the batches of a stream"),
        ({"writerid": "$me"}, True, "no dollar sign in front"),
        ({"writerid": "m" * 129}, True, "1 to 128 characters"),
        ({"leaseseconds": "1"}, True, "option leaseSeconds is 2 to 300 seconds, not 1"),
        ({"grouptimeoutseconds": "99999"}, True, "option groupTimeoutSeconds is 1 to 14400 seconds"),
        ({"checkpointlocation": "/c"}, False, "there is no option 'checkpointlocation'"),
        ({"asyncprogresstrackingenabled": "true"}, True, "asynchronous progress tracking is not possible"),
        ({"writerld": "me"}, True, "there is no option 'writerld': did you mean writerId?"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], streaming: bool, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(NEEDED | options, streaming=streaming)
    assert said in str(caught.value)


# ---------------------------------------------------------------- commits


def part(number: int, member: str | None = "m", **more: Any) -> PartWritten:
    return PartWritten(more.pop("names", NAMES), str(number), member, **more)


def test_those_who_wrote_something_win() -> None:
    assert winners_of([part(0, "a"), part(1, None), part(2, "b")], 7) == (NAMES, ["a", "b"])
    assert winners_of([part(0, None), part(1, None)], 7) is None, "there is nothing to commit"
    assert winners_of([part(0, None, is_done=True), part(1, "b")], 7) is None, "it was committed before"
    assert winners_of([], 7) is None


def test_what_does_not_belong_together_is_not_committed() -> None:
    with pytest.raises(UnfitCommit, match="1 of 2 tasks have said nothing"):
        winners_of([part(0), None], 7)
    with pytest.raises(UnfitCommit, match="tasks of other batches than 8"):
        winners_of([part(0)], 8)
    with pytest.raises(UnfitCommit, match="tasks of other batches"):
        winners_of([part(0), part(1, names=GroupNames("me/trades", 7, "another"))], 7)


def test_what_travels_is_plain_data() -> None:
    planned = Planned(parse(NEEDED, streaming=True), "run", None, None, False)
    assert pickle.loads(pickle.dumps(StreamWriter(planned)))._planned == planned
    assert pickle.loads(pickle.dumps(part(1))) == part(1)
    assert group_writer("me", "a") != group_writer("me", "b"), "a batch that goes into two logs is written into both"


# ---------------------------------------------------------------- a task's input


def test_input_is_held_up_to_a_limit_and_joined_up() -> None:
    batches = [rows(body=[b"%d" % number] * 10) for number in range(6)]
    held, rest = hold(iter([rows(body=[]), *batches]), batches[0].nbytes)
    assert len(held) == 2, "what is empty is left out; the one that passes the limit is the last"
    joined = list(joined_up(held, rest, 25))
    assert [each.num_rows for each in joined] == [30, 30]
    assert pa.Table.from_batches(joined) == pa.Table.from_batches(batches)
    assert hold(iter([rows(body=[])]), 0)[0] == []
