"""The transactions of Java's stock clients: a transacted session of Qpid JMS, and of the protonj2 client, each over
partitions that different nodes lead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.clients.stock.java_clients import MISSING, PROGRAMS, JavaClient
from tests.integration.clusters.cluster import Cluster
from tests.integration.workloads.plain import Bound, connected, read, send, starting

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

PARTITIONS = ("0", "1", "2", "3")
END = "the end"


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param


def committed(cluster: Cluster, log: str) -> dict[str, list[str]]:
    """What a committed reader finds in each partition, before an event that is sent now."""
    found: dict[str, list[str]] = {}
    for node, partition in zip((1, 2, 3, 1), cluster.info(log), strict=False):
        send(cluster.address(node), log, [END], partition)
        found[partition] = []
        with connected(cluster.address(node)) as connection:
            earliest = starting(offset="@earliest")
            receiver = connection.create_receiver(log, credit=100, options=[Bound(partition), earliest])
            while (body := receiver.receive(timeout=120).body) != END:
                found[partition].append(body)
                receiver.accept()
    return found


def send_everywhere(client: JavaClient, program: str, log: str, name: str) -> list[str]:
    """Some messages to each partition, as far as the client can name one."""
    bodies = [f"{name}-{number}" for number in range(40)]
    if program == "jms":
        client.do("send", log, "-", *bodies)
    else:
        for partition in PARTITIONS:
            client.do("send", log, partition, *bodies[int(partition) * 10 : int(partition) * 10 + 10])
    return bodies


def test_commits_and_rollbacks_reach_across_the_nodes(cluster: Cluster, log_name: str, program: str) -> None:
    cluster.create(log_name, len(PARTITIONS))
    assert len(set(cluster.leaders(log_name).values())) == len(cluster.nodes)
    with JavaClient(program, cluster.address(1), f"{log_name}-c", transacted=True) as client:
        first = send_everywhere(client, program, log_name, "first")
        client.do("commit")
        send_everywhere(client, program, log_name, "second")
        client.do("rollback")
        third = send_everywhere(client, program, log_name, "third")
        client.do("commit")
        send_everywhere(client, program, log_name, "fourth")  # and closes, with the transaction open
    found = committed(cluster, log_name)
    assert all(found[partition] for partition in PARTITIONS)
    assert sorted(body for bodies in found.values() for body in bodies) == sorted(first + third)
    for bodies in found.values():
        turns = [body.split("-")[0] for body in bodies]
        assert turns == sorted(turns)  # "first" before "third"


def test_what_was_rolled_back_is_received_again(cluster: Cluster, log_name: str, program: str) -> None:
    cluster.create(log_name, 1)
    name = f"{log_name}-c"
    bodies = [f"m{number}" for number in range(12)]
    with JavaClient(program, cluster.address(1), name, transacted=True) as client:
        client.do("subscribe", "all", log_name)
        send(cluster.address(2), log_name, bodies)
        assert client.do("receive", "all", 5) == bodies[:5]
        client.do("rollback")
        assert client.do("receive", "all", 5) == bodies[:5]
        client.do("rollback")
        assert client.do("receive", "all", 7) == bodies[:7]
        client.do("commit")
        assert client.do("receive", "all", 3) == bodies[7:10]
        # and closes, with the transaction open
    with JavaClient(program, cluster.address(3), name, transacted=True) as client:
        client.do("subscribe", "all", log_name)
        assert client.do("receive", "all", 5) == bodies[7:]
        client.do("commit")


def test_what_is_taken_and_what_is_sent_count_together(cluster: Cluster, log_name: str, program: str) -> None:
    taken, made = cluster.create(log_name, 1), cluster.create(f"{log_name}-made", len(PARTITIONS))
    bodies = [f"m{number}" for number in range(8)]
    with JavaClient(program, cluster.address(2), f"{log_name}-c", transacted=True) as client:
        client.do("subscribe", "all", taken)
        send(cluster.address(1), taken, bodies)
        for turn, end in enumerate(("rollback", "commit", "rollback", "commit")):
            received = client.do("receive", "all", 4)
            assert received == (bodies[:4] if turn < 2 else bodies[4:])
            client.do("send", made, "-", *(f"{body}/{turn}" for body in received))
            client.do(end)
    found = sorted(body for part in committed(cluster, made).values() for body in part)
    assert found == sorted([f"{body}/1" for body in bodies[:4]] + [f"{body}/3" for body in bodies[4:]])


def test_the_transaction_of_a_client_that_dies_is_rolled_back(cluster: Cluster, log_name: str, program: str) -> None:
    cluster.create(log_name, len(PARTITIONS))
    queue = cluster.create(f"{log_name}-queue", 1)
    name = f"{log_name}-c"
    with JavaClient(program, cluster.address(1), name, transacted=True) as client:
        client.do("subscribe", "all", queue)
        send(cluster.address(2), queue, ["a", "b", "c"])
        assert client.do("receive", "all", 1) == ["a"]
        first = send_everywhere(client, program, log_name, "first")
        client.do("commit")
        assert client.do("receive", "all", 1) == ["b"]
        send_everywhere(client, program, log_name, "second")
        client.kill()
    with JavaClient(program, cluster.address(2), name, transacted=True) as client:
        client.do("subscribe", "all", queue)
        assert client.do("receive", "all", 2) == ["b", "c"]
        client.do("commit")
    assert sorted(body for bodies in committed(cluster, log_name).values() for body in bodies) == sorted(first)
    assert len(read(cluster.address(3), queue, 3)) == 3  # a log forgets nothing of what was taken


def test_a_message_that_cannot_be_kept_takes_its_transaction_with_it(
    cluster: Cluster, log_name: str, program: str
) -> None:
    cluster.create(log_name, len(PARTITIONS))
    with JavaClient(program, cluster.address(3), f"{log_name}-c", transacted=True) as client:
        send_everywhere(client, program, log_name, "first")
        client.take("send-long", log_name, "-", 5_000_000)  # JMS does not wait for the answer
        assert "error" in client.take("commit")
    assert not any(committed(cluster, log_name).values())
