"""Replay: Parquet files of `capture` become events of a log again, in their order, all of them or none.

    holdfast pipeline replay --server 127.0.0.1:5672 --parquet out --target trades-again
    spark-submit pipeline/replay.py ...                                                     (the same, on any cluster)

It is one batch: readers of committed events see nothing before all of it is there. With the name of a writer, a second
run writes nothing: it is there.
The events of one captured partition are written in the order of their offsets, so those of a key keep theirs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pipeline.session import parsed, session

GROUP_TIMEOUT_S = 4 * 3600
"""The longest that nodes allow: a capture may be large."""


@dataclass(frozen=True)
class Replay:
    server: str
    parquet: str
    target: str
    writer: str | None = None
    same_partitions: bool = False
    login: Mapping[str, str] = field(default_factory=dict)  # further options of the connection


def run(spark: SparkSession, job: Replay, say: Callable[[str], None]) -> None:
    captured = spark.read.parquet(job.parquet)
    columns = ["body", "key", "properties", *(["partition"] if job.same_partitions else [])]
    events = captured.repartition("partition").sortWithinPartitions("partition", "offset").select(*columns)
    writer = events.write.format("holdfast").mode("append")
    writer = writer.options(servers=job.server, **job.login, log=job.target, groupTimeoutSeconds=GROUP_TIMEOUT_S)
    if job.writer is not None:
        writer = writer.options(writerId=job.writer, batchId=0)
    writer.save()
    say(f"{captured.count():,} events of {job.parquet} are in {job.target}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="replay", description="Write captured Parquet files into a log.")
    for name in ("server", "parquet", "target"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--writer", help="Write under this name, under which the same is not written twice.")
    parser.add_argument("--same-partitions", action="store_true", help="Write each event into the partition it had.")
    run(session("replay"), Replay(**parsed(parser, arguments)), print)


if __name__ == "__main__":
    main()
