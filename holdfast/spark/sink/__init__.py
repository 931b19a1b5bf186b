"""Writing: `df.write.format("holdfast")`, and `writeStream`. Read `writers`, then `part_task`, then `columns`."""
