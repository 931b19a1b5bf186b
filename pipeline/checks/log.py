"""Checks of what was promised of events: nothing lost, nothing twice, one value for each place, nothing made up."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.checks.check import PLACE, Check, HistoryFrames, anomalies, of_these, once

# ---------------------------------------------------------------- what was promised


@once
def acknowledged(history: HistoryFrames) -> DataFrame:
    """Events that the cluster has promised to keep, in partitions that were read whole: one row for each value.
    `stands_at`: its offset; null, it is nowhere in the log. `stands_in`: the partition of that."""
    columns = "msg_id", "partition", "producer", "txn", "offset", "t_end_ns"
    answered = history.sends.where("outcome = 'ok'").select(*columns)
    plain = answered.where("txn IS NULL")
    kept = plain.unionByName(answered.join(history.committed, "txn", "left_semi"))
    kept = kept.join(f.broadcast(history.whole), "partition", "left_semi").dropDuplicates(["msg_id"])
    stands = f.col("partition").alias("stands_in"), f.col("offset").alias("stands_at")
    return kept.join(first_places(history).select("msg_id", *stands), "msg_id", "left")


def lost(history: HistoryFrames) -> DataFrame:
    """Events that were acknowledged, and are nowhere in the log."""
    gone = acknowledged(history).where("stands_at IS NULL")
    found = anomalies(gone, "lost", f.concat(f.lit("acknowledged to "), "producer", f.lit(", and not in the log")))
    return found.unionByName(_short_drains(history))


@once
def first_places(history: HistoryFrames) -> DataFrame:
    """Places (msg_id, partition, offset) where each value is stored; the earlier place, should it be there twice."""
    place = f.min(f.struct("partition", "offset")).alias("place")
    return history.stored.groupBy("msg_id").agg(place).select("msg_id", "place.*")


def _short_drains(history: HistoryFrames) -> DataFrame:
    """Readers that read all from one node, and not as far as others were acknowledged: that node has another log."""
    kept = acknowledged(history).where("stands_at IS NOT NULL")
    ends = kept.groupBy(f.col("stands_in").alias("partition")).agg(f.max("stands_at").alias("acknowledged_to"))
    drains = history.drained.groupBy("reader", "partition").agg(f.max("offset").alias("offset"))
    short = drains.join(ends, "partition").where("offset < acknowledged_to")
    what = f.concat("reader", f.lit(" read all of it, and not as far as "), "acknowledged_to")
    return anomalies(short, "lost", what)


def _never_counted(history: HistoryFrames) -> DataFrame:
    """Values that readers might have been given wrongly, if there were readers."""
    refused = history.sends.where("outcome = 'fail'").select("msg_id")
    return refused.union(history.undone).crossJoin(history.reads.limit(1).select("reader"))


def rolled_back(history: HistoryFrames) -> DataFrame:
    """Values given to a reader of committed events, though they were refused or rolled back."""
    of_undone = history.sends.join(history.undone, "txn", "left_semi").select("msg_id")
    refused = history.sends.groupBy("msg_id").agg(f.bool_and(f.col("outcome") == "fail").alias("refused"))
    never = of_undone.union(refused.where("refused").select("msg_id")).distinct()
    read = of_these(history.reads.where("isolation = 'committed'"), never, ["msg_id"])
    return anomalies(read, "rolled-back", f.concat(f.lit("given to "), "reader", f.lit(", and it never counted")))


def never_sent(history: HistoryFrames) -> DataFrame:
    """Values in the log that nobody sent, or that were sent to another partition, or with other bytes."""
    stored = history.stored.select(*PLACE).crossJoin(history.sends.limit(1).select(f.lit(True).alias("known")))
    sent = history.sends.select("msg_id", "partition").distinct()
    strange = stored.join(sent, ["msg_id", "partition"], "left_anti").select(*PLACE).distinct()
    found = anomalies(strange, "never-sent", f.lit("nobody sent it to this partition"))
    damaged = history.reads.where("NOT crc_ok").dropDuplicates(["partition", "offset"])
    return found.unionByName(anomalies(damaged, "never-sent", f.lit("its checksum is wrong")))


# ---------------------------------------------------------------- what stands where


@once
def _places(history: HistoryFrames) -> DataFrame:
    """Places of values, by what was read and by what producers were told; a value captured twice has two rows."""
    stored = history.stored.select(*PLACE)
    told = history.sends.where("offset IS NOT NULL").select(*PLACE).distinct()
    return stored.unionByName(told.join(stored, list(PLACE), "left_anti"))


def duplicates(history: HistoryFrames) -> DataFrame:
    """A value in more than one place, or captured more than once."""
    places = _places(history)
    several = places.groupBy("msg_id").agg(f.count("*").alias("places")).where("places > 1")
    found = (
        of_these(places, several, ["msg_id"])
        .groupBy("msg_id", "places")
        .agg(f.min(f.struct("partition", "offset")).alias("place"))
    )
    found = found.select("msg_id", "places", "place.*")
    return anomalies(found, "duplicate", f.concat(f.lit("is there "), f.col("places"), f.lit(" times")))


def two_values(history: HistoryFrames) -> DataFrame:
    """A place with more than one value: two nodes have different logs."""
    places, place = _places(history), ["partition", "offset"]
    several = places.groupBy(*place).agg(f.count("*").alias("rows")).where("rows > 1")
    found = (
        of_these(places, several, place)
        .groupBy(*place)
        .agg(f.min("msg_id").alias("msg_id"), f.array_sort(f.collect_set("msg_id")).alias("values"))
    )
    return anomalies(
        found.where(f.size("values") > 1), "two-values", f.concat_ws(", ", f.lit("holds"), f.col("values"))
    )


CHECKS = (
    Check("C1", "lost", "what was acknowledged is in the log", acknowledged, lost),
    Check("C2", "two-values", "a place has one value", lambda history: history.stored, two_values,
          of_log=True),
    Check("C3", "duplicate", "a value is in the log once", lambda history: history.stored, duplicates,
          of_log=True),
    Check("C7", "never-sent", "what is in the log was sent, as it is", lambda history: history.reads, never_sent),
    Check("C8", "rolled-back", "what was rolled back is given to nobody", _never_counted, rolled_back),
)  # fmt: skip
