"""A Spark for the whole test process, and logs with events in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.spark.session import RunningSpark, why_not


@pytest.fixture(scope="session")
def _spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSpark]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    running = RunningSpark(tmp_path_factory.mktemp("spark"))
    yield running
    running.close()


@pytest.fixture
def spark(_spark: RunningSpark) -> Iterator[Any]:
    yield _spark.session
    for query in _spark.session.streams.active:
        query.stop()


@pytest.fixture
def read(spark: Any, cluster: Cluster) -> Callable[..., Any]:
    """`read(log, filter="...")`: a DataFrame of the shared cluster's log."""

    def load(log: str, **options: Any) -> Any:
        return reader(spark.read, cluster, log, **options).load()

    return load


def reader(kind: Any, cluster: Cluster, log: str, /, **options: Any) -> Any:
    """With the options of a log of this cluster."""
    servers = ",".join(cluster.address(node) for node in cluster.running)
    return kind.format("holdfast").options(**{"servers": servers, "log": log} | options)
