"""A run's history judged by Spark, where it is too large for the memory of one process.

The checkers are those of `pipeline/checks`, on the Parquet files that the run has written; each says what the one of
the same name in `chaos/checkers` says: both are held against each other on every damage that checkers are tested with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
"""These checkers look at these tables, and at who led when: small ones, however long a run is."""


def judge_run(
    spark: SparkSession, directory: Path, *, needed: Iterable[str] = ALWAYS, hopes: Collection[str] = ()
) -> Judgement:
    """`directory`: of the history. As `chaos.checkers.all.judge_run`."""
    few = histories.read(directory, only=("faults", "moments", "leaders", *SMALL_TABLES))
    history, kept = _recorded(spark, directory)
    try:
        verdicts = [_verdict(check, history) for check in OF_RUNS]
        verdicts = sorted([*verdicts, *(judge(checker, View(few)) for checker in IN_MEMORY)], key=in_order)
    finally:
        for table in kept:
            table.unpersist()
    return judgement_of(verdicts, few, needed=needed, hopes=hopes)


def _verdict(check: Check, history: Recorded) -> Verdict:
    try:
        found = check.find(history)
        counts = found.agg(f.count("*").alias("rows")).union(check.judged(history).agg(f.count("*")))
        violations, judged = (row.rows for row in counts.collect())
        kept = found.limit(ANOMALIES_KEPT).collect() if violations else []
    except Exception as error:  # noqa: BLE001 - whatever broke, the checker has said nothing
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
    """And which tables are kept until all checks are done: nearly each of them takes these."""
    paths = {name: directory / f"{name}.parquet" for name in TABLES if name not in SMALL_TABLES}
    tables = {name: spark.read.parquet(str(path)) for name, path in paths.items()}
    for name, table in tables.items():
        if "partition" in table.columns:
            tables[name] = table.withColumn("partition", f.col("partition").cast("string"))
    ops = tables["ops"]
    times = ops.select("op_id", "type", "t_inv_ns", "t_end_ns")
    sends = tables["sends"].join(times.drop("type"), "op_id", "left").cache()
    reads = tables["reads"].join(times, "op_id", "left").cache()
    drained = reads.join(ops.where("f = 'drain'").select("op_id"), "op_id", "left_semi").cache()
    place = ["msg_id", "partition", "offset"]
    stored = reads.select(*place).union(tables["replica_dump"].select(*place)).distinct()
    stored = stored.withColumns({name: f.lit(None).cast("bigint") for name in ("producer_id", "sequence")}).cache()
    values = sends.groupBy("msg_id").agg(
        f.min_by("txn", "op_id").alias("txn"), f.count("*").alias("attempts"),
        f.min_by("t_inv_ns", "op_id").alias("t_inv_ns"),
    ).cache()  # fmt: skip
    watermarks = tables["watermarks"].join(times.drop("type"), "op_id", "left")
    recorded = Recorded(
        sends=sends, reads=reads, drained=drained, stored=stored, whole=drained.select("partition").distinct(),
        transactions=tables["transactions"], ops=ops, commits=tables["commits"], replica_dump=tables["replica_dump"],
        leaders=tables["leaders"], inputs=tables["inputs"], watermarks=watermarks, complaints=tables["complaints"],
        faults=tables["faults"], values=values,
    )  # fmt: skip
    return recorded, [sends, reads, drained, stored, values]
