"""Audit: captured logs and what clients have recorded, held against each other: what is lost, twice, out of order?

    holdfast pipeline audit --captured out --history run/history --report anomalies
    spark-submit pipeline/audit.py ...                                                     (the same, on any cluster)

`--captured`: a directory that `capture` has written, of the whole log. `--history`: a directory with the tables of
clients' histories as Parquet: `sends`, `reads`, and where there are such `ops`, `transactions` and `replica_dump`, each
a file or a directory of files, with columns as in `pipeline.checks.check` (times are in `ops`, by op_id). Either may
be left out. A captured log is whole; of a history those partitions are whole that a call `drain` has read.

What names a value is an expression over its body (`--value`): by default its first word.

The rules are in `pipeline/checks`. A check that had nothing to look at has proven nothing: NODATA, never PASSED. All of
it passes if nothing is wrong, and the checks that the input is for had something to look at.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline.checks.all import CHECKS, anomalies
from pipeline.checks.check import PLACE, Check, HistoryFrames
from pipeline.session import session

PASSED, FAILED, NODATA = "PASSED", "FAILED", "NODATA"

VALUE = "split(cast(body AS STRING), ' ')[0]"
SHOWN = 20
"""Anomalies that are said; the report has all."""

SENDS = (
    "op_id BIGINT, msg_id STRING, partition STRING, producer STRING, epoch BIGINT, seq BIGINT, txn STRING, "
    "outcome STRING, offset BIGINT"
)
READS = (
    "op_id BIGINT, msg_id STRING, crc_ok BOOLEAN, partition STRING, offset BIGINT, reader STRING, session BIGINT, "
    "isolation STRING, pos BIGINT"
)
OPS = "op_id BIGINT, f STRING, t_inv_ns BIGINT, t_end_ns BIGINT"
TRANSACTIONS = "txn STRING, decision STRING, outcome STRING"
PLACES = "msg_id STRING, partition STRING, offset BIGINT"
STORED = f"{PLACES}, producer_id BIGINT, sequence BIGINT"


@dataclass(frozen=True)
class Audit:
    captured: str | None = None
    history: str | None = None
    value: str = VALUE
    report: str | None = None


@dataclass(frozen=True)
class AuditVerdict:
    """Verdict of an audit. `checks`: name -> (result, rows that were looked at, anomalies)."""

    result: str
    checks: dict[str, tuple[str, int, int]]


def run(spark: SparkSession, job: Audit, say: Callable[[str], None]) -> AuditVerdict:
    """Run the audit, say what it has found, and writes all of it as Parquet if a report is wanted."""
    history = read(spark, job)
    kept = [table.cache() for table in (history.sends, history.reads, history.stored)]  # nearly every check takes them
    checks = [check for check in CHECKS if check.of_log or job.history is not None]
    found = anomalies(history, checks).cache()
    verdict = judged(history, found, checks, sent=job.history is not None)
    for check in CHECKS:
        result, rows, wrong = verdict.checks[check.name]
        say(f"{result:6}  {check.name}: {check.title} ({rows:,} looked at" + (f", {wrong:,} wrong)" if wrong else ")"))
    for one in found.orderBy("check", "partition", "offset").limit(SHOWN).collect():
        say(f"{one.check}: {one.msg_id} at {one.partition}/{one.offset}: {one.what}")
    if job.report is not None:
        found.write.mode("overwrite").parquet(job.report)
    history.forget()
    for table in (found, *kept):
        table.unpersist()
    say(verdict.result)
    return verdict


def judged(history: HistoryFrames, found: DataFrame, checks: Sequence[Check], *, sent: bool) -> AuditVerdict:
    """Verdict of these checks; the others had nothing to look at. `sent`: it is known what producers have sent, so that
    something must have been looked at for losses."""
    wrong = {row.check: row["count"] for row in found.groupBy("check").count().collect()}
    looked_at = {row.check: row.rows for row in _looked_at(history, checks).collect()}
    told = {}
    for check in CHECKS:
        rows = looked_at.get(check.name, 0)
        result = FAILED if wrong.get(check.name) else PASSED if rows else NODATA
        told[check.name] = (result, rows, wrong.get(check.name, 0))
    needed = ["duplicate", *(["lost"] if sent else [])]
    if wrong:
        return AuditVerdict(FAILED, told)
    return AuditVerdict(NODATA if any(told[name][0] == NODATA for name in needed) else PASSED, told)


def _looked_at(history: HistoryFrames, checks: Sequence[Check]) -> DataFrame:
    """Count what these checks look at, in one job: check, rows."""
    counts = [
        check.judged(history).agg(f.count("*").alias("rows")).select(f.lit(check.name).alias("check"), "rows")
        for check in checks
    ]
    return reduce(DataFrame.unionByName, counts)


# ---------------------------------------------------------------- files


def read(spark: SparkSession, job: Audit) -> HistoryFrames:
    """Read the tables that there are; others are empty."""

    def table(name: str, schema: str) -> DataFrame:
        return _table(spark, job.history, name, schema)

    ops = table("ops", OPS)
    sends = table("sends", SENDS).join(ops.drop("f"), "op_id", "left")
    reads = table("reads", READS)
    drained = reads.join(ops.where("f = 'drain'").select("op_id"), "op_id", "left_semi")
    whole = drained.select("partition").distinct()
    seen = reads.where("crc_ok").select("msg_id", "partition", "offset").union(table("replica_dump", PLACES)).distinct()
    stored = seen.withColumns({name: f.lit(None).cast("bigint") for name in ("producer_id", "sequence")})
    if job.captured is not None:
        kept = captured(spark.read.parquet(job.captured), job.value)
        stored = kept.unionByName(stored.join(kept, list(PLACE), "left_anti"))
        whole = sends.select("partition").distinct()
    return HistoryFrames(sends, reads, drained, stored, whole, table("transactions", TRANSACTIONS))


def captured(events: DataFrame, value: str = VALUE) -> DataFrame:
    """Stored events, from a log's events as Spark reads them."""
    numbers = f.col("producerId").alias("producer_id"), f.col("sequenceNumber").alias("sequence")
    return events.select(f.expr(value).alias("msg_id"), "partition", "offset", *numbers)


def _table(spark: SparkSession, directory: str | None, name: str, schema: str) -> DataFrame:
    """Read a table with these columns and types, whatever others the file has."""
    columns = [column.split() for column in schema.split(", ")]
    if directory is None:
        return spark.createDataFrame([], schema)
    for place in (Path(directory) / f"{name}.parquet", Path(directory) / name):
        if place.exists():
            found = spark.read.parquet(str(place))
            return found.select(*(f.col(column).cast(kind).alias(column) for column, kind in columns))
    return spark.createDataFrame([], schema)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="audit", description="Find what is lost, twice, or out of order.")
    parser.add_argument("--captured", help="Read here what `capture` has written.")
    parser.add_argument("--history", help="Read here the tables of clients' histories.")
    parser.add_argument("--value", default=VALUE, help=f"Name a value by this expression over its body ({VALUE}).")
    parser.add_argument("--report", help="Write all anomalies there, as Parquet.")
    if run(session("audit"), Audit(**vars(parser.parse_args(arguments))), print).result != PASSED:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
