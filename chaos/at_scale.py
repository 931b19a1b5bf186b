"""Judging by Spark of a run whose history is too large for the memory of one process.

The checkers are those of `pipeline/checks`. They read the Parquet files that the run has written. Each gives the same
verdict as the checker of the same name in `chaos/checkers`; tests compare the two on every kind of damage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from chaos.checkers.all import ALWAYS, Judgement, in_order, judgement_of
from chaos.checkers.cluster import discovery, registers
from chaos.checkers.verdict import ANOMALIES_KEPT, Anomaly, Result, Verdict, judge
from chaos.checkers.view import View
from chaos.history import history as histories
from chaos.history.tables import TABLES
from pipeline.checks.all import OF_RUNS
from pipeline.checks.check import Check, Recorded

IN_MEMORY = (registers.LINEARIZABLE, discovery.REGISTERED)
SMALL_TABLES = ("registers", "registrations")
"""Tables of the checkers in memory; like the table of leaders they stay small, however long a run is."""


ROWS_OF_A_TASK = 1_000_000
"""Rows (sends, reads and copies) for each partition of a table. Spark's default is 200 partitions; for most histories
that costs more than the rows."""

SETTINGS = {
    "spark.sql.adaptive.coalescePartitions.enabled": "false",  # cached tables need equal counts of partitions
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": str(256 << 20),  # per partition
    "spark.sql.autoBroadcastJoinThreshold": str(64 << 20),  # sends the calls to the reads, which stay in place
}


def judge_run(
    spark: SparkSession, directory: Path, *, needed: Iterable[str] = ALWAYS, hopes: Collection[str] = (),
    around: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Judgement:  # fmt: skip
    """Judge the history in `directory`, as `chaos.checkers.all.judge_run` does; each checker runs inside `around`."""
    few = histories.read(directory, only=("faults", "moments", "leaders", *SMALL_TABLES))
    with _set(spark, SETTINGS | {"spark.sql.shuffle.partitions": str(_parts(spark, directory))}):
        history, kept = _recorded(spark, directory)
        verdicts = []
        try:
            for check in OF_RUNS:
                with around(check.promise):
                    verdicts.append(_verdict(check, history))
            for checker in IN_MEMORY:
                with around(checker.id):
                    verdicts.append(judge(checker, View(few)))
        finally:
            history.forget()
            for table in kept:
                table.unpersist()
    return judgement_of(sorted(verdicts, key=in_order), few, needed=needed, hopes=hopes)


def _parts(spark: SparkSession, directory: Path) -> int:
    rows = histories.rows_in(directory, "sends", "reads", "replica_dump")
    return max(2 * spark.sparkContext.defaultParallelism, rows // ROWS_OF_A_TASK)


@contextmanager
def _set(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of Spark inside a `with` block, except those that the session was started with."""
    started_with = spark.sparkContext.getConf()
    settings = {name: value for name, value in settings.items() if not started_with.contains(name)}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _verdict(check: Check, history: Recorded) -> Verdict:
    try:
        found = check.find(history)
        counts = found.agg(f.count("*").alias("rows")).union(check.judged(history).agg(f.count("*")))
        violations, judged = (row.rows for row in counts.collect())
        kept = found.limit(ANOMALIES_KEPT).collect() if violations else []
    except Exception as error:  # noqa: BLE001 - after any failure the verdict is unknown
        text = str(error).splitlines()[0] if str(error) else ""
        return Verdict(check.promise, check.title, Result.UNKNOWN, 0, error=f"{type(error).__name__}: {text}")
    if not judged:
        return Verdict(check.promise, check.title, Result.NODATA, 0)
    result = Result.FAILED if violations else Result.PASSED
    return Verdict(check.promise, check.title, result, judged, violations, [_anomaly(row) for row in kept])


def _anomaly(row: Any) -> Anomaly:
    where = "" if row.offset is None else f" at {row.partition}/{row.offset}"
    what = f"{row.msg_id}{where}: {row.what}" if row.msg_id is not None else f"{row.what}{where}"
    return Anomaly(what, None if row.partition is None else int(row.partition))


def _recorded(spark: SparkSession, directory: Path) -> tuple[Recorded, list[DataFrame]]:
    """Load the history; also return the tables that stay cached until all checks are done."""
    paths = {name: directory / f"{name}.parquet" for name in TABLES if name not in SMALL_TABLES}
    tables = {name: spark.read.parquet(str(path)) for name, path in paths.items()}
    for name, table in tables.items():
        if "partition" in table.columns:
            tables[name] = table.withColumn("partition", f.col("partition").cast("string"))
    ops, transactions = tables["ops"], tables["transactions"]
    times = ops.select("op_id", "t_inv_ns", "t_end_ns")
    sends = tables["sends"].join(times, "op_id", "left").cache()
    values = _values(sends, transactions, times).cache()
    calls = ops.select("op_id", "type", "t_inv_ns", "t_end_ns", (f.col("f") == "drain").alias("drain"))
    of_values = values.select("msg_id", f.col("txn").alias("of_txn"), "begun_ns")
    # Reads are partitioned by value, as the values are, so that joins of the two move no rows.
    parts = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
    reads = tables["reads"].join(calls, "op_id", "left").repartition(parts, "msg_id")
    reads = reads.join(of_values, "msg_id", "left").cache()
    drained = reads.where("drain")
    stored = _stored(reads, tables["replica_dump"]).cache()
    whole = drained.select("partition").distinct().cache()
    watermarks = tables["watermarks"].join(times.drop("type"), "op_id", "left")
    recorded = Recorded(
        sends=sends, reads=reads, drained=drained, stored=stored, whole=whole,
        transactions=transactions, ops=ops, commits=tables["commits"], replica_dump=tables["replica_dump"],
        leaders=tables["leaders"], inputs=tables["inputs"], watermarks=watermarks, complaints=tables["complaints"],
        faults=tables["faults"], values=values,
    )  # fmt: skip
    return recorded, [sends, values, reads, stored, whole]


def _values(sends: DataFrame, transactions: DataFrame, times: DataFrame) -> DataFrame:
    decided = transactions.select("txn", "op_id").join(times, "op_id").select("txn", "t_inv_ns")
    asked = sends.where("txn IS NOT NULL").select("txn", "t_inv_ns").unionByName(decided)
    asked = asked.groupBy("txn").agg(f.min("t_inv_ns").alias("asked_ns"))
    values = sends.groupBy("msg_id").agg(
        f.min_by("txn", "op_id").alias("txn"), f.count("*").alias("attempts"),
        f.min_by("t_inv_ns", "op_id").alias("t_inv_ns"),
    )  # fmt: skip
    values = values.join(asked, "txn", "left")
    return values.select("msg_id", "txn", "attempts", f.coalesce("asked_ns", "t_inv_ns").alias("begun_ns"))


def _stored(reads: DataFrame, copies: DataFrame) -> DataFrame:
    """Build one row for each place of a value, however many reads and disks show it."""
    place = ["msg_id", "partition", "offset"]
    given = f.coalesce("drain", f.lit(False)).alias("drained")
    at_end = (given & (f.col("isolation") == "committed")).alias("at_end")
    read = reads.select(*place, given, at_end, f.lit(None).cast("bigint").alias("term"))
    no = f.lit(False)
    both = read.unionByName(copies.select(*place, no.alias("drained"), no.alias("at_end"), "term"))
    stored = both.groupBy(*place).agg(
        f.max("drained").alias("drained"), f.max("at_end").alias("at_end"), f.max("term").alias("term")
    )
    return stored.withColumns({name: f.lit(None).cast("bigint") for name in ("producer_id", "sequence")})
