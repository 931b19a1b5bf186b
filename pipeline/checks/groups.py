"""Consumer groups: one owner for each claim, positions that never go back, nothing passed over or forgotten."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pipeline.checks.check import Check, Recorded, anomalies, highest_ended
from pipeline.checks.readers import visible

SHARE = ["group", "partition"]
"""A group's share of a log."""


def _commits(history: Recorded) -> DataFrame:
    """Those that count, or may count; `certain`: it is known that they do."""
    times = history.ops.select("op_id", "type", "t_inv_ns", "t_end_ns")
    commits = history.commits.join(history.undone, "txn", "left_anti").join(times, "op_id")
    done = history.committed.withColumn("done", f.lit(True))
    certain = (f.col("type") == "ok") & (f.col("txn").isNull() | f.coalesce("done", f.lit(False)))
    return commits.join(done, "txn", "left").withColumn("certain", certain)


def _deliveries(history: Recorded) -> DataFrame:
    return history.reads.where("group IS NOT NULL AND generation IS NOT NULL")


def one_owner(history: Recorded) -> DataFrame:
    """A claim is one member's; and who was outbid commits nothing any more."""
    columns = [*SHARE, "generation"]
    owners = _deliveries(history).select(*columns, f.col("reader").alias("member"))
    owners = owners.union(_commits(history).select(*columns, "member"))
    owners = owners.groupBy(*columns).agg(f.array_sort(f.collect_set("member")).alias("members"))
    what = f.concat(f.lit("claim "), "generation", f.lit(" was that of "), f.concat_ws(" and ", "members"))
    shared = anomalies(owners.where(f.size("members") > 1), "one-owner", what)
    certain = _commits(history).where("certain")
    outbid = highest_ended(certain, certain, SHARE, "generation").where("generation < highest")
    what = f.concat("member", f.lit(" committed by claim "), "generation", f.lit(" after claim "), "highest")
    return shared.unionByName(anomalies(outbid, "one-owner", what))


def progress(history: Recorded) -> DataFrame:
    """Positions do not go back, and a new owner begins no later than behind the last one. Commits of claims that were
    outbid are those of `one_owner`."""
    certain = _commits(history).where("certain").withColumn("at", f.struct("offset", "generation"))
    falls = highest_ended(certain, certain, SHARE, "at")
    falls = falls.where("offset < highest.offset AND generation >= highest.generation")
    what = f.concat("member", f.lit(" set the group back from "), f.col("highest.offset"))
    return anomalies(falls, "group-progress", what).unionByName(_late_owners(history))


def _late_owners(history: Recorded) -> DataFrame:
    """Who begins behind an event that its group has neither committed, nor this member in its hands."""
    in_order = f.struct("op_id", "pos")
    claims = _deliveries(history).groupBy(*SHARE, "generation").agg(
        f.min_by(f.struct("reader", "isolation", "offset", f.coalesce("t_end_ns", "t_inv_ns").alias("t_ns")),
                 in_order).alias("first"),
        f.max("offset").alias("last"),
    )  # fmt: skip
    earlier = Window.partitionBy(*SHARE).orderBy("generation")
    same = f.lag("first.reader").over(earlier) == f.col("first.reader")
    claims = claims.withColumn("had", f.when(same, f.lag("last").over(earlier)))
    before = _commits(history).select(
        *SHARE, f.col("generation").alias("claim"), f.col("offset").alias("done"), "t_inv_ns"
    )
    stood = claims.join(before, SHARE, "left").where("done IS NULL OR (claim < generation AND t_inv_ns < first.t_ns)")
    stood = stood.groupBy(*SHARE, "generation").agg(f.max("done").alias("done"))
    claims = claims.join(stood, [*SHARE, "generation"], "left").select(
        *SHARE, "generation", "first.reader", "first.isolation", "first.offset",
        f.greatest(f.coalesce("done", f.lit(-1)), f.coalesce("had", f.lit(-1))).alias("done"),
    )  # fmt: skip
    passed = visible(history).select("partition", "isolation", f.col("offset").alias("passed"))
    late = claims.join(passed, ["partition", "isolation"]).where("done < passed AND passed < offset")
    late = late.groupBy(*SHARE, "generation", "reader", "offset").agg(f.min("passed").alias("passed"))
    what = f.concat("reader", f.lit(" began by claim "), "generation", f.lit(", and passed over "), "passed")
    return anomalies(late, "group-progress", what)


def rewinds(history: Recorded) -> DataFrame:
    """What a transaction that was rolled back had taken was never done again, though what lies behind it was."""
    place = ["source_partition", "source_offset"]
    done = history.inputs.join(history.committed, "txn").select(*place).distinct()
    missing = history.inputs.join(history.undone, "txn").join(done, place, "left_anti")
    reached = done.groupBy("source_partition").agg(f.max("source_offset").alias("reached"))
    missing = missing.join(reached, "source_partition").where("source_offset < reached")
    missing = missing.select(
        "txn", f.col("source_partition").alias("partition"), f.col("source_offset").alias("offset")
    )
    what = f.concat("txn", f.lit(" was rolled back, and this was never done again"))
    return anomalies(missing.dropDuplicates(["txn"]), "rewind", what)


def _group_reads(history: Recorded) -> DataFrame:
    return history.reads.where("group IS NOT NULL").crossJoin(history.commits.limit(1).select("member"))


def _undone_inputs(history: Recorded) -> DataFrame:
    return history.inputs.join(history.undone, "txn")


CHECKS = (
    Check("C10", "one-owner", "one owner for each claim; who was outbid commits nothing", _group_reads, one_owner),
    Check("C11", "group-progress", "a group's position never goes back, and nothing is passed over", _group_reads,
          progress),
    Check("REWIND", "rewind", "what a transaction had taken comes again when it is rolled back", _undone_inputs,
          rewinds),
)  # fmt: skip
