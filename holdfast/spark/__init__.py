"""Holdfast's logs as data of Spark: `spark.read.format("holdfast")`, and `readStream`. Read `source`, then `offsets`.

`source` is what Spark finds. On the driver `batch_reader` and `stream_reader` plan by the pure rules of `offsets`; in
the executors `range_task` reads one range over a connection of its process (`connections`) into Arrow's record batches
(`record_batches`).
"""
