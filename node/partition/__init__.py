"""One partition on one node: a replicated state machine, the way in, and the ways out.

Read `api` (what others see), `state_machine` (what is decided), `partition_replica` (how it meets disk and callers).
"""
