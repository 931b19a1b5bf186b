"""One task of Spark's: a range of a partition, over this process's own connection to the partition's leader.

Everything that a task needs is in the `RangePartition` that the driver planned; nothing of it is a connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from holdfast.client.sync import RangeClient
from holdfast.spark.connections import client_of
from holdfast.spark.errors import DataLossError, one_sentence
from holdfast.spark.offsets import OffsetRange
from holdfast.spark.options import SourceOptions
from holdfast.spark.record_batches import PUBLISHER_COLUMNS, BatchBuilder

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class RangePartition(InputPartition):
    """Range that one task reads. `reading`: the batch, or the run of a stream, that it is part of. `identity`: that of
    the log that was planned for."""

    range: OffsetRange
    options: SourceOptions
    reading: str
    identity: str | None = None


def read_range(task: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(task, RangePartition):  # else nothing is to be read, and Spark wants a task for it
        with one_sentence():
            yield from _batches(task)


def _batches(task: RangePartition) -> Iterator[pa.RecordBatch]:
    wanted, options = task.range, task.options
    client = client_of(task.reading, options, uncommitted=options.uncommitted)
    builder, following = BatchBuilder(options.columns), wanted.first
    gap: int | None = None
    publishers = not PUBLISHER_COLUMNS.isdisjoint(options.columns)
    blocks = client.read(
        options.log, wanted.partition, wanted.first, wanted.end,
        filter=options.filter, publishers=publishers, identity=task.identity,
    )  # fmt: skip
    for block in blocks:
        batch, first, last = builder.batch(block)
        if gap is None and (first != following or last - first + 1 != len(block)):
            gap = following
        following = last + 1
        yield batch
    gap = following if gap is None and following != wanted.end else gap
    if gap is not None and options.fail_on_data_loss:
        _check_loss(client, task, gap)


def _check_loss(client: RangeClient, task: RangePartition, gap: int) -> None:
    """Check a gap for lost events. Gaps are normal. One that begins where the log does not reach any more may be what
    retention has taken since the range was planned."""
    wanted, options = task.range, task.options
    for extent in client.extents(options.log):
        if extent.partition == wanted.partition and gap < min(extent.start, wanted.end):
            raise DataLossError(
                f"log {options.log!r}, partition {wanted.partition}: retention has reached {extent.start} while the "
                f"events from {wanted.first} to {wanted.end - 1} were read, and some of them may be lost"
            )
