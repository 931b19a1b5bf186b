"""One partition on one node: a replicated state machine, the way in, and the ways out.

Read `api` (what others see), `machine` (what is decided), `replica` (how it meets disk and callers).
"""
