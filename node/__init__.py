"""One node of the cluster.

Read `server` (what it is composed of) and `raft_loop` (its turn) first; then `partition` and `listener`.
"""
