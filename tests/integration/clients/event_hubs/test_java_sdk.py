"""The Java SDK of Event Hubs, unmodified."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.stock.java_clients import MISSING, build
from tests.integration.clusters.cluster import Cluster

WITHIN_S = 300

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed"),
]


def test_a_tour_through_the_sdk(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 4)
    cluster.wait_led(log_name)
    path = build(Path(__file__).parent / "java")
    text = connection_string(cluster.address(1), log_name)
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", path, "holdfast.clients.Tour", text],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"hub {log_name} 0 1 2 3",
        f"most {1024 * 1024}",
        "partition 0 1 false",
        "refused true",
        "event first 0 1",
        "event second 1 1",
        "behind the first second",
        "ousted true",
    ]
