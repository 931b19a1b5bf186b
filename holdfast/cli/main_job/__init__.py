"""The main job: a day of trades goes through a cluster while a leader dies. Read `job`; `trades` is its data."""
