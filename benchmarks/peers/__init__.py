"""Peers of the benchmark: each module starts one kind of cluster on loopback, and ends it again.

A peer has one temporary directory, listens on 127.0.0.1 only, and is stopped by the process ids that it recorded. It
leaves nothing: no process, no file, no enabled service.
"""
