"""Deliberate faults of the cluster's metadata and of discovery."""

from __future__ import annotations

import itertools
import time
from typing import Any

from cluster.discovery import RememberedCluster, ZooKeeperDiscovery
from cluster.metadata import CommandProposer

HANGS_S = 3.0


def metadata_are_read_anyhow() -> None:
    """Answer with the metadata that the node has, even if they are old."""

    async def at_once(self: CommandProposer, timeout_s: float = 0.0) -> None:
        del self, timeout_s

    CommandProposer.current = at_once  # type: ignore[method-assign]


def zookeeper_is_waited_for() -> None:
    """Wait for ZooKeeper in the event loop that serves clients."""
    renew = ZooKeeperDiscovery._renew_if_long

    def wait(self: ZooKeeperDiscovery, loop: Any) -> None:
        if self._joined is not None and self._joined.done():  # while it starts it has no clients
            time.sleep(HANGS_S)
        renew(self, loop)

    ZooKeeperDiscovery._renew_if_long = wait  # type: ignore[method-assign]


def a_data_directory_does_not_know_itself() -> None:
    """Give a data directory a new identity at each start."""
    numbers = itertools.count(time.monotonic_ns())
    read = RememberedCluster._read

    def forgetful(self: RememberedCluster) -> dict[str, Any]:
        return {**read(self), "token": f"{next(numbers):032x}"}

    RememberedCluster._read = forgetful  # type: ignore[method-assign]
