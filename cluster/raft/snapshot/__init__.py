"""Snapshots for replicas that are behind their leader's log: sender, receiver, and staging on disk.

Read `catch_up` first, then `sender` and `receiver`.
"""
