"""The Rust SDK of Event Hubs, unmodified."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.integration.clients.event_hubs import rust_programs
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.event_hubs.programs import Launch, SdkProgram
from tests.integration.clusters.cluster import Cluster

WITHIN_S = 300

MISSING = rust_programs.missing()
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(MISSING), reason=f"not there: {MISSING}")]


def test_a_tour_through_the_sdk(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 4)
    cluster.wait_led(log_name)
    address = cluster.address(1)
    done = subprocess.run(
        [rust_programs.program("sdk"), "tour", connection_string(address, log_name), f"amqp://{address}"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert list(map(json.loads, done.stdout.splitlines())) == [
        {"hub": log_name, "partitions": ["0", "1", "2", "3"]},
        {"partition": [0, 1, False]},
        {"read": "first", "sequence": 0, "offset": "0"},
        {"read": "second", "sequence": 1, "offset": "1"},
        {"behind": "second"},
        {"ousted": True},
    ]


def test_a_producer_and_a_processor_without_a_store(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 4)
    cluster.wait_led(log_name)
    address = cluster.address(1)
    words = (connection_string(address, log_name), f"amqp://{address}")
    launch = Launch([str(rust_programs.program("sdk"))])
    producer = SdkProgram(launch, "send", *words)
    processor = SdkProgram(launch, "process", *words, "in memory", "billing")
    producer.until(lambda: len(producer.acknowledged) > 40, "it sends")
    producer.finish()
    processor.until(lambda: producer.acknowledged.keys() <= processor.seen.keys(), "all is read")
    processor.finish()
