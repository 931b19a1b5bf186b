"""Reading a log as a stream: the driver says how far each batch goes, tasks read it.

Problem: Spark asks one long-lived reader for offsets, in a process of its own, and gives another one, made anew, to the
tasks; after a restart a batch that was planned before is read again, by the offsets in the checkpoint.
Rules never broken: an offset that was said once is never taken back; the end of a batch is stable, so that a batch
that is read again is the same one; with nothing new the answer is the start; with `Trigger.AvailableNow` nothing is
read that came after it began. Tasks get all they need in their partition; the connection of the driver stays there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from holdfast.client import PartitionExtent
from holdfast.client.sync import RangeClient
from holdfast.spark import offsets
from holdfast.spark.batch_reader import known_extents, position_of
from holdfast.spark.connections import open_client, resolve
from holdfast.spark.errors import in_one_sentence
from holdfast.spark.offsets import LATEST, Checkpointed, Places, Position
from holdfast.spark.options import SourceOptions
from holdfast.spark.range_task import RangePartition, read_range

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reading = uuid.uuid4().hex
        self._client: RangeClient | None = None
        self._extents: list[PartitionExtent] | None = None  # as they were when the batch was planned
        self._target: Position | None = None  # of Trigger.AvailableNow

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    # ---------------------------------------------------------------- how far

    @in_one_sentence
    def initialOffset(self) -> Checkpointed:
        extents = self._ask()
        places = self._options.start or Places(every=LATEST)
        position = position_of(self._connected(), self._options, extents, places, "startingOffsets")
        offsets.check_reach(position, extents, "startingOffsets")
        position = offsets.without_lost(position, extents, self._options.log, self._options.fail_on_data_loss)
        return offsets.checkpointed(position, self._identity())

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_events is not None:
            return ReadMaxRows(self._options.max_events)
        return ReadAllAvailable() if self._options.max_bytes is None else ReadMaxBytes(self._options.max_bytes)

    @in_one_sentence
    def latestOffset(self, start: Checkpointed, limit: ReadLimit) -> Checkpointed:
        extents = self._ask()
        begin, identity = self._of_this_log(start)
        offsets.without_lost(begin, extents, self._options.log, self._options.fail_on_data_loss)
        ends = {extent.partition: extent.end for extent in extents}
        if self._target is not None:
            ends = {name: min(end, self._target[name]) for name, end in ends.items() if name in self._target}
        end = begin | offsets.limited(begin, ends, self._most(limit, extents))
        return offsets.checkpointed(end, identity)

    def _most(self, limit: ReadLimit, extents: Sequence[PartitionExtent]) -> int | None:
        """Offsets that one batch may have. Spark passes one limit on; if the options say two, both hold."""
        if isinstance(limit, ReadAllAvailable):
            return None
        most = [limit.max_rows] if isinstance(limit, ReadMaxRows) else []
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes
        if max_bytes is not None:
            most.append(offsets.offsets_for_bytes(max_bytes, extents))
        return min(most, default=None)

    @in_one_sentence
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {extent.partition: extent.end for extent in self._ask()}

    def reportLatestOffset(self) -> Position | None:
        """Report how far the log reached when the batch was planned, for the query's progress."""
        return None if self._extents is None else {extent.partition: extent.end for extent in self._extents}

    # ---------------------------------------------------------------- the batch

    @in_one_sentence
    def partitions(self, start: Checkpointed, end: Checkpointed) -> Sequence[InputPartition]:
        extents = self._extents if self._extents is not None else self._ask()
        (begin, _), (last, identity) = offsets.parted(start), self._of_this_log(end)
        begin = offsets.without_lost(begin, extents, self._options.log, self._options.fail_on_data_loss)
        options = self._resolved()
        planned = offsets.ranges(begin, last, options.min_partitions)
        return [RangePartition(each, options, self._reading, identity) for each in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition)

    def commit(self, end: Checkpointed) -> None:
        """The checkpoint is what remembers; the log keeps no position of a query."""

    def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # ---------------------------------------------------------------- the cluster

    def _resolved(self) -> SourceOptions:
        """Options with addresses: `zk://...` is resolved once."""
        self._options = replace(self._options, servers=resolve(self._options.servers))
        return self._options

    def _connected(self) -> RangeClient:
        if self._client is None:
            options = self._resolved()
            self._client = open_client(options, uncommitted=options.uncommitted)
            known_extents(self._client, options)  # refuses a filter that no node understands
        return self._client

    def _identity(self) -> str | None:
        return self._connected().identity(self._options.log)

    def _of_this_log(self, written: Checkpointed) -> tuple[Position, str | None]:
        """The position, and the log that is read; raises DataLossError for the position of another one."""
        position, identity = offsets.parted(written)
        found = self._identity()
        offsets.check_identity(identity, found, self._options.log)
        return position, found or identity

    def _ask(self) -> list[PartitionExtent]:
        found = self._connected().extents(self._options.log)
        self._extents = offsets.chosen(found, self._options.partitions, self._options.log)
        return self._extents
