"""The suite against a real cluster: the fixtures of the integration tests."""

from __future__ import annotations

from tests.integration.conftest import (  # noqa: F401 - fixtures and a hook are found by their names here
    _leave_nothing,
    _shared,
    cluster,
    make_cluster,
    own_cluster,
    pytest_runtest_makereport,
)
