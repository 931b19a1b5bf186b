"""The numbers and epochs of idempotent producers, and the order of time."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pipeline.checks.check import Check, HistoryFrames, anomalies, highest_ended, of_these, once
from pipeline.checks.log import first_places

SEQUENCES = 1 << 31
"""Number of sequence numbers: after the last one of a producer comes 0."""


@once
def _numbers(history: HistoryFrames) -> DataFrame:
    """Numbers that idempotent producers gave their events: writer, epoch, number; as clients and as nodes tell them."""
    by_client = history.sends.where("seq IS NOT NULL AND txn IS NULL").select("msg_id", "producer", "epoch", "seq")
    by_client = by_client.dropDuplicates(["msg_id"])
    places = history.stored.groupBy("msg_id", "partition").agg(f.min("offset").alias("offset"))
    by_client = places.join(by_client, "msg_id").withColumn("writer", f.concat(f.lit("producer "), "producer"))
    numbered = history.stored.where("producer_id >= 0 AND sequence IS NOT NULL")
    by_node = numbered.dropDuplicates(["partition", "offset"]).select(
        "msg_id", "partition", "offset",
        f.concat(f.lit("producer id "), "producer_id").alias("writer"), f.lit(None).cast("bigint").alias("epoch"),
        f.col("sequence").alias("seq"),
    )  # fmt: skip
    return by_client.select(by_node.columns).unionByName(by_node)


def sequence_gaps(history: HistoryFrames) -> DataFrame:
    """Events whose number does not follow the one before, of the same epoch of a producer, and numbers that were
    acknowledged for two values. Where only the nodes' word is known, a producer may begin with 0 again."""
    in_log = Window.partitionBy("writer", "partition", "epoch").orderBy("offset")
    rows = _numbers(history).withColumn("before", f.lag("seq").over(in_log))
    wrong = rows.where(f"seq != (before + 1) % {SEQUENCES} AND NOT (epoch IS NULL AND seq = 0)")
    what = f.concat("writer", f.lit(": behind number "), "before", f.lit(" stands "), "seq")
    return anomalies(wrong, "sequence-gap", what).unionByName(_one_number_twice(history))


def _one_number_twice(history: HistoryFrames) -> DataFrame:
    told = history.sends.where("outcome = 'ok' AND seq IS NOT NULL AND offset IS NOT NULL")
    key = ["producer", "epoch", "seq", "partition"]
    several = told.groupBy(*key).agg(f.count("*").alias("answers")).where("answers > 1")
    told = (
        of_these(told, several, key)
        .groupBy(*key)
        .agg(f.min("msg_id").alias("msg_id"), f.max("msg_id").alias("other"), f.min("offset").alias("offset"))
    )
    what = f.concat("producer", f.lit(": number "), "seq", f.lit(" was acknowledged as another value, too: "), "other")
    return anomalies(told.where("msg_id != other"), "sequence-gap", what)


def fencing(history: HistoryFrames) -> DataFrame:
    """Events of an older epoch of a producer after one of a newer epoch."""
    before = Window.partitionBy("writer", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    rows = _numbers(history).where("epoch IS NOT NULL").withColumn("highest", f.max("epoch").over(before))
    what = f.concat("writer", f.lit(": epoch "), "epoch", f.lit(" stands behind epoch "), "highest")
    return anomalies(rows.where("epoch < highest"), "fencing", what)


def _followed(history: HistoryFrames) -> DataFrame:
    """Producers that were followed by another epoch of theirs in the same partition."""
    epochs = history.sends.where("epoch IS NOT NULL").groupBy("producer", "partition")
    return epochs.agg(f.min("epoch").alias("first"), f.max("epoch").alias("last")).where("first < last")


def time_order(history: HistoryFrames) -> DataFrame:
    """Sent after another one had been acknowledged, and standing before it. Of values that were sent once: of others an
    earlier attempt may be what is stored."""
    once = history.sends.groupBy("msg_id").agg(f.count("*").alias("attempts")).where("attempts = 1").select("msg_id")
    places = first_places(history).select("msg_id", f.col("offset").alias("stands_at"))
    sends = history.sends.where("outcome = 'ok' AND t_end_ns IS NOT NULL").join(once, "msg_id")
    sends = sends.join(places, "msg_id", "left").withColumn("offset", f.coalesce("offset", "stands_at"))
    sends = sends.where("offset IS NOT NULL").select("partition", "msg_id", "offset", "t_inv_ns", "t_end_ns")
    wrong = highest_ended(sends, sends, ["partition"], "offset").where("offset <= highest")
    what = f.concat(f.lit("sent after offset "), "highest", f.lit(" had been acknowledged"))
    return anomalies(wrong, "time-order", what)


CHECKS = (
    Check("C4", "sequence-gap", "numbers of producers have no gaps", _numbers, sequence_gaps, of_log=True),
    Check("C5", "fencing", "a producer of an old epoch is fenced", _followed, fencing),
    Check("C6", "time-order", "the order of the log is that of time",
          lambda history: history.sends.where("outcome = 'ok'"), time_order),
)  # fmt: skip
