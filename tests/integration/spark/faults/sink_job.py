"""A query from a log into another one, as a program of its own, in which things go wrong on order.

Argument: a JSON object: `master`, `servers`, `source`, `target`, `checkpoint`, `settings` of Spark, and
 - `failing`: of the task attempts, every third fails: by turns before it is prepared, and after; one lags behind;
 - `go_on`: a file; the first task attempt of part 0 writes half of its rows, says its process id, and waits for it;
 - `stop_at`: such as "before 0" or "after 1", of the commit of that batch: the driver stands still there, and says so
   in the file `said`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.spark.errors import SourceFailed
from holdfast.spark.sink import part_task
from holdfast.spark.sink.writers import StreamWriter
from holdfast.spark.source import HoldfastDataSource
from tests.integration.clusters.cluster import wait_until
from tests.integration.spark.session import SETTINGS

STANDS_STILL_S = 600.0
LAGS_S = 15.0
"""Behind the others, which Spark takes for a reason to start a second attempt."""


class Faulty(HoldfastDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        said, stop_at, failing, go_on = (self.options.pop(name) for name in ("said", "stop_at", "failing", "go_on"))
        writer = super().streamWriter(schema, overwrite)
        return FaultyWriter(writer, Path(said), stop_at, failing == "true", Path(go_on) if go_on else None)


class FaultyWriter(StreamWriter):
    def __init__(self, writer: StreamWriter, said: Path, stop_at: str, failing: bool, go_on: Path | None) -> None:
        super().__init__(writer._planned)
        self._said, self._stop_at, self._failing, self._go_on = said, stop_at, failing, go_on

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        number = context.taskAttemptId()
        if self._go_on is not None and context.partitionId() == 0 and context.attemptNumber() == 0:
            return self._write_half(iterator, self._go_on)
        if not self._failing:
            return super().write(iterator)
        with self._said.open("a") as said:
            said.write(f"{context.partitionId()} {context.attemptNumber()} {number}\n")
        if number % 6 == 0:
            part_task.HELD_BYTES = 0  # type: ignore[misc]  # it joins at once, and fails when it has written
            return super().write(_broken_off(iterator))
        message = super().write(iterator)
        if number % 6 == 3:
            raise RuntimeError("this attempt fails when it is prepared, as the test wants")
        if context.partitionId() == 0 and context.attemptNumber() == 0 and number % 2:
            time.sleep(LAGS_S)
        return message

    def _write_half(self, iterator: Iterator[Any], go_on: Path) -> WriterCommitMessage:
        part_task.HELD_BYTES = 0  # type: ignore[misc]  # it joins at once
        part_task.SENT_ROWS = 1  # type: ignore[misc]  # and sends what it has
        try:
            return super().write(_in_halves(iterator, self._said, go_on))
        except SourceFailed as error:
            go_on.with_name("refused").write_text(str(error))
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if self._stop_at == f"before {batchId}":
            self._stand_still(batchId)
        super().commit(messages, batchId)
        if self._stop_at == f"after {batchId}":
            self._stand_still(batchId)

    def _stand_still(self, batch: int) -> None:
        self._said.write_text(f"batch {batch}\n")
        time.sleep(STANDS_STILL_S)


def _in_halves(iterator: Iterator[Any], said: Path, go_on: Path) -> Iterator[Any]:
    for batch in iterator:
        half = batch.num_rows // 2
        yield batch.slice(0, half - 1)
        yield batch.slice(half - 1, 1)  # when this is asked for, the first piece is on its way
        said.with_suffix(".new").write_text(str(os.getpid()))
        said.with_suffix(".new").rename(said)
        wait_until(go_on.exists, "to go on")
        yield batch.slice(half)


def _broken_off(iterator: Iterator[Any]) -> Iterator[Any]:
    yield from iterator
    raise RuntimeError("this attempt fails when it has written, as the test wants")


def main(job: dict[str, Any]) -> None:
    builder = SparkSession.builder.master(job["master"]).appName("sink")
    for name, value in {**SETTINGS, **job.get("settings", {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Faulty)
    events = spark.readStream.format("holdfast").options(
        servers=job["servers"], log=job["source"], startingOffsets="earliest",
        maxEventsPerTrigger=job["most"], minPartitions=job["tasks"],
    ).load()  # fmt: skip
    writer = events.select("body", "key").writeStream.format("faulty").options(
        servers=job["servers"], log=job["target"], checkpointLocation=job["checkpoint"],
        said=job["said"], stop_at=job.get("stop_at", ""), failing=str(job.get("failing", False)).lower(),
        go_on=job.get("go_on", ""), leaseSeconds=job.get("lease", 30),
    )  # fmt: skip
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
