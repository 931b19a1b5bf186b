"""Reading a log as a table: from one place to another, both fixed when the query is planned."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.client import PartitionExtent
from holdfast.client.sync import RangeClient
from holdfast.spark import offsets
from holdfast.spark.connections import open_client, resolve
from holdfast.spark.errors import OptionError, in_one_sentence
from holdfast.spark.offsets import EARLIEST, LATEST, OffsetRange, Places
from holdfast.spark.options import SourceOptions
from holdfast.spark.range_task import RangePartition, read_range

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @in_one_sentence
    def partitions(self) -> Sequence[InputPartition]:
        options = replace(self._options, servers=resolve(self._options.servers))
        with open_client(options, uncommitted=options.uncommitted) as client:
            planned, identity = plan(client, options), client.identity(options.log)
        reading = uuid.uuid4().hex
        return [RangePartition(each, options, reading, identity) for each in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition)


def plan(client: RangeClient, options: SourceOptions) -> list[OffsetRange]:
    """Plan the ranges to read. Raises what is wrong with the options, as far as the log tells."""
    extents = known_extents(client, options)
    start = position_of(client, options, extents, options.start or Places(every=EARLIEST), "startingOffsets")
    end = position_of(client, options, extents, options.end or Places(every=LATEST), "endingOffsets")
    offsets.check_reach(end, extents, "endingOffsets")
    for partition, first in start.items():
        if first > end[partition] and options.end is not None:
            raise OptionError(
                f"partition {partition} would be read from {first} to {end[partition]}: the end lies before the start"
            )
    offsets.check_reach(start, extents, "startingOffsets")
    start = offsets.without_lost(start, extents, options.log, options.fail_on_data_loss)
    return offsets.ranges(start, end, options.min_partitions)


def known_extents(client: RangeClient, options: SourceOptions) -> list[PartitionExtent]:
    """Extents of the partitions that are read; raises what the nodes say against log and filter."""
    extents = offsets.chosen(client.extents(options.log), options.partitions, options.log)
    if options.filter is not None:
        client.check(options.log, extents[0].partition, options.filter)
    return extents


def position_of(
    client: RangeClient, options: SourceOptions, extents: Sequence[PartitionExtent], places: Places, option: str
) -> offsets.Position:
    places.check(option, [extent.partition for extent in extents])

    def offset_at(extent: PartitionExtent, timestamp_ms: int) -> int:
        return max(extent.start, client.offset_at(options.log, extent.partition, timestamp_ms, extent.end))

    return offsets.resolved(places, extents, offset_at)
