"""Writers of batches and streams, which Spark plans, sends to tasks, and asks to commit.

Problem: Spark makes a writer to plan a batch, pickles it for tasks, and has a stream's batch committed by another one,
made anew in another process, which knows the options and what tasks have said. Planning is not told which batch of
which query it plans; `abort` is told nothing; both may never be called. A batch that was committed is planned, written
and committed once more when Spark died before it noted that it was.
Rules never broken:
 - a batch is (writer, number); its run is drawn by the call that plans it, and everything later hears of it from tasks;
 - tasks learn the query and the number of the batch from Spark's own properties of the task, and open the group: the
   first one does, to the others it is open;
 - a commit says "done" only of what the coordinator has decided.

Rejected: to read the query's id from its checkpoint while planning: a checkpoint may lie on a file system that Python
does not reach, and the number of the batch is not there yet.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.client import HoldfastError
from holdfast.client.loop_thread import LoopThread
from holdfast.client.transact.group_member import GroupNames
from holdfast.spark.connections import open_client, resolve
from holdfast.spark.errors import OptionError, in_one_sentence, one_sentence
from holdfast.spark.sink.columns import check_schema
from holdfast.spark.sink.connections import group_of
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.part_task import Attempt, PartWritten, write_at_least_once, write_exactly_once

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Properties of a task that belongs to a stream; so do those of a write within foreachBatch."""

_known_logs: set[tuple[int, str, str]] = set()


class UnfitCommit(HoldfastError):
    """Spark asks to commit what its tasks have not written."""

    advice = "start the query again: the batch is written anew"


@dataclass(frozen=True)
class Planned:
    """Plan of a batch that tasks get. `writer` None: the query's id is the writer's name; `batch` None: Spark's number.
    `once`: the writer's name was drawn for this batch: nodes need not remember it for long."""

    options: SinkOptions
    run: str
    writer: str | None
    batch: int | None
    once: bool = False

    def write(self, rows: Iterator[pa.RecordBatch]) -> PartWritten:
        with one_sentence():
            attempt = self._attempt()
        if self.options.exactly_once:
            return write_exactly_once(self.options, attempt, rows)
        return write_at_least_once(self.options, attempt, rows)

    def _attempt(self) -> Attempt:
        context = TaskContext.get()
        if context is None:
            raise UnfitCommit("the sink is not run by a task of Spark's")
        query, batch = context.getLocalProperty(QUERY_ID) or "", self.batch
        if batch is None:
            text = context.getLocalProperty(BATCH_ID)
            if text is None or not query:
                raise UnfitCommit(
                    f"Spark has told this task neither its query nor its batch ({QUERY_ID}, {BATCH_ID})",
                    advice="use a version of Spark that Holdfast is tested with (4.3)",
                )
            batch = int(text)
        names = GroupNames(group_writer(self.writer or query, self.options.log), batch, self.run)
        return Attempt(names, context.partitionId(), str(context.taskAttemptId()), query, self.once)


def group_writer(name: str, log: str) -> str:
    """Name by which the nodes know the writer. One that writes the same batch to several logs has several."""
    return f"{name}/{log}"


class BatchWriter(DataSourceArrowWriter):
    """Writer of one batch. Spark pickles it for tasks, and commits by it."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._planned.write(iterator)

    @in_one_sentence
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit(self._planned.options, messages)

    @in_one_sentence
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        planned = self._planned
        if not planned.options.exactly_once or planned.writer is None or planned.batch is None:
            return
        names = GroupNames(group_writer(planned.writer, planned.options.log), planned.batch, planned.run)
        roll_back(planned.options, names)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a stream's batches. The one that commits is not the one that was pickled."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._planned.write(iterator)

    @in_one_sentence
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        commit(self._planned.options, messages, batchId)

    @in_one_sentence
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Most often, no message says what it is about. Then what was prepared waits for the next start of the query,
        or for the group's timeout."""
        for names in {message.names for message in messages if isinstance(message, PartWritten)}:
            if self._planned.options.exactly_once:
                roll_back(self._planned.options, names)


@in_one_sentence
def plan_batch(options: SinkOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    run = uuid.uuid4().hex
    writer = options.writer or f"batch-{run}"
    batch = 0 if options.batch is None else options.batch
    return BatchWriter(replace(_plan(options, schema, overwrite, run, writer, batch), once=options.writer is None))


@in_one_sentence
def plan_stream(options: SinkOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    return StreamWriter(_plan(options, schema, overwrite, uuid.uuid4().hex, options.writer, None))


def _plan(
    options: SinkOptions, schema: StructType, overwrite: bool, run: str, writer: str | None, batch: int | None
) -> Planned:
    if overwrite:
        raise OptionError(
            "a log is appended to, and never overwritten", advice='use mode("append"), or outputMode("append")'
        )
    check_schema(schema)
    options = replace(options, servers=resolve(options.servers))
    _check_log(options)
    return Planned(options, run, writer, batch)


def _check_log(options: SinkOptions) -> None:
    """Raise if there is no log, or no node answers; once in a process, which Spark uses for many batches."""
    known = (os.getpid(), options.servers, options.log)
    if known not in _known_logs:
        with open_client(options, uncommitted=True) as client:
            client.extents(options.log)
        _known_logs.add(known)


# ---------------------------------------------------------------- the end of a batch


def winners_of(
    messages: Sequence[WriterCommitMessage | None], batch: int | None
) -> tuple[GroupNames, list[str]] | None:
    """Group and members to be committed; None: nothing was written, or it was committed before. Raises UnfitCommit."""
    parts = [message for message in messages if isinstance(message, PartWritten)]
    if len(parts) != len(messages):
        raise UnfitCommit(f"{len(messages) - len(parts)} of {len(messages)} tasks have said nothing of what they wrote")
    groups = {part.names for part in parts}
    if len(groups) > 1 or any(batch is not None and names.batch != batch for names in groups):
        raise UnfitCommit(f"tasks of other batches than {batch} are among those to be committed: {groups}")
    winners = [part.member for part in parts if part.member is not None]
    if not winners or any(part.is_done for part in parts):
        return None
    return groups.pop(), winners


def commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
    if not options.exactly_once:
        return
    found = winners_of(messages, batch)
    if found is None:
        return
    names, winners = found

    async def ask() -> None:
        async with group_of(options, names) as group:
            await group.commit(winners)

    _run(ask)


def roll_back(options: SinkOptions, names: GroupNames) -> None:
    async def ask() -> None:
        async with group_of(options, names) as group:
            await group.abort()

    _run(ask)


def _run(ask):  # type: ignore[no-untyped-def]
    thread = LoopThread("holdfast sink's group")
    try:
        thread.run(ask)
    finally:
        thread.close()
