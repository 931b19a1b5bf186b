"""Registration of `format("holdfast")` with Spark, which looks for packages of this name."""

from holdfast.spark.source import HoldfastDataSource as DefaultSource

__all__ = ["DefaultSource"]
