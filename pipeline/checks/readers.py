"""Checks of what readers were given, and of what they were told of the ends of the log."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pipeline.checks.check import Check, HistoryFrames, Recorded, anomalies, highest_ended, of_these, once

SESSION = ["reader", "session", "partition"]


def visible(history: HistoryFrames, within: DataFrame) -> DataFrame:
    """Events (partition, isolation, offset, place) that readers of an isolation were given, and so may not pass over;
    readers of uncommitted events may not pass over committed ones. `within`: of these partitions."""
    given = history.reads.join(f.broadcast(within), "partition", "left_semi")
    given = given.select("partition", "isolation", "offset").distinct()
    committed = given.where("isolation = 'committed'").withColumn("isolation", f.lit("uncommitted"))
    place = f.row_number().over(Window.partitionBy("partition", "isolation").orderBy("offset"))
    return given.union(committed).distinct().withColumn("place", place)


@once
def _leaps(history: HistoryFrames) -> DataFrame:
    """Reads of a session that do not follow right after the one before: of all others nothing has to be asked."""
    session = Window.partitionBy(*SESSION).orderBy("pos")
    reads = history.reads.select(*SESSION, "isolation", "pos", "offset", "msg_id")
    return reads.withColumn("behind", f.lag("offset").over(session)).where("offset != behind + 1")


@once
def _visible(history: HistoryFrames) -> DataFrame:
    """Visible events of the partitions in which a session leaps."""
    return visible(history, _leaps(history).select("partition").distinct())


@once
def _passed_over(history: HistoryFrames) -> DataFrame:
    """Leaps over events that others were given: those that stand between the places `before` and `place`."""
    offsets = _visible(history)
    before = offsets.select("partition", "isolation", f.col("offset").alias("behind"), f.col("place").alias("before"))
    over = _leaps(history).join(offsets, ["partition", "isolation", "offset"])
    return over.join(before, ["partition", "isolation", "behind"]).where(f.col("place") - f.col("before") > 1)


def reader_order(history: HistoryFrames) -> DataFrame:
    """Events that a session was given again, or out of order, or passed over though others were given them. Holes in
    what it has of a transaction are those of `half_seen`."""
    again = _leaps(history).where("offset <= behind")
    how = f.when(f.col("offset") == f.col("behind"), f.lit(": comes again behind "))
    how = how.otherwise(f.lit(": goes back behind "))
    found = anomalies(again, "reader-order", f.concat("reader", how, "behind"))
    what = f.concat("reader", f.lit(": passes over events behind "), "behind")
    return found.unionByName(anomalies(_not_excused(history), "reader-order", what))


@once
def _missed(history: HistoryFrames) -> DataFrame:
    """The events that were passed over, one by one."""
    key = [*SESSION, "isolation", "pos", "offset", "behind", "msg_id"]
    missed = _passed_over(history).select(*key, f.explode(f.expr("sequence(before + 1, place - 1)")).alias("place"))
    there = _visible(history).select("partition", "isolation", "place", f.col("offset").alias("missed"))
    return of_these(there, missed, ["partition", "isolation", "place"]).drop("place")


def _not_excused(history: HistoryFrames) -> DataFrame:
    """Leaps, without those that passed over nothing but events of transactions of which the session has others."""
    missed = _missed(history)
    txn_of = history.sends.where("txn IS NOT NULL").select("msg_id", "txn").distinct()
    places = missed.select("partition", f.col("missed").alias("offset")).distinct()
    at = of_these(history.stored, places, ["partition", "offset"])
    at = at.select("msg_id", "partition", f.col("offset").alias("missed")).join(txn_of, "msg_id")
    begun = of_these(history.reads, missed.select(*SESSION).distinct(), SESSION).select(*SESSION, "msg_id")
    begun = begun.join(txn_of, "msg_id").select(*SESSION, "txn").distinct()
    excused = missed.drop("msg_id").join(at.drop("msg_id"), ["partition", "missed"]).join(begun, [*SESSION, "txn"])
    found = missed.join(excused, [*SESSION, "pos", "missed"], "left_anti")
    return found.select(*SESSION, "isolation", "pos", "offset", "behind", "msg_id").distinct()


def half_seen(history: Recorded) -> DataFrame:
    """A committed reader that is past a partition's part of a transaction has not seen all of that part."""
    given = history.reads.where("isolation = 'committed'")
    ends = given.groupBy(*SESSION).agg(f.min_by("offset", "pos").alias("first"), f.max("offset").alias("position"))
    given = given.where("of_txn IS NOT NULL").select(*SESSION, f.col("of_txn").alias("txn"), "offset").distinct()
    given = given.join(history.undone, "txn", "left_anti")
    parts = given.select("txn", "partition", f.col("offset").alias("part")).distinct()
    seen = given.join(ends, SESSION).where("first <= offset AND offset < position")
    seen = seen.groupBy(*SESSION, "txn", "first", "position").agg(
        f.count("*").alias("seen"), f.min("offset").alias("offset")
    )
    parts_there = parts.join(seen, ["txn", "partition"]).where("first <= part AND part < position")
    counted = parts_there.groupBy(*SESSION, "txn", "seen", "offset").agg(f.count("*").alias("there"))
    what = f.concat("reader", f.lit(" has seen "), "seen", f.lit(" of "), "there", f.lit(" events of "), "txn")
    return anomalies(counted.where("seen < there"), "half-seen", what)


