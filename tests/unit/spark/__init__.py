"""The data source for Spark, as far as it needs neither Java nor a cluster."""
