"""What makes `format("holdfast")` known to Spark without a registration: it looks for packages of this name."""

from holdfast.spark.source import HoldfastDataSource as DefaultSource

__all__ = ["DefaultSource"]
