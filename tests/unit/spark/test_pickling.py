"""What Spark carries to other processes holds no connection."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark", reason="there is no pyspark here: `make test` installs it")

from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.connections import open_client
from holdfast.spark.offsets import OffsetRange
from holdfast.spark.options import SourceOptions
from holdfast.spark.range_task import RangePartition
from holdfast.spark.stream_reader import StreamReader

OPTIONS = SourceOptions("127.0.0.1:1", "trades")


def test_a_reader_that_is_connected_travels_without_its_connection() -> None:
    reader = StreamReader(OPTIONS)
    reader._client = open_client(OPTIONS, uncommitted=False)
    copy = pickle.loads(pickle.dumps(reader))
    assert (copy._client, copy._options, copy._reading) == (None, OPTIONS, reader._reading)
    reader.stop()
    assert pickle.loads(pickle.dumps(BatchReader(OPTIONS)))._options == OPTIONS


def test_a_task_is_plain_data() -> None:
    task = RangePartition(OffsetRange("0", 1, 2), OPTIONS, "reading")
    assert pickle.loads(pickle.dumps(task)) == task
