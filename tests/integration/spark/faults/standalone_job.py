"""A job for a cluster of Spark's own: reads a log there, writes it into another one, and says what it saw.

Arguments: MASTER SERVERS LOG TARGET.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from tests.integration.spark.session import SETTINGS


def main(master: str, servers: str, log: str, target: str) -> None:
    builder = SparkSession.builder.master(master).appName("standalone")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.executor.memory", "512m").config("spark.executor.cores", "1")
    # No task before both are there, however long the second one takes.
    builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    builder = builder.config("spark.scheduler.maxRegisteredResourcesWaitingTime", "5min")
    spark = builder.config("spark.cores.max", "2").getOrCreate()
    try:
        # Without more servers than one: the others are found by redirects.
        frame = spark.read.format("holdfast").options(servers=servers, log=log, minPartitions="4").load()
        of_process = udf(lambda: f"{os.environ['SPARK_EXECUTOR_DIRS']}", "string").asNondeterministic()
        seen = frame.select("partition", "offset", of_process().alias("executor")).collect()
        executors = len({row.executor for row in seen})
        places = sorted((row.partition, row.offset) for row in seen)
        into = frame.select("body", "key", "partition").write.format("holdfast").options(servers=servers, log=target)
        into.mode("append").save()
        again = spark.read.format("holdfast").options(servers=servers, log=target).load()
        written = sorted((row.partition, row.body.decode()) for row in again.select("partition", "body").collect())
        print(json.dumps({"executors": executors, "places": places, "written": written}))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
