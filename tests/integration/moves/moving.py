"""Words in which the tests of moves ask a cluster for something, and wait until it is so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.client.errors import HoldfastError
from tests.integration.clusters.cluster import Cluster, wait_until


def reassign(cluster: Cluster, log: str, partition: str, to: Sequence[int]) -> None:
    """Ask until it is answered: a leader of the metadata may be gone at the moment."""

    def asked() -> bool:
        try:
            cluster.call(lambda admin: admin.reassign_partition(log, partition, to))
        except HoldfastError as error:
            if error.retriable or getattr(error, "code", "") == "unknown":
                return False
            raise
        return True

    wait_until(asked, f"{log}/{partition} is to go to {to}")


def moves(cluster: Cluster) -> dict[str, Any] | None:
    """Moves as a node lists them; None: none can now."""
    try:
        return cluster.call(lambda admin: admin.list_moves())
    except HoldfastError:
        return None


def wait_settled(cluster: Cluster) -> None:
    """Nothing moves any more, and everything is in order."""
    told: dict[str, Any] | None = None

    def settled() -> bool:
        nonlocal told
        told = moves(cluster)
        return told is not None and not told["moves"] and not told["unsettled"]

    try:
        wait_until(settled, "moves to end")
    except AssertionError as error:
        raise AssertionError(f"{error}: {told}") from error


def replicas(cluster: Cluster, log: str) -> dict[str, list[int]]:
    return {one["partition"]: one["replicas"] for one in cluster.describe(log)["partitions"]}
