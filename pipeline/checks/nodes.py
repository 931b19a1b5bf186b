"""Leaders, replicas, and that it goes on: what chaos runs ask of nodes and of a cluster as a whole."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pipeline.checks.check import Check, Recorded, anomalies, highest_ended
from pipeline.checks.log import acknowledged

RECOVER_WITHIN_NS = 30_000_000_000
"""Time from the end of a fault to an acknowledgement in every partition. No promise of speed: beyond it, it hangs."""

LATE_NS = 5_000_000_000
"""Time by which a call may end after its deadline: the machine may be busy, the loop of the client, too."""


def one_leader(history: Recorded) -> DataFrame:
    """Terms with two leaders, and events taken in an older term though sent after a newer one had acknowledged."""
    terms = history.leaders.groupBy("group_id", "term").agg(
        f.array_sort(f.collect_set("node")).alias("nodes"), f.min("partition").alias("partition")
    )
    what = f.concat(f.lit("term "), "term", f.lit(" of group "), "group_id", f.lit(" was led by nodes "))
    what = f.concat(what, f.concat_ws(" and ", f.col("nodes").cast("array<string>")))
    two = anomalies(terms.where(f.size("nodes") > 1), "one-leader", what)
    once = history.values.where("attempts = 1").select("msg_id")
    term = history.stored.where("term IS NOT NULL").groupBy("partition", "msg_id").agg(f.max("term").alias("term"))
    sends = history.sends.where("outcome = 'ok'").join(once, "msg_id").join(term, ["partition", "msg_id"])
    late = highest_ended(sends, sends, ["partition"], "term").where("term < highest")
    what = f.concat(f.lit("taken in term "), "term", f.lit(", after term "), "highest", f.lit(" had acknowledged"))
    return two.unionByName(anomalies(late, "one-leader", what))


def replicas_equal(history: Recorded) -> DataFrame:
    """Offsets that are not on all nodes, or not the same there, from where all copies begin."""
    rows = history.replica_dump
    begins = rows.groupBy("partition", "node").agg(f.min("offset").alias("begin"))
    begins = begins.groupBy("partition").agg(f.max("begin").alias("start"), f.count("*").alias("copies"))
    # Numbers, not texts, are compared: Spark has to sort all rows to find the least of a text, not of a number.
    copy = rows.select("partition", "offset", "node", f.xxhash64("term", "msg_id", "crc").alias("event"))
    copies = (
        copy.repartition("partition", "offset")
        .groupBy("partition", "offset", "node")
        .agg(f.min("event").alias("least"), f.max("event").alias("most"))
    )
    places = copies.groupBy("partition", "offset").agg(
        f.count("*").alias("nodes"), f.min("least").alias("least"), f.max("most").alias("most")
    )
    wrong = places.join(f.broadcast(begins), "partition").where("offset >= start AND (nodes < copies OR least != most)")
    what = f.concat(f.lit("not alike on all nodes; it is on "), "nodes", f.lit(" of "), "copies")
    return anomalies(wrong, "replicas", what)


def _on_several(history: Recorded) -> DataFrame:
    """Events that lie on more than one node."""
    nodes = history.replica_dump.groupBy("partition").agg(f.countDistinct("node").alias("nodes")).where("nodes > 1")
    return history.replica_dump.join(nodes, "partition", "left_semi")


# ---------------------------------------------------------------- it goes on


def _last(history: Recorded) -> DataFrame:
    return history.ops.agg(f.coalesce(f.max("t_end_ns"), f.lit(0)).alias("last_ns"))


def _healed(history: Recorded) -> DataFrame:
    """Times (healed_ns, kind) at which the cluster was whole again: a fault's end at which no other one is in force."""
    struck = history.faults.where("t_injected_ns IS NOT NULL")
    other = struck.select(
        f.col("id").alias("other"), f.col("t_injecting_ns").alias("other_begins"),
        f.col("t_healed_ns").alias("other_ends"),
    )  # fmt: skip
    near = struck.join(
        other,
        (f.col("other") != f.col("id"))
        & (f.col("other_begins") < f.col("t_healed_ns") + RECOVER_WITHIN_NS)
        & (f.col("other_ends").isNull() | (f.col("other_ends") > f.col("t_healed_ns"))),
        "left_anti",
    )
    return near.where("t_healed_ns IS NOT NULL").select(f.col("t_healed_ns").alias("healed_ns"), "kind")


