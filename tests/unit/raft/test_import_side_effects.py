"""Importing a library must not change the process for everybody else."""

from __future__ import annotations

import socket

import cluster.raft  # noqa: F401  the import is what is tested


def test_addresses_can_still_be_printed() -> None:
    assert socket.inet_ntop(socket.AF_INET, bytes([127, 0, 0, 1])) == "127.0.0.1"
