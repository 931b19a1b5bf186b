"""Java's stock clients without transactions: what they send is read by others, and what others send by them."""

from __future__ import annotations

import pytest

from tests.integration.clients.stock.java_clients import MISSING, PROGRAMS, JavaClient
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
