"""What tests of a node that is cut off begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.clusters.cuts import PeerWays
from tests.integration.clusters.proxied import proxy_server


@pytest.fixture
def ways(make_cluster: Callable[..., Cluster], tmp_path: Path) -> Iterator[tuple[Cluster, PeerWays]]:
    """Three running nodes whose ways to each other can be cut."""
    with proxy_server(tmp_path) as server:
        cluster = make_cluster()
        between = PeerWays(server, cluster)
        cluster.start()
        yield cluster, between
