"""Cluster of many nodes: Raft, the metadata that Raft keeps, discovery, and the network between nodes.

Read `raft` first, then `metadata`; `discovery` and `rpc` stand beside them. Nothing here knows of AMQP.
"""
