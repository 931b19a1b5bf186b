"""Moves of replicas between nodes: when one is opened and erased here, and how a leader gets a move done.

Read `lifecycle` first, then `driver`.
"""
