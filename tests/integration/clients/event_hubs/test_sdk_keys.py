"""The Python SDK against a closed cluster: rules, tokens, and every way in which they do not open it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.transport.security.credentials import Security
from tests.authority import Authority
from tests.integration.clients.event_hubs import sdk
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.event_hubs.sdk import Reading, consumer, producer, read, send
from tests.integration.clusters.cluster import Cluster, ClusterSettings

pytestmark = pytest.mark.cluster

EventData = sdk.eventhub.EventData
exceptions = pytest.importorskip("azure.eventhub.exceptions")

ROOT = "very secret"


class Closed:
    """A node with two hubs, and rules for them: `all`, `sender` and `reader` of `orders`, and `other` of `others`."""

    def __init__(self, directory: Path) -> None:
        secrets = directory / "secrets.key"
        secrets.write_text(base64.b64encode(os.urandom(32)).decode())
        self.password = directory / "password"
        self.password.write_text(ROOT)
        more = f'[security]\nsecrets_file = "{secrets}"\nplain_without_tls = true'
        self.cluster = Cluster(directory / "cluster", ClusterSettings(nodes=1, more=more))
        self.cluster.start()
        for hub in ("orders", "others"):
            self.cluster.create(hub, 2)
            self.cluster.wait_led(hub)
        self.cluster.call(lambda admin: admin.add_user("root", ROOT, roles=["admin"]))
        self.cluster.settings.security = Security(user="root", password=ROOT, mechanism="PLAIN")
        for name, claims, scope in (
            ("all", ["manage"], ""), ("sender", ["send"], "orders"), ("reader", ["listen"], "orders"),
            ("other", ["manage"], "others"),
        ):  # fmt: skip
            self.cluster.call(lambda admin, n=name, c=claims, s=scope: admin.add_rule(n, c, scope=s))

    @property
    def address(self) -> str:
        return self.cluster.address(1)

    def keys(self, rule: str) -> dict[str, Any]:
        return self.cluster.call(lambda admin: admin.rule_keys(rule))

    def text(self, rule: str, hub: str = "orders", key: str = "") -> str:
        return connection_string(self.address, hub, rule, key or self.keys(rule)["primary"])

    def holdfast(self, *args: str) -> str:
        login = ["--server", self.address, "--user", "root", "--password-file", str(self.password)]
        command = [sys.executable, "-m", "holdfast.cli", *args, *login]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    made = Closed(tmp_path_factory.mktemp("closed"))
    yield made
    complaints = made.cluster.complaints()
    made.cluster.close()
    assert not complaints


def refused_producer(text: str) -> Exception:
    with producer(text, retry_total=0) as sender, pytest.raises(exceptions.EventHubError) as refused:
        sender.send_event(EventData("x"))
    return refused.value


def refused_reader(text: str) -> Exception:
    reading = Reading(consumer(text, retry_total=0), partition_id="0", starting_position="-1")
    reading.until(lambda now: now.errors).stop()
    assert reading.events == []
    return reading.errors[0]


def test_a_rule_opens_what_it_claims(closed: Closed) -> None:
    send(closed.text("sender"), "0", ["sent by the sender"])
    assert "sent by the sender" in [one.body_as_str() for one in read(closed.text("reader"), 1, partition_id="0")]
    with producer(closed.text("reader")) as looking:
        assert looking.get_partition_ids() == ["0", "1"]
    assert "'Send' claim(s) are required" in str(refused_producer(closed.text("reader")))
    assert "'Listen' claim(s) are required" in str(refused_reader(closed.text("sender")))


def test_a_wrong_signature_is_an_authentication_error(closed: Closed) -> None:
    wrong = closed.text("all", key="bm90IHRoZSBrZXk=")
    for error in (refused_producer(wrong), refused_reader(wrong)):
        assert isinstance(error, exceptions.AuthenticationError)
        assert "InvalidSignature" in str(error)
    with producer(wrong, retry_total=0) as looking, pytest.raises(exceptions.AuthenticationError):
        looking.get_eventhub_properties()


def test_a_token_that_has_ended_is_an_authentication_error(closed: Closed) -> None:
    base = pytest.importorskip("azure.eventhub._client_base")
    resource = f"sb://{closed.address}/orders"
    old = base.generate_sas_token(resource, "all", closed.keys("all")["primary"], 1_700_000_000)
    text = f"Endpoint=sb://{closed.address};SharedAccessSignature={old};UseDevelopmentEmulator=true;EntityPath=orders"
    error = refused_producer(text)
    assert isinstance(error, exceptions.AuthenticationError)
    assert "ExpiredToken" in str(error) or "expired" in str(error).lower()


def test_a_token_for_another_hub_is_an_authentication_error(closed: Closed) -> None:
    base = pytest.importorskip("azure.eventhub._client_base")
    key = closed.keys("all")["primary"]
    other = base.generate_sas_token(f"sb://{closed.address}/others", "all", key, 4_000_000_000)
    text = f"Endpoint=sb://{closed.address};SharedAccessSignature={other};UseDevelopmentEmulator=true;EntityPath=orders"
    error = refused_producer(text)
    assert isinstance(error, exceptions.AuthenticationError)
    assert "InvalidAudience" in str(error)


def test_a_rule_of_another_hub_opens_nothing_here(closed: Closed) -> None:
    assert isinstance(refused_producer(closed.text("other")), exceptions.AuthenticationError)
    with producer(closed.text("other"), retry_total=0) as looking, pytest.raises(exceptions.AuthenticationError):
        looking.get_eventhub_properties()


def send_on(sender: Any) -> None:
    while True:
        sender.send_event(EventData("too late"), partition_id="0")


def test_without_a_token_nothing_is_open(closed: Closed) -> None:
    from proton import ConnectionException, Message
    from proton.utils import BlockingConnection, LinkDetached

    for mechanism in ("ANONYMOUS", "MSSBCBS"):
        try:
            connection = BlockingConnection(f"amqp://{closed.address}", allowed_mechs=mechanism)
        except ConnectionException:  # proton has no MSSBCBS of its own
            assert mechanism == "MSSBCBS"
            continue
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            connection.create_sender("orders").send(Message(b"x"))
        connection.close()


def test_a_rule_and_its_key_log_in_by_plain(closed: Closed) -> None:
    from proton import Message
    from proton.utils import BlockingConnection, LinkDetached

    key = closed.keys("sender")["secondary"]
    connection = BlockingConnection(
        f"amqp://{closed.address}", user="sender", password=key, allowed_mechs="PLAIN", sasl_enabled=True
    )
    connection.create_sender("orders/Partitions/1").send(Message(b"by plain", inferred=True))
    with pytest.raises(LinkDetached, match="unauthorized-access"):
        connection.create_receiver("orders/ConsumerGroups/$Default/Partitions/1")
    connection.close()
    assert b"by plain" in [b"".join(one.body) for one in read(closed.text("reader"), 1, partition_id="1")]


def test_a_rotated_key_goes_on_once_and_then_ends_also_on_open_links(closed: Closed) -> None:
    closed.holdfast("rule", "add", "turning", "--claim", "send")
    before = closed.text("turning")
    with producer(before, retry_total=0) as sender:
        sender.send_event(EventData("first key"), partition_id="0")
        closed.holdfast("rule", "rotate", "turning")
        assert closed.keys("turning")["secondary"] in before
        sender.send_event(EventData("the same, now the second"), partition_id="0")
        send(closed.text("turning"), "0", ["new key"])
        closed.holdfast("rule", "rotate", "turning")
        with pytest.raises(exceptions.EventHubError):
            send_on(sender)  # the link ends, perhaps while it is used
    closed.holdfast("rule", "remove", "turning")
    assert "turning" not in closed.holdfast("rule", "list")
    bodies = [one.body_as_str() for one in read(closed.text("reader"), 3, partition_id="0")]
    assert {"first key", "the same, now the second", "new key"} <= set(bodies)


def test_the_connection_string_of_the_command_is_one(closed: Closed) -> None:
    text = closed.holdfast("connection-string", "sender", "--hub", "orders").strip()
    assert text == closed.text("sender")
    send(text, "0", ["by the command's string"])
    told = json.loads(closed.holdfast("connection-string", "sender", "--json", "--secondary"))
    assert closed.keys("sender")["secondary"] in told["connection_string"]
    assert "EntityPath=orders" in told["connection_string"]


def test_over_tls_the_node_is_checked(tmp_path: Path) -> None:
    """The SDK takes another address and port, as long as it is not told of an emulator."""
    authority = Authority(tmp_path / "authority")
    files = authority.issue("node", ["localhost", "127.0.0.1"])
    listener = {"tls": "on", "cert_file": files.cert, "key_file": files.key}
    cluster = Cluster(
        tmp_path / "cluster", ClusterSettings(nodes=1, listener=listener, security=Security(ca=authority.ca))
    )
    try:
        cluster.start()
        cluster.create("orders", 1)
        port = cluster.address(1).rpartition(":")[2]
        text = "Endpoint=sb://localhost;SharedAccessKeyName=any;SharedAccessKey=SAS_KEY_VALUE;EntityPath=orders"
        tls = {
            "custom_endpoint_address": f"sb://localhost:{port}",
            "transport_type": sdk.eventhub.TransportType.Amqp,
            "retry_total": 0,
        }
        with producer(text, **tls, connection_verify=authority.ca) as sender:
            sender.send_event(EventData("over TLS"), partition_id="0")
            assert sender.get_partition_properties("0")["last_enqueued_sequence_number"] == 0
        other = Authority(tmp_path / "other").ca
        with producer(text, **tls, connection_verify=other) as sender, pytest.raises(exceptions.EventHubError):
            sender.send_event(EventData("to a stranger"))
        assert cluster.complaints() == []
    finally:
        cluster.close()
