"""Program of W5: a query of Spark that writes one event to a log for each event of another.

    python -m chaos.workloads.spark_job '{"read_from": "host:port,...", "write_to": ..., "source": ..., "target": ...,
                                          "partitions": 2, "told": 100, "name": ..., "directory": ..., "most": 200}'

It runs until the directory has a file `finish`; then it processes everything that is left, and ends. Its checkpoint is
there, too. `told`: the number of the target's first partition in histories.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from chaos.history.values import body_of, read_value
from chaos.workloads.spark_batches import CHECKPOINT, FINISH, made_of, place_of

LOOKS_EVERY_S = 0.2
TASKS = 4
SETTINGS = {
    "spark.driver.memory": "512m", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.pollingDelay": "100ms", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}  # fmt: skip
"""Settings for batches of some hundred rows, for which compiling Java code does not pay."""


def maker(name: str, partitions: int, told: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Make the function that tasks apply to their events."""

    def make(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            values = [made_of(name, read_value(body).msg_id) for body in batch.column("body").to_pylist()]
            places = [place_of(value, partitions) for value in values]
            bodies = [body_of(value, told + place) for value, place in zip(values, places, strict=True)]
            yield pa.record_batch({"body": pa.array(bodies, pa.binary()), "partition": pa.array(places, pa.int32())})

    return make


def main(job: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from holdfast.spark.source import HoldfastDataSource

    directory = Path(job["directory"])
    builder = SparkSession.builder.master("local[2]").appName("chaos")
    for name, value in {**SETTINGS, "spark.local.dir": str(directory / "local")}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(HoldfastDataSource)
    events = spark.readStream.format("holdfast").options(
        servers=job["read_from"], log=job["source"], startingOffsets="earliest", maxEventsPerTrigger=job["most"],
        minPartitions=TASKS,
    ).load()  # fmt: skip
    make = maker(job["name"], job["partitions"], job["told"])
    writer = events.select("body").mapInArrow(make, "body binary, partition int").writeStream.format("holdfast")
    writer = writer.options(servers=job["write_to"], log=job["target"], checkpointLocation=str(directory / CHECKPOINT))
    query = writer.start()
    while not (directory / FINISH).exists():
        query.awaitTermination(LOOKS_EVERY_S)  # raises the error that ended the query
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
