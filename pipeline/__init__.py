"""Jobs on Spark over Holdfast's logs. Each runs as `holdfast pipeline NAME`, and under plain `spark-submit`."""
