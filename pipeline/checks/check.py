"""Input and output of checks, and what all of them use.

Each check takes a `HistoryFrames` and gives a DataFrame of anomalies with the columns of ANOMALY; an empty one: nothing
is wrong. None of them collects anything: windows and joins by partition, producer, group or value, so that they work on
hundreds of millions of rows. Reading files is the business of `pipeline.audit`; a program that has DataFrames calls
them itself.

Rule never broken: a check reports only what is certainly wrong. Where a client does not know the outcome of an event,
both are right; where nobody has read a partition from its beginning to its end, nothing in it is said to be lost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

ANOMALY = "check STRING, partition STRING, offset BIGINT, msg_id STRING, what STRING"

PLACE = ("msg_id", "partition", "offset")


@dataclass(frozen=True)
class HistoryFrames:
    """Histories of clients, and a log. `msg_id` names a value; no two values that are sent have the same one.
    Partitions are texts.

    sends         a row for each attempt: op_id, msg_id, partition, producer, epoch, seq, txn, outcome (ok, it was
                  acknowledged; fail, it is certainly not stored; info, nobody knows), offset, t_inv_ns, t_end_ns; null
                  where unknown
    reads         what clients were given: op_id, msg_id, crc_ok, partition, offset, reader, session, isolation, pos (in
                  the session)
    drained       those of them that were read from the begin to the end when all was over
    stored        what lies in the log, a row for each event: msg_id, partition, offset, producer_id, sequence
    whole         partitions of which all that is stored, and may be read, is in `stored`: partition
    transactions  txn, decision (commit, abort), outcome (ok: so it was done, fail: the opposite, info: nobody knows)
    """

    sends: DataFrame
    reads: DataFrame
    drained: DataFrame
    stored: DataFrame
    whole: DataFrame
    transactions: DataFrame
    kept: dict[str, DataFrame] = field(default_factory=dict, kw_only=True, compare=False)
    """Results that `once` has kept."""

    def forget(self) -> None:
        for rows in self.kept.values():
            rows.unpersist()
        self.kept.clear()

    @property
    def committed(self) -> DataFrame:
        """Transactions (txn) of which it is certain that all of it counts."""
        return self.transactions.where("decision = 'commit' AND outcome = 'ok'").select("txn")

    @property
    def undone(self) -> DataFrame:
        """Transactions (txn) of which it is certain that nothing counts."""
        return self.transactions.where(
            "(decision = 'abort' AND outcome = 'ok') OR (decision = 'commit' AND outcome = 'fail')"
        ).select("txn")


@dataclass(frozen=True)
class Recorded(HistoryFrames):
    """A whole run of the chaos suite: its other tables, as `chaos/history/tables.py` says. `sends` and `reads` have the
    times of their calls; `stored` is what was read and what lay on disks.

    reads         has also group, generation, type of its call; of the value of_txn and begun_ns, as `values`
    stored        has also drained, at_end (a drain was given it, one of committed events was), term (on disks; or null)
    values        a row for each value that was sent: msg_id, txn, attempts, begun_ns: when somebody first asked for
                  anything of its transaction, or for it
    """

    ops: DataFrame
    commits: DataFrame
    replica_dump: DataFrame
    leaders: DataFrame
    inputs: DataFrame
    watermarks: DataFrame
    complaints: DataFrame
    faults: DataFrame
    values: DataFrame


@dataclass(frozen=True)
class Check:
    """Check of a history. `promise`: its name in reports of chaos runs. `of_log`: a log tells something by itself,
    without a word of the producers and readers."""

    promise: str
    name: str
    title: str
    judged: Callable[[Any], DataFrame]  # the rows that it looks at
    find: Callable[[Any], DataFrame]
    of_log: bool = False


H = TypeVar("H", bound=HistoryFrames)


def once(work_out: Callable[[H], DataFrame]) -> Callable[[H], DataFrame]:
    """Keep what several checks use: the first of them works it out, and it stays until the history is forgotten."""

    @functools.wraps(work_out)
    def kept(history: H) -> DataFrame:
        name = f"{work_out.__module__}.{work_out.__name__}"
        if name not in history.kept:
            history.kept[name] = work_out(history).cache()
        return history.kept[name]

    return kept


def of_these(rows: DataFrame, few: DataFrame, keys: list[str]) -> DataFrame:
    """Rows, with what `few` says of their keys. `few` are suspects, and hardly ever any: they are brought to the rows,
    which stay where they are."""
    return rows.join(f.broadcast(few), keys)


def anomalies(rows: DataFrame, check: str, what: Column | str) -> DataFrame:
    """Anomalies, one for each of the rows, which have `partition`, and `offset` and `msg_id` where they are about one
    place or one value."""
    said = f.lit(what) if isinstance(what, str) else what
    missing = {"partition": "string", "offset": "bigint", "msg_id": "string"}
    columns = [
        f.col(name).cast(kind).alias(name) if name in rows.columns else f.lit(None).cast(kind).alias(name)
        for name, kind in missing.items()
    ]
    return rows.select(f.lit(check).alias("check"), *columns, said.alias("what"))


def highest_ended(begun: DataFrame, ended: DataFrame, keys: list[str], value: str) -> DataFrame:
    """The rows of `begun`, by their t_inv_ns, with `highest`: the greatest `value` of the rows of `ended` with the same
    keys that had ended strictly before, by their t_end_ns. Null: there were none."""
    of_ended = f.struct(f.col(value).alias("value")).alias("of_ended")
    ends = ended.where("t_end_ns IS NOT NULL")
    ends = ends.select(*keys, f.col("t_end_ns").alias("t_ns"), f.lit(1).alias("ends"), of_ended)
    begins = begun.select("*", f.col("t_inv_ns").alias("t_ns"), f.lit(0).alias("ends"))
    # At one and the same moment begins come first: what ended then had not ended before.
    before = Window.partitionBy(*keys).orderBy("t_ns", "ends").rowsBetween(Window.unboundedPreceding, -1)
    both = begins.unionByName(ends, allowMissingColumns=True)
    both = both.withColumn("highest", f.max("of_ended").over(before)).where("ends = 0")
    return both.select(*begun.columns, f.col("highest.value").alias("highest"))
