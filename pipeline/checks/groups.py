"""Consumer groups: one owner for each claim, positions that never go back, nothing passed over or forgotten."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pipeline.checks.check import Check, Recorded, anomalies, highest_ended, of_these, once
from pipeline.checks.readers import visible

SHARE = ["group", "partition"]
"""A group's share of a log."""
KEY = [*SHARE, "generation"]
"""A claim on it."""


@once
def _commits(history: Recorded) -> DataFrame:
    """Commits that count, or may count; `certain`: it is known that they do."""
    times = history.ops.select("op_id", "type", "t_inv_ns", "t_end_ns")
    commits = history.commits.join(history.undone, "txn", "left_anti").join(times, "op_id")
    done = history.committed.withColumn("done", f.lit(True))
    certain = (f.col("type") == "ok") & (f.col("txn").isNull() | f.coalesce("done", f.lit(False)))
    return commits.join(done, "txn", "left").withColumn("certain", certain)


def _deliveries(history: Recorded) -> DataFrame:
    return history.reads.where("group IS NOT NULL AND generation IS NOT NULL")


def one_owner(history: Recorded) -> DataFrame:
    """Claims of two members, and commits of a member that was outbid before."""
    columns = [*SHARE, "generation"]
    owners = _deliveries(history).select(*columns, f.col("reader").alias("member"))
    owners = owners.union(_commits(history).select(*columns, "member")).distinct()
    owners = owners.groupBy(*columns).agg(f.array_sort(f.collect_set("member")).alias("members"))
    what = f.concat(f.lit("claim "), "generation", f.lit(" was that of "), f.concat_ws(" and ", "members"))
    shared = anomalies(owners.where(f.size("members") > 1), "one-owner", what)
    certain = _commits(history).where("certain")
    outbid = highest_ended(certain, certain, SHARE, "generation").where("generation < highest")
    what = f.concat("member", f.lit(" committed by claim "), "generation", f.lit(" after claim "), "highest")
    return shared.unionByName(anomalies(outbid, "one-owner", what))


def progress(history: Recorded) -> DataFrame:
    """Positions do not go back, and a new owner begins right after the last one, or before. Commits of claims that were
    outbid are those of `one_owner`."""
    certain = _commits(history).where("certain").withColumn("at", f.struct("offset", "generation"))
    falls = highest_ended(certain, certain, SHARE, "at")
    falls = falls.where("offset < highest.offset AND generation >= highest.generation")
    what = f.concat("member", f.lit(" set the group back from "), f.col("highest.offset"))
    return anomalies(falls, "group-progress", what).unionByName(_late_owners(history))


@once
def _claims(history: Recorded) -> DataFrame:
    """Claims, each with the event that its owner was given first, and `had`: the highest that the same owner was given
    by the claim before."""
    given = _deliveries(history)
    calls = given.groupBy(*KEY).agg(f.min("op_id").alias("op_id"), f.max("offset").alias("last"))
    first = f.struct("reader", "isolation", "offset", f.coalesce("t_end_ns", "t_inv_ns").alias("t_ns"))
    claims = of_these(given, calls, [*KEY, "op_id"]).groupBy(*KEY, "last").agg(f.min_by(first, "pos").alias("first"))
    earlier = Window.partitionBy(*SHARE).orderBy("generation")
    same = f.lag("first.reader").over(earlier) == f.col("first.reader")
    return claims.withColumn("had", f.when(same, f.lag("last").over(earlier))).select(*KEY, "first.*", "had")


def _late_owners(history: Recorded) -> DataFrame:
    """Owners that begin after an event that their group has not committed, and that they have not been given."""
    claims = _claims(history).join(_done_before(history), KEY, "left")
    claims = claims.withColumn("done", f.greatest(f.coalesce("done", f.lit(-1)), f.coalesce("had", f.lit(-1))))
    late = claims.where("done + 1 < offset").select(*KEY, "reader", "isolation", "offset", "done")
    passed = visible(history, late.select("partition").distinct()).drop("place")
    passed = passed.withColumns({"at": f.col("offset"), "there": f.col("offset")}).drop("offset")
    both = late.withColumn("at", f.col("done")).unionByName(passed, allowMissingColumns=True)
    # At a claim's place come those that lie after it: claims stand before what lies at the same place.
    behind = Window.partitionBy("partition", "isolation").orderBy(f.desc("at"), f.col("there").asc_nulls_first())
    behind = behind.rowsBetween(Window.unboundedPreceding, -1)
    late = both.withColumn("passed", f.min("there").over(behind)).where("done IS NOT NULL AND passed < offset")
    what = f.concat("reader", f.lit(" began by claim "), "generation", f.lit(", and passed over "), "passed")
    return anomalies(late, "group-progress", what)


def _done_before(history: Recorded) -> DataFrame:
    """Claims with `done`: the highest offset that earlier claims had asked to commit before a claim's first event was
    given. Nearly always these are all the commits of that time; a claim that begins after its own or a later claim's
    commits is looked at alone."""
    begins = _claims(history).select(*KEY, "t_ns")
    commits = _commits(history).select(*SHARE, f.col("generation").alias("claim"), "offset", "t_inv_ns")
    asked = commits.withColumn("t_ns", f.col("t_inv_ns")).drop("t_inv_ns")
    both = begins.withColumn("asks", f.lit(0)).unionByName(asked.withColumn("asks", f.lit(1)), allowMissingColumns=True)
    before = Window.partitionBy(*SHARE).orderBy("t_ns", "asks").rowsBetween(Window.unboundedPreceding, -1)
    both = both.withColumns({"done": f.max("offset").over(before), "latest": f.max("claim").over(before)})
    both = both.where("asks = 0")
    plain = both.where("latest IS NULL OR latest < generation").select(*KEY, "done")
    odd = of_these(commits, both.where("latest >= generation").select(*KEY, "t_ns"), SHARE)
    odd = odd.where("claim < generation AND t_inv_ns < t_ns").groupBy(*KEY).agg(f.max("offset").alias("done"))
    return plain.unionByName(odd)


def rewinds(history: Recorded) -> DataFrame:
    """Events that a rolled-back transaction had taken and that were never done again, though later ones were."""
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
