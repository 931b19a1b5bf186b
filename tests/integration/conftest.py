"""Fixtures: a cluster that tests share because they do not hurt it, and clusters of their own for those that do.

The shared one lives until the test process goes on with tests of another folder: idle nodes take time from all others.
After every test it is looked at: a node that ended, or that logged a bug of its own, fails the test that was running,
and the cluster is replaced before the next one. Logs that the test has made are deleted.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster, ClusterSettings
from tests.integration.workloads import beside

_serving: list[Cluster] = []  # whose logs belong to the report of the test that runs now
_numbers = itertools.count(1)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for cluster in _serving:
            for node in cluster.nodes:
                report.sections.append((f"log of node {node} of {cluster.name}", cluster.log_tail(node)))


class _Shared:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cluster: Cluster | None = None

    def get(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._directory / f"shared{next(_numbers)}")
            self._cluster.start()
        return self._cluster

    def drop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


@pytest.fixture(scope="package")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Shared]:
    shared = _Shared(tmp_path_factory.mktemp("shared"))
    yield shared
    shared.drop()


@pytest.fixture
def cluster(_shared: _Shared) -> Iterator[Cluster]:
    """Three nodes that other tests use as well: logs are to be named by `log_name`, and nobody is killed."""
    found = _shared.get()
    _serving.append(found)
    yield found
    complaints = found.complaints()
    if complaints:
        _shared.drop()
        pytest.fail("\n".join(complaints))
    found.discard_logs()
    _serving.clear()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that are the test's own, not started; keyword arguments are those of `ClusterSettings`."""
    made: list[Cluster] = []

    def make(**settings: Any) -> Cluster:
        made.append(Cluster(tmp_path / f"c{next(_numbers)}", ClusterSettings(**settings)))
        _serving.append(made[-1])
        return made[-1]

    yield make
    complaints = [text for cluster in made for text in cluster.complaints(getattr(cluster, "allowed", ()))]
    for cluster in made:
        cluster.close()
    if complaints:
        pytest.fail("\n".join(complaints))


@pytest.fixture
def own_cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Three running nodes that the test may do anything to."""
    cluster = make_cluster()
    cluster.start()
    return cluster


@pytest.fixture(autouse=True)
def _leave_nothing() -> Iterator[None]:
    _serving.clear()
    yield
    beside.end_all()


@pytest.fixture
def log_name() -> str:
    """A name that no other test uses."""
    return f"log-{uuid.uuid4().hex[:12]}"


def number_from(variable: str, default: int) -> int:
    """A size that `make soak` makes large."""
    return int(os.environ.get(variable, default))