def availability(history: Recorded) -> DataFrame:
    """Partitions that take no events again after a fault, though somebody sends to them."""
    asked = history.sends.groupBy("partition").agg(f.max("t_inv_ns").alias("asked_to"))
    marks = _healed(history).crossJoin(asked).crossJoin(_last(history))
    marks = marks.where(f"asked_to > healed_ns AND last_ns > healed_ns + {RECOVER_WITHIN_NS}")
    marks = marks.select("partition", "kind", f.col("healed_ns").alias("t_ns"))
    told = history.sends.where("outcome = 'ok' AND t_end_ns IS NOT NULL").select(
        "partition", f.col("t_end_ns").alias("t_ns"), f.col("t_end_ns").alias("told")
    )
    # From the end to the begin: Spark works a window that reaches to the end out anew for every row.
    behind = Window.partitionBy("partition").orderBy(f.desc("t_ns"))
    behind = behind.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    both = marks.unionByName(told, allowMissingColumns=True).withColumn("next", f.min("told").over(behind))
    silent = both.where(f"kind IS NOT NULL AND (next IS NULL OR next > t_ns + {RECOVER_WITHIN_NS})")
    what = f.concat(f.col("kind"), f.lit(f" was over, and nothing acknowledged for {RECOVER_WITHIN_NS // 10**9} s"))
    return anomalies(silent, "availability", what)


def stuck(history: Recorded) -> DataFrame:
    """Stored events not given to a reader of all; readers that stopped short; nodes that died by themselves."""
    kept = acknowledged(history).where("stands_at IS NOT NULL")
    given = history.stored.where("drained").select("msg_id")
    unread = kept.where("txn IS NULL").join(given, "msg_id", "left_anti")
    found = anomalies(unread, "stuck", f.lit("it is stored, and who read all of it was not given it"))
    goals = (
        kept.where("offset IS NOT NULL")
        .groupBy("partition")
        .agg(f.max("stands_at").alias("goal"), f.max_by("t_end_ns", "stands_at").alias("told_ns"))
    )
    came = history.reads.where("group IS NULL").groupBy("reader", "partition").agg(f.max("offset").alias("offset"))
    polled = history.ops.where("f = 'poll'").groupBy("process").agg(f.max_by("t_inv_ns", "op_id").alias("polled_ns"))
    came = came.join(polled.withColumnRenamed("process", "reader"), "reader").join(goals, "partition")
    what = f.concat("reader", f.lit(" read to the end of the run; the log goes to "), "goal")
    short = came.where("offset < goal AND polled_ns > coalesce(told_ns, 0)")
    died = history.complaints.withColumn("said", f.concat(f.lit("node "), "node", f.lit(": "), "text"))
    return found.unionByName(anomalies(short, "stuck", what)).unionByName(anomalies(died, "stuck", f.col("said")))


def endless_calls(history: Recorded) -> DataFrame:
    """Calls that did not end by their deadline, whatever happened to the cluster."""
    calls = history.ops.where("deadline_ns IS NOT NULL").crossJoin(f.broadcast(_last(history)))
    late = calls.where(f"coalesce(t_end_ns, last_ns) - deadline_ns > {LATE_NS}")
    return anomalies(late, "endless-call", f.concat("process", f.lit(": "), "f", f.lit(" did not end by its deadline")))


def _drained_or_failed(history: Recorded) -> DataFrame:
    return history.drained.select("msg_id").union(history.complaints.select("text"))


CHECKS = (
    Check("C15", "one-leader", "one leader for each term", lambda history: history.leaders, one_leader),
    Check("C18", "replicas", "replicas are alike", _on_several, replicas_equal),
    Check("C20", "availability", "every partition takes events again after a fault",
          lambda history: history.sends.where("outcome = 'ok'"), availability),
    Check("C21", "stuck", "drained, nothing stuck, nobody died by itself", _drained_or_failed, stuck),
    Check("CALLS", "endless-call", "every call of a client ends by its deadline",
          lambda history: history.ops.where("deadline_ns IS NOT NULL"), endless_calls),
)  # fmt: skip
