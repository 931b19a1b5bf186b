"""Links that read for a consumer group or a durable source. Read `group_link` first.

The owner of a partition is decided in `node/partition/consumer_groups`, never here.
"""