# ---------------------------------------------------------------- ends of the log


def stale_ends(history: Recorded) -> DataFrame:
    """Answers on how far the log reaches, in which a node told less than had been acknowledged before the question."""
    told = history.sends.where("outcome = 'ok' AND offset IS NOT NULL")
    wrong = highest_ended(history.watermarks, told, ["partition"], "offset").where("latest <= highest")
    what = f.concat("process", f.lit(" was told the end "), "latest", f.lit("; acknowledged was "), "highest")
    return anomalies(wrong, "stale-end", what)


def _falls(history: Recorded, column: str, check: str) -> DataFrame:
    asked = Window.partitionBy("process", "partition").orderBy("op_id")
    marks = history.watermarks.where(f.col(column).isNotNull()).withColumn("before", f.lag(column).over(asked))
    what = f.concat("process", f.lit(f" was told {column} "), "before", f.lit(", and then "), column)
    return anomalies(marks.where(f.col(column) < f.col("before")), check, what)


def end_falls(history: Recorded) -> DataFrame:
    return _falls(history, "latest", "end-falls")


def stable_falls(history: Recorded) -> DataFrame:
    return _falls(history, "stable", "stable-falls")


def begin_falls(history: Recorded) -> DataFrame:
    """Begins that fall, and events given to a reader from before a begin that was told earlier."""
    begins = history.watermarks.where("earliest > 0")
    most = begins.groupBy("partition").agg(f.max("earliest").alias("most"))
    suspects = of_these(history.reads, most, ["partition"]).where("offset < most")
    early = highest_ended(suspects, begins, ["partition"], "earliest").where("offset < highest")
    what = f.concat("reader", f.lit(" was given what lies before the begin "), "highest")
    return _falls(history, "earliest", "begin-falls").unionByName(anomalies(early, "begin-falls", what))


def _stable(history: Recorded) -> DataFrame:
    return history.watermarks.where("stable IS NOT NULL").crossJoin(history.transactions.limit(1).select("txn"))


ORDER = Check(
    "C9", "reader-order", "readers get each event once, in order", lambda history: history.reads, reader_order
)

CHECKS = (
    Check("G1B", "half-seen", "committed readers see a partition's part of a transaction whole",
          lambda history: history.transactions, half_seen),
    Check("C16", "stale-end", "the end of the log, when asked for, is fresh",
          lambda history: history.watermarks, stale_ends),
    Check("C17", "end-falls", "the end of the log never falls for a client",
          lambda history: history.watermarks, end_falls),
    Check("C19", "begin-falls", "the begin of the log never falls, and nothing before it is read",
          lambda history: history.watermarks, begin_falls),
    Check("LSO", "stable-falls", "the last stable offset never falls for a client", _stable, stable_falls),
)  # fmt: skip
