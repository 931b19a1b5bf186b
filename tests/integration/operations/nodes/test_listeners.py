"""What a listener is configured with is what its clients meet: limits, sizes, addresses."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from proton import Message, symbol
from proton.utils import ConnectionClosed, LinkDetached

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.workloads.plain import (
    REDIRECT,
    Bound,
    Heartbeat,
    Received,
    connected,
    read,
    send,
    starting,
)
from tests.integration.workloads.raw import (
    AMQP_HEADER,
    OPEN,
    Raw,
    frame,
    raw,
)
from tests.ports import free_ports

pytestmark = pytest.mark.cluster

MIB = 1 << 20


def test_a_silent_peer_is_let_go_and_a_quiet_one_is_not(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    """The node tells how long it waits; stock proton then sends heartbeats by itself."""
    cluster = make_cluster(nodes=1, listener={"idle_timeout_s": 2.0})
    cluster.start()
    cluster.create(log_name, 1)
    with connected(cluster.address(1)) as connection:
        receiver = connection.create_receiver(log_name, options=[starting(offset="@earliest")])
        with raw(cluster.address(1)) as silent:
            silent.opened()
            started_s = time.monotonic()
            answer = silent.read_to_end()
            assert b"amqp:resource-limit-exceeded" in answer
            assert time.monotonic() - started_s > 1.0
            connection.wait(lambda: time.monotonic() > started_s + 5.0, timeout=20)
        send(cluster.address(1), log_name, ["still there"])
        assert Received.of(receiver.receive()).body == "still there"


def test_one_connection_too_many_is_told_so(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster = make_cluster(nodes=1, listener={"max_connections": 12})
    cluster.start()
    log = cluster.create(log_name, 1)
    with Heartbeat(cluster.address(1), cluster.address(1), log) as others:  # two of them
        crowd = [Raw(cluster.address(1)).opened() for _ in range(10)]
        for _ in range(3):
            with pytest.raises(ConnectionClosed) as refusal, connected(cluster.address(1)) as connection:
                connection.create_sender(log)
            assert refusal.value.condition == "amqp:resource-limit-exceeded"
            assert "12 connections" in str(refusal.value)
        others.wait_beats(5)
        for peer in crowd:
            peer.close()
    send(cluster.address(1), log, ["room again"])


@pytest.mark.parametrize("limit", [64 * 1024, 16 * MIB], ids=["64 KiB", "16 MiB"])
def test_messages_up_to_the_limit_pass_every_way(
    make_cluster: Callable[..., Cluster], log_name: str, limit: int
) -> None:
    """At the leader, through a gateway, and back; one byte more is refused."""
    cluster = make_cluster(listener={"max_message_size": limit})
    cluster.start()
    cluster.create(log_name, 1)
    body = bytes(limit - 100)  # the message's own sections take a few bytes
    leader = cluster.leaders(log_name)["0"]
    gateway = cluster.other_than(leader)
    for node in (leader, gateway):
        with connected(cluster.address(node)) as connection:
            sender = connection.create_sender(log_name, options=[Bound("0")])
            assert sender.link.remote_max_message_size == limit
            for _ in range(3):
                sender.send(Message(body=body))
            with pytest.raises(LinkDetached) as refusal:
                sender.send(Message(body=bytes(limit + 1)))
            assert refusal.value.condition == "amqp:link:message-size-exceeded"
    for node in (leader, gateway):
        events = read(cluster.address(node), log_name, 6, "0")
        assert all(event.body == body for event in events)
    assert int(cluster.info(log_name)["0"].details["events"]) == 6


def test_redirects_go_through_the_address_map(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    """The clients of one listener live in another network: they get the addresses that work there."""
    cluster = make_cluster()
    for node in cluster.nodes.values():
        text = node.config_path.read_text()
        mapped = '\n[listener.address_map]\n1 = "one.example:1001"\n2 = "[2001:db8::2]:1002"\n3 = "10.0.0.3:1003"\n'
        node.config_path.write_text(text.replace('redirect = "always"', 'redirect = "always"' + mapped))
    cluster.start()
    cluster.create(log_name, 3)
    expected = {1: ("one.example", 1001), 2: ("2001:db8::2", 1002), 3: ("10.0.0.3", 1003)}
    for partition, leader in cluster.leaders(log_name).items():
        node = cluster.other_than(leader)
        for listener, wanted in (("always", expected[leader]), ("default", None)):
            capable = {"desired_capabilities": [symbol(REDIRECT)]}
            with connected(cluster.address(node, listener), **capable) as connection:
                with pytest.raises(LinkDetached) as refusal:
                    connection.create_sender(log_name, options=[Bound(partition)])
                told = {str(key): value for key, value in refusal.value.link.remote_condition.info.items()}
            host, _, port = cluster.address(leader).rpartition(":")
            assert (told["network-host"], int(told["port"])) == (wanted or (host, int(port)))


def test_a_node_that_moved_is_found_at_its_new_address(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, 3)
    node = cluster.nodes[2]
    cluster.stop(2)
    old, new = node.amqp["default"], f"127.0.0.1:{free_ports(1)[0]}"
    node.config_path.write_text(node.config_path.read_text().replace(old, new))
    node.amqp["default"] = new
    cluster.start(2)
    cluster.kill(1)
    cluster.wait_led(log_name)
    partition = next((p for p, leader in cluster.leaders(log_name).items() if leader == 2), None)
    while partition is None:  # node 3 leads all of them: let node 2 have its turn
        cluster.start(1)
        cluster.stop(3)
        cluster.wait_led(log_name)
        partition = next((p for p, leader in cluster.leaders(log_name).items() if leader == 2), None)
        cluster.start(3)
    told = wait_until(lambda: redirected_to(cluster, 2, log_name), "a redirect to node 2")
    assert re.search(rf"uint\({new.rpartition(':')[2]}\)", told)


def redirected_to(cluster: Cluster, node: int, log: str) -> str | None:
    """What another node says when it sends a link to this one. None: the node did not lead anything at that moment, or
    led it no more when the link came: leaders move back to where they are preferred."""
    partition = next((p for p, leader in cluster.leaders(log).items() if leader == node), None)
    if partition is None:
        return None
    with connected(cluster.address(cluster.other_than(node)), desired_capabilities=[symbol(REDIRECT)]) as connection:
        try:
            connection.create_sender(log, options=[Bound(partition)])
        except LinkDetached as refusal:
            text = str(refusal)
            return text if f"node {node} leads" in text else None
    return None


def test_stopping_says_goodbye(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=1)
    cluster.start()
    peer = Raw(cluster.address(1)).send(AMQP_HEADER + frame(OPEN, ["raw"]))
    assert peer.read_until(b"\x00\x53\x10")
    cluster.stop(1)
    assert b"amqp:connection:forced" in peer.read_to_end()
    peer.close()
