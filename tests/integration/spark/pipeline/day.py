"""A day of trades: produced into a log, and its bars by a calculation that shares nothing with the job's."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from holdfast.cli.commands.demo import DEFAULT_FILE as TRADES
from holdfast.client.sync import Event, ProducerClient
from tests.integration.clusters.cluster import Cluster
from tests.integration.spark.conftest import reader

DATE = datetime.date(2013, 10, 7)
SUSPICIOUS_EVERY = 50  # the file has none

Found = dict[tuple[str, str], tuple[Any, ...]]
"""(symbol, minute) -> open, high, low, close, volume, vwap, trades."""


def trades_of_day(every: int) -> list[list[str]]:
    """In the order of the file, some of them made suspicious, with a price that would show."""
    with gzip.open(TRADES, "rt", newline="") as stream:
        rows = list(csv.reader(stream))[1::every]
    for number in range(0, len(rows), SUSPICIOUS_EVERY):
        rows[number][2], rows[number][-1] = "9999.99", "1"
    return rows


def produce(cluster: Cluster, log: str, trades: list[list[str]]) -> None:
    with ProducerClient(cluster.addresses, log) as producer:
        by_symbol: dict[str, list[Event]] = {}
        for row in trades:
            by_symbol.setdefault(row[1], []).append(Event(",".join(row), key=row[1]))
        for symbol, events in by_symbol.items():
            producer.send_batch(events, key=symbol)


def calculated(trades: list[list[str]]) -> Found:
    """By pandas, from the file's lines."""
    import pandas as pd

    frame = pd.DataFrame(trades, columns=["ms", "symbol", "price", "size", "exchange", "conditions", "suspicious"])
    frame = frame[frame["suspicious"] == "0"]
    frame = frame.assign(ms=frame["ms"].astype(int), price=frame["price"].map(Decimal), size=frame["size"].astype(int))
    frame["value"] = [price * size for price, size in zip(frame["price"], frame["size"], strict=True)]
    frame = frame.sort_values("ms", kind="stable")
    found = {}
    for (symbol, minute), of_minute in frame.groupby(["symbol", frame["ms"] // 60_000]):
        prices, volume = of_minute["price"], int(of_minute["size"].sum())
        vwap = (sum(of_minute["value"], Decimal()) / volume).quantize(Decimal("0.000001"), ROUND_HALF_UP)
        at = datetime.datetime.combine(DATE, datetime.time()) + datetime.timedelta(minutes=int(minute))
        edges = prices.iloc[0], max(prices), min(prices), prices.iloc[-1]
        found[symbol, at.isoformat()] = (*edges, volume, vwap, len(of_minute))
    return found


def in_parquet(spark: Any, directory: Path) -> Found:
    rows = spark.read.parquet(str(directory)).collect()
    assert len({(row.symbol, row.minute) for row in rows}) == len(rows), "no minute is given out twice"
    return {
        (row.symbol, row.minute.isoformat()): (
            *(row.open, row.high, row.low, row.close, row.volume, row.vwap, row.trades),
        )
        for row in rows
    }


def in_log(spark: Any, cluster: Cluster, log: str) -> Found:
    rows = reader(spark.read, cluster, log).load().collect()
    found = [json.loads(row.body, parse_float=Decimal) for row in rows]
    assert [row.key for row in rows] == [bar["symbol"] for bar in found]
    assert len({(bar["symbol"], bar["minute"]) for bar in found}) == len(found), "each bar once"
    return {
        (bar["symbol"], bar["minute"].partition(".")[0]): (
            *(Decimal(bar[name]) for name in ("open", "high", "low", "close")),
            *(bar["volume"], Decimal(bar["vwap"]), bar["trades"]),
        )
        for bar in found
    }
