"""Idempotent publishing after the Event Hubs proposal.

Read `partition_queue` (what waits), then `partition_publisher` (what is under way); `producer_identity` holds the
numbers.
"""
