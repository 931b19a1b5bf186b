"""Clients that can follow are sent to the leader; all others are served where they are."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection, LinkDetached

from tests.integration.clusters.cluster import Cluster
from tests.integration.workloads.plain import (
    REDIRECT,
    STREAMS,
    Bound,
    Received,
    connected,
    send,
    starting,
)

pytestmark = pytest.mark.cluster


def _redirect_of(connection: BlockingConnection, log: str, way: str) -> dict[str, Any]:
    """The map that came with the refusal of a link bound to partition 0."""
    attach = connection.create_sender if way == "produce" else connection.create_receiver
    with pytest.raises(LinkDetached) as refusal:
        attach(log, options=[Bound("0")])
    assert refusal.value.condition == "amqp:link:redirect"
    told = {str(key): value for key, value in refusal.value.link.remote_condition.info.items()}
    told["where"] = f"{told['network-host']}:{int(told['port'])}"
    return told


@pytest.mark.parametrize("way", ["produce", "consume"])
@pytest.mark.parametrize("capability", [REDIRECT, STREAMS])
def test_a_client_that_can_follow_is_told_a_usable_address(
    cluster: Cluster, log_name: str, way: str, capability: str
) -> None:
    cluster.create(log_name, 1)
    leader = cluster.leaders(log_name)["0"]
    send(cluster.address(leader), log_name, ["first"])
    for node in cluster.nodes:
        if node == leader:
            continue
        with connected(cluster.address(node), desired_capabilities=[symbol(capability)]) as connection:
            told = _redirect_of(connection, log_name, way)
            assert told["address"] == log_name
            assert told["hostname"]
            address = told["where"]
            assert address == cluster.address(leader)
            connection.create_sender(log_name, name="2").send(
                Message(body="by the way")
            )  # the connection is none the worse
        with connected(address, desired_capabilities=[symbol(capability)]) as connection:
            if way == "produce":
                connection.create_sender(log_name, options=[Bound("0")]).send(Message(body="followed"))
            else:
                receiver = connection.create_receiver(log_name, options=[Bound("0"), starting(offset="@earliest")])
                assert Received.of(receiver.receive()).body == "first"


def test_what_has_no_leader_is_never_redirected(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 3)
    for node in cluster.nodes:
        with connected(cluster.address(node), desired_capabilities=[symbol(REDIRECT)]) as connection:
            connection.create_sender(log_name).send(Message(body="agnostic"))
            connection.create_receiver(log_name, options=[starting(offset="@earliest")]).receive()
            connection.create_receiver(f"{log_name}/$info", credit=1).receive()
            connection.create_sender("$management")


def test_the_policy_of_the_listener_decides(cluster: Cluster, log_name: str) -> None:
    """`always` redirects whoever asks, to the same listener of the leader; `never` serves whoever asks."""
    cluster.create(log_name, 1)
    leader = cluster.leaders(log_name)["0"]
    other = cluster.other_than(leader)
    with connected(cluster.address(other, "always")) as connection:
        told = _redirect_of(connection, log_name, "produce")
        assert told["where"] == cluster.address(leader, "always")
    with connected(cluster.address(leader, "always")) as connection:
        connection.create_sender(log_name, options=[Bound("0")]).send(Message(body="at the leader"))
    with connected(cluster.address(other, "never"), desired_capabilities=[symbol(REDIRECT)]) as connection:
        connection.create_sender(log_name, options=[Bound("0")]).send(Message(body="through the gateway"))
        receiver = connection.create_receiver(log_name, credit=2, options=[Bound("0"), starting(offset="@earliest")])
        assert [receiver.receive().body, receiver.receive().body] == ["at the leader", "through the gateway"]
