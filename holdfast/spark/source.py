"""Data source that Spark finds under the name `holdfast`.

Rule never broken: a fault that shows without the cluster is reported when the source is loaded, and one that the
cluster reports, while the driver plans: no task is started for a query that cannot work.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.errors import in_one_sentence
from holdfast.spark.options import columns_of, parse
from holdfast.spark.schema import check_schema, schema_of
from holdfast.spark.sink.options import parse as parse_sink
from holdfast.spark.sink.writers import BatchWriter, StreamWriter, plan_batch, plan_stream
from holdfast.spark.stream_reader import StreamReader


class HoldfastDataSource(DataSource):
    """`spark.read.format("holdfast").option("servers", "127.0.0.1:5672").option("log", "trades").load()`"""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    @in_one_sentence
    def schema(self) -> StructType:
        return schema_of(columns_of(self.options))

    @in_one_sentence
    def reader(self, schema: StructType) -> BatchReader:
        options = parse(self.options, streaming=False)
        check_schema(schema, options.columns)
        return BatchReader(options)

    @in_one_sentence
    def streamReader(self, schema: StructType) -> StreamReader:
        options = parse(self.options, streaming=True)
        check_schema(schema, options.columns)
        return StreamReader(options)

    @in_one_sentence
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return plan_batch(parse_sink(self.options, streaming=False), schema, overwrite)

    @in_one_sentence
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return plan_stream(parse_sink(self.options, streaming=True), schema, overwrite)
