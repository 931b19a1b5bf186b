"""Fixtures of pytest for applications: `holdfast_cluster` and `holdfast_log`.

pytest finds this module by its entry point in every run where Holdfast is installed. Rule: it imports nothing of
Holdfast until a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing import Cluster

NODES = "holdfast_nodes"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(NODES, "Nodes of the fixture holdfast_cluster, 1 to 7.", default="1")


@pytest.fixture(scope="session")
def holdfast_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running Holdfast cluster that all tests of this process share; `holdfast_nodes` in the configuration says how
    many nodes it has. Do not kill its nodes: tests that do make a `holdfast.testing.Cluster` of their own."""
    from holdfast.testing import Cluster

    nodes = request.config.getini(NODES)
    try:
        wanted = int(nodes)
    except ValueError:
        raise pytest.UsageError(f"{NODES} in pytest's configuration is a number from 1 to 7, not {nodes!r}") from None
    with Cluster(wanted, directory=tmp_path_factory.mktemp("holdfast")) as cluster:
        yield cluster


@pytest.fixture
def holdfast_log(holdfast_cluster: Cluster) -> Iterator[str]:
    """The name of a log of one partition that no other test uses; it is deleted after the test."""
    name = holdfast_cluster.create_log()
    yield name
    holdfast_cluster.delete_log(name)
