"""Capture: a log becomes Parquet files, by date and hour of its events, each event once.

    holdfast pipeline capture --server 127.0.0.1:5672 --source trades --parquet out --checkpoint state --available-now
    spark-submit pipeline/capture.py ...                                                     (the same, on any cluster)

Exactly once by Spark's own file sink: what a batch has written counts when its name is in the sink's list, and a batch
that is done again replaces what it had written. A batch writes one file for each hour that it has events of.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pipeline.progress import follow
from pipeline.session import parsed, session

TRIGGER = "10 seconds"  # without --available-now: few large files rather than many small ones


@dataclass(frozen=True)
class Capture:
    server: str
    source: str
    parquet: str
    checkpoint: str
    available_now: bool = False
    max_events: int | None = None
    login: Mapping[str, str] = field(default_factory=dict)  # further options of the connection


def run(spark: SparkSession, job: Capture, say: Callable[[str], None]) -> None:
    """Capture to the end of the log, or for good."""
    source = spark.readStream.format("holdfast").options(servers=job.server, **job.login, log=job.source)
    source = source.option("startingOffsets", "earliest")
    if job.max_events is not None:
        source = source.option("maxEventsPerTrigger", job.max_events)
    events = source.load().withColumns({"date": f.to_date("enqueuedTime"), "hour": f.hour("enqueuedTime")})
    writer = events.repartition("date", "hour").writeStream.format("parquet").partitionBy("date", "hour")
    writer = writer.option("checkpointLocation", job.checkpoint).queryName(f"capture of {job.source}")
    writer = writer.trigger(availableNow=True) if job.available_now else writer.trigger(processingTime=TRIGGER)
    follow(lambda: writer.start(job.parquet), say)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="capture", description="Write a log into Parquet files, by date and hour.")
    for name in ("server", "source", "parquet", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--available-now", action="store_true", help="End where the log ends now.")
    parser.add_argument("--max-events", type=int, help="Take so many events into one batch at most.")
    run(session("capture"), Capture(**parsed(parser, arguments)), print)


if __name__ == "__main__":
    main()
