"""Bars: the trades of a day become one-minute bars per symbol, in Parquet, in another log, and a picture of the day.

    holdfast pipeline bars --server 127.0.0.1:5672 --source trades --parquet bars --checkpoint state \\
        --date 2013-10-07 --picture day.png --available-now
    spark-submit pipeline/bars.py ...                                                    (the same, on any cluster)

An event is a line of the trades file: ms_of_day,symbol,price,size,exchange,conditions,suspicious. Its time is ms_of_day
on the date, UTC. Suspicious trades are left out. Of trades with equal times the earlier offset is first; a symbol's
trades are in one partition, as a producer with the symbol as key puts them.

Problem: a minute is given out once, when nothing more of it can come; how to know when that is? While trades come, the
watermark: the latest time seen, less `late_by`; what comes later is dropped, and said. But after the last minutes of a
day nothing comes that would move it. With `available_now` the day is over, so a *close* is put into a second source of
the query: a time after the day, and no trade. What was read before it counts, and the watermark passes all minutes.
With a target, a second query follows the first one: what counts of its files goes into another log, each bar once, as
JSON, with its symbol as key. (Spark admits one sink in a query.)
Prices are decimals: a bar is right to the cent, whatever the order in which sums were made.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from pipeline.picture import draw
from pipeline.progress import follow
from pipeline.session import parsed, session

PRICE = "decimal(18,6)"
LINE = f"ms_of_day INT, symbol STRING, price {PRICE}, size BIGINT, exchange STRING, conditions STRING, suspicious INT"
BAR = (
    f"symbol STRING, minute TIMESTAMP, open {PRICE}, high {PRICE}, low {PRICE}, close {PRICE}, volume BIGINT, "
    f"vwap {PRICE}, trades BIGINT"
)
TRADE = f"time TIMESTAMP, symbol STRING, price {PRICE}, size BIGINT, offset BIGINT"
COLUMNS = ("symbol", "minute", "open", "high", "low", "close", "volume", "vwap", "trades")

LATE_BY_LIVE = "10 minutes"
LATE_BY_AFTERWARDS = "24 hours"
"""A day that is there already is read in large batches, in which partitions are far apart: none of it is late."""

TRIGGER = "5 seconds"


@dataclass(frozen=True)
class Bars:
    server: str
    source: str
    parquet: str
    checkpoint: str
    date: datetime.date
    picture: str | None = None
    available_now: bool = False
    late_by: str | None = None
    max_events: int | None = None
    target: str | None = None
    login: Mapping[str, str] = field(default_factory=dict)  # further options of the connection

    @property
    def midnight(self) -> datetime.datetime:
        return datetime.datetime.combine(self.date, datetime.time(), datetime.UTC)


def run(spark: SparkSession, job: Bars, say: Callable[[str], None]) -> None:
    """Run to the end of the log, with all minutes; or for good."""
    closes = Path(job.checkpoint) / "closes"
    closes.mkdir(parents=True, exist_ok=True)
    start, into_target = partial(_start, spark, job, closes), partial(_start_target, spark, job)
    targets = [] if job.target is None else [into_target]
    follow(start, say, *([] if job.available_now else targets))
    if job.available_now:
        close = {"time": (job.midnight + datetime.timedelta(days=2, hours=1)).isoformat()}
        (closes / f"{job.date.isoformat()}.json").write_text(json.dumps(close), encoding="utf-8")
        follow(start, say)
        for target in targets:
            follow(target, say)
    if job.picture is not None:
        draw(spark.read.parquet(job.parquet).toPandas(), job.date, Path(job.picture))


def _start(spark: SparkSession, job: Bars, closes: Path):  # type: ignore[no-untyped-def]
    every = trades(spark, job).unionByName(
        spark.readStream.schema(TRADE).json(closes.resolve().as_uri()).select(*_names(TRADE))
    )
    late_by = job.late_by or (LATE_BY_AFTERWARDS if job.available_now else LATE_BY_LIVE)
    writer = bars(every.withWatermark("time", late_by)).writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(Path(job.checkpoint) / "query")).queryName(f"bars of {job.source}")
    writer = writer.trigger(availableNow=True) if job.available_now else writer.trigger(processingTime=TRIGGER)
    return writer.start(job.parquet)


def _start_target(spark: SparkSession, job: Bars) -> StreamingQuery:
    """Start the query on the files that count: the first query has made the list of them before this one looks."""
    bar = spark.readStream.schema(BAR).parquet(job.parquet)
    body = f.to_json(f.struct(*COLUMNS)).alias("body")
    writer = bar.select(body, f.col("symbol").alias("key")).writeStream.format("holdfast").outputMode("append")
    writer = writer.options(servers=job.server, **job.login, log=job.target)
    writer = writer.option("checkpointLocation", str(Path(job.checkpoint) / "target"))
    writer = writer.queryName(f"bars into {job.target}")
    writer = writer.trigger(availableNow=True) if job.available_now else writer.trigger(processingTime=TRIGGER)
    return writer.start()


def trades(spark: SparkSession, job: Bars) -> DataFrame:
    """The events of the log that count, as rows of TRADE."""
    source = spark.readStream.format("holdfast").options(
        servers=job.server, **job.login, log=job.source, startingOffsets="earliest", columns="body,offset"
    )
    if job.max_events is not None:
        source = source.option("maxEventsPerTrigger", job.max_events)
    line = f.from_csv(f.col("body").cast("string"), LINE)
    found = source.load().select("offset", line.alias("line")).select("offset", "line.*")
    found = found.where("suspicious = 0 AND symbol IS NOT NULL AND price IS NOT NULL AND size > 0")
    midnight_ms = int(job.midnight.timestamp() * 1000)
    return found.withColumn("time", f.timestamp_millis(f.col("ms_of_day") + f.lit(midnight_ms))).select(*_names(TRADE))


def bars(trades: DataFrame) -> DataFrame:
    """One row for each symbol and minute that has trades."""
    place: Column = f.struct("time", "offset")
    value = f.sum(f.col("price") * f.col("size"))
    found = trades.groupBy(f.window("time", "1 minute").alias("window"), "symbol").agg(
        f.min_by("price", place).alias("open"),
        f.max("price").alias("high"),
        f.min("price").alias("low"),
        f.max_by("price", place).alias("close"),
        f.sum("size").alias("volume"),
        (value / f.sum("size")).cast(PRICE).alias("vwap"),
        f.count("price").alias("trades"),
    )
    # A close is a row without a trade. It is left out by what is counted: a condition on its symbol would be applied
    # before the watermark hears of it.
    return found.where("trades > 0").withColumn("minute", f.col("window.start")).select(*COLUMNS)


def _names(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bars", description="Make one-minute bars per symbol from a log of trades.")
    for name in ("server", "source", "parquet", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--date", required=True, type=datetime.date.fromisoformat, help="Set the day of the trades.")
    parser.add_argument("--target", help="Write the bars into this log, too.")
    parser.add_argument("--picture", help="Draw price and volume of the day as PNG.")
    parser.add_argument("--available-now", action="store_true", help="End where the log ends now: the day is over.")
    by_default = f"{LATE_BY_LIVE}, with --available-now {LATE_BY_AFTERWARDS}"
    parser.add_argument("--late-by", help=f"Wait so long for late trades ({by_default}).")
    parser.add_argument("--max-events", type=int, help="Take so many events into one batch at most.")
    run(session("bars"), Bars(**parsed(parser, arguments)), print)


if __name__ == "__main__":
    main()
