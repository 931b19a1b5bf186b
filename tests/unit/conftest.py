"""Tests of whole clusters are told apart by their marker: `make check` leaves them to `make test`."""

from __future__ import annotations

import pytest

from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.cluster import ListenerCluster

CLUSTERS = (Nodes, ListenerCluster)


@pytest.hookimpl(tryfirst=True)  # before the plugin that selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of files that know a cluster of real nodes in their own process."""
    for item in items:
        known = vars(item.module).values() if isinstance(item, pytest.Function) else ()
        if any(value is cluster for value in known for cluster in CLUSTERS):
            item.add_marker("cluster")
