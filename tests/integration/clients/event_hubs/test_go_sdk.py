"""The Go SDK of Event Hubs, unmodified."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clusters.cluster import Cluster

HERE = Path(__file__).parent / "go"
WITHIN_S = 300

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed"),
]


def test_a_tour_through_the_sdk(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 4)
    cluster.wait_led(log_name)
    done = subprocess.run(
        ["go", "run", ".", connection_string(cluster.address(1), log_name)],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"hub {log_name} [0 1 2 3]",
        "partition 0 1 1",
        "event first 0 0",
        "event second 1 1",
        "behind the first second",
        "ousted true",
    ]
