"""Java's stock clients without transactions: what they send is read by others, and what others send by them."""

from __future__ import annotations

import subprocess

import pytest

from holdfast.amqp.key_partitioner import partition_index
from tests.integration.clients.stock.java_clients import ANSWER_WITHIN_S, MISSING, PROGRAMS, JavaClient, build
from tests.integration.clusters.cluster import Cluster
from tests.integration.workloads.plain import read

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_java_client_sends_and_receives(cluster: Cluster, log_name: str, program: str) -> None:
    cluster.create(log_name, 2)
    with (
        JavaClient(program, cluster.address(1), f"{log_name}-reader", transacted=False) as reader,
        JavaClient(program, cluster.address(2), f"{log_name}-writer", transacted=False) as writer,
    ):
        reader.do("subscribe", "all", log_name)
        writer.do("send", log_name, "-", *(f"m{number}" for number in range(20)))
        expected = sorted(f"m{number}" for number in range(20))
        assert sorted(reader.do("receive", "all", 20)) == expected
    assert len(read(cluster.address(3), log_name, 20)) == 20


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_java_client_hears_that_a_message_is_too_large(cluster: Cluster, log_name: str, program: str) -> None:
    """As the outcome of that message: a client that waits for it would send again what is released."""
    cluster.create(log_name, 1)
    with JavaClient(program, cluster.address(1), f"{log_name}-writer", transacted=False) as writer:
        writer.do("send", log_name, "-", "fits")
        refused = writer.take("send-long", log_name, "-", 5 << 20)
        told = {"jms": "JMSException: a message is larger than 4194304 bytes", "protonj2": "ClientRejected"}[program]
        assert told in refused["error"]
    assert [event.body for event in read(cluster.address(2), log_name, 1)] == ["fits"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_java_client_reads_history_by_its_address(cluster: Cluster, log_name: str, program: str) -> None:
    cluster.create(log_name, 2)
    with JavaClient(program, cluster.address(1), f"{log_name}-client", transacted=False) as client:
        client.do("send", f"{log_name}?partition=1", "-", *(f"m{number}" for number in range(5)))
        client.do("subscribe", "all", f"{log_name}?partition=1&start=earliest")
        assert client.do("receive", "all", 5) == [f"m{number}" for number in range(5)]


def test_jms_does_on_a_log_what_it_can_say_of_destinations(cluster: Cluster, log_name: str) -> None:
    """Keys, browsers, selectors, durable subscribers and their end, a relay, and requests with answers."""
    partitions = 3
    cluster.create(log_name, partitions)
    cluster.create(f"{log_name}-answers", 1)
    host, _, port = cluster.address(1).rpartition(":")
    words = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", build(), "holdfast.clients.Destinations", host, port]
    done = subprocess.run([*words, log_name], capture_output=True, text=True, timeout=ANSWER_WITHIN_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    said = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert said["browsed"].split(",") == ["by address", "by group", "by relay"]
    assert said["selected"] == "by group"
    assert said["went on"] == "m2"
    assert said["began anew"] == "m3"
    assert "InvalidDestinationException" in said["unsubscribed twice"]
    assert "not-found" in said["unrouted"] or "nowhere" in said["unrouted"]
    assert "create a log for answers" in said["temporary"]
    assert said["answered"] == "answer to r1"
    assert said["closed"] == "in peace"
    keyed = [event.body for event in read(cluster.address(2), log_name, 7) if event.partition == of_ann(partitions)]
    assert [body for body in keyed if body.startswith("by ")] == ["by address", "by group", "by relay"]


def of_ann(partitions: int) -> str:
    return str(partition_index("ann", partitions))
