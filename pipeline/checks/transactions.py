"""Transactions are whole, each input of a pipeline counts once, and nothing is read before it can be."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.checks.check import Check, Recorded, anomalies, once


def _read_at_end(history: Recorded) -> DataFrame:
    return history.stored.where("at_end").select("msg_id").distinct().withColumn("there", f.lit(1))


@once
def _times(history: Recorded) -> DataFrame:
    """Times (txn, decided_ns) at which a transaction's end was asked for."""
    asked = history.ops.select("op_id", f.col("t_inv_ns").alias("decided_ns"))
    return history.transactions.join(asked, "op_id").select("txn", "decided_ns")


def atomicity(history: Recorded) -> DataFrame:
    """After the drain a transaction is there as a whole or not at all; before its commit was asked for, nowhere."""
    known = history.transactions.join(history.undone, "txn", "left_anti")
    sends = history.sends.where("txn IS NOT NULL").join(history.whole, "partition", "left_semi")
    sends = sends.select("txn", "msg_id", "partition").dropDuplicates(["txn", "msg_id"])
    parts = sends.join(_read_at_end(history), "msg_id", "left").join(known.select("txn", "decision", "outcome"), "txn")
    parts = parts.groupBy("txn", "decision", "outcome").agg(
        f.count("*").alias("sent"), f.count("there").alias("found"), f.min("partition").alias("partition"),
        f.min(f.when(f.col("there").isNull(), f.col("msg_id"))).alias("msg_id"),
    )  # fmt: skip
    torn = parts.where("found < sent AND (found > 0 OR (decision = 'commit' AND outcome = 'ok'))")
    what = f.concat(f.lit("of "), "txn", f.lit(" there are "), "found", f.lit(" of "), "sent", f.lit(" events"))
    found = anomalies(torn, "atomicity", what)
    given = history.reads.where("isolation = 'committed' AND of_txn IS NOT NULL").withColumnRenamed("of_txn", "txn")
    early = given.join(history.undone, "txn", "left_anti").join(_times(history), "txn")
    what = f.concat("reader", f.lit(" was given it before the commit of "), "txn", f.lit(" was asked for"))
    return found.unionByName(anomalies(early.where("t_end_ns < decided_ns"), "atomicity", what))


def exactly_once(history: Recorded) -> DataFrame:
    """Each input up to where the group stands has one output that counts, and only one."""
    inputs = history.inputs.join(history.undone, "txn", "left_anti").join(_read_at_end(history), "msg_id", "left")
    outputs = inputs.groupBy("source_msg_id").agg(
        f.count("there").alias("outputs"), f.max(f.struct("source_partition", "source_offset")).alias("place")
    )
    outputs = outputs.select(
        f.col("source_msg_id").alias("msg_id"), "outputs", f.col("place.source_partition").alias("partition"),
        f.col("place.source_offset").alias("offset"),
    )  # fmt: skip
    stands = history.commits.join(history.committed, "txn").groupBy("partition").agg(f.max("offset").alias("stands"))
    wrong = outputs.join(stands, "partition", "left").where("outputs > 1 OR (outputs = 0 AND offset <= stands)")
    return anomalies(wrong, "exactly-once", f.concat(f.lit("its outputs that count: "), "outputs"))


def circular(history: Recorded) -> DataFrame:
    """Values read before the call began that sent them. Longer circles of reads and time need no search: a call that
    reads sends nothing, so after a read comes an edge of time; and if every read ends after what it read began, then
    each step of such a way begins later than the one before, and none comes back."""
    early = history.reads.where("type = 'ok' AND t_end_ns < begun_ns")
    return anomalies(early, "circular", f.concat("reader", f.lit(" had read it before its sender began")))


def _ended(history: Recorded) -> DataFrame:
    return history.transactions.crossJoin(history.drained.limit(1).select("reader"))


def _inputs(history: Recorded) -> DataFrame:
    return history.inputs.crossJoin(history.drained.limit(1).select("reader"))


CHECKS = (
    Check("C12", "atomicity", "a transaction is there as a whole, or not at all", _ended, atomicity),
    Check("C13", "exactly-once", "each input of a pipeline counts once", _inputs, exactly_once),
    Check("C14", "circular", "no circle of information through reads and time", lambda history: history.reads,
          circular),
)  # fmt: skip
