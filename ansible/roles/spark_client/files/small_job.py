"""A Spark job that needs a working Java, Spark and Python worker, and Holdfast's client; prints its counts."""

import json

import pyspark
from pyspark.sql import SparkSession

import holdfast.client  # noqa: F401  is it installed

ROWS = 1000

spark = SparkSession.builder.appName("small job").getOrCreate()
counted = spark.range(ROWS).count()
in_python = spark.sparkContext.parallelize(range(ROWS), 2).map(lambda number: number % 2).sum()
spark.stop()
assert (counted, in_python) == (ROWS, ROWS // 2), (
    f"Spark counted {counted} of {ROWS} rows, Python's workers {in_python}"
)
print(json.dumps({"spark": pyspark.__version__, "rows": counted}))
