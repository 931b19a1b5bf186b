"""AMQP over WebSocket, with TLS and without, on the port that takes plain AMQP, too."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp.framing.handshake import AMQP_HEADER
from holdfast.client.transport.security.credentials import Security
from tests.authority import Authority
from tests.integration.clients.event_hubs import sdk
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.event_hubs.sdk import consumer, producer, read, send
from tests.integration.clients.event_hubs.test_javascript_sdk import HERE, Program
from tests.integration.clients.npm import NEEDS_NODE, installed
from tests.integration.clusters.cluster import Cluster, ClusterSettings, wait_until

websockets = pytest.importorskip("websockets.asyncio.client")
exceptions = pytest.importorskip("websockets.exceptions")
pytest.importorskip("websocket", reason="websocket-client is not installed, by which the SDK connects")

pytestmark = pytest.mark.cluster

HUB, OTHER_HUB, PATH = "orders", "others", "/$servicebus/websocket"


class Door:
    """A node whose listeners take TLS, AMQP and HTTP on one port."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        files = self.authority.issue("node", ["127.0.0.1", "localhost"])
        listener = {"tls": "any", "cert_file": str(files.cert), "key_file": str(files.key)}
        self.cluster = Cluster(directory / "cluster", ClusterSettings(nodes=1, listener=listener))
        self.cluster.start()
        for hub in (HUB, OTHER_HUB):
            self.cluster.create(hub, 2)
            self.cluster.wait_led(hub)
        self.port = self.cluster.address(1).rpartition(":")[2]

    @property
    def tls_text(self) -> str:
        return self.text_of(HUB)

    def text_of(self, hub: str) -> str:
        return connection_string(f"localhost:{self.port}", hub).replace("UseDevelopmentEmulator=true;", "")

    def url(self, scheme: str = "ws", path: str = PATH) -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    made = Door(tmp_path_factory.mktemp("door"))
    yield made
    complaints = made.cluster.complaints()
    made.cluster.close()
    assert not complaints


def test_one_port_takes_plain_amqp_tls_and_websockets(door: Door) -> None:
    plain = connection_string(f"127.0.0.1:{door.port}", HUB)
    send(plain, "0", ["plain"])
    over = {
        "transport_type": sdk.eventhub.TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"https://localhost:{door.port}",
        "connection_verify": str(door.authority.ca),
    }
    with producer(door.tls_text, **over) as sender:
        batch = sender.create_batch(partition_id="0")
        batch.add(sdk.eventhub.EventData("by WebSocket"))
        batch.add(sdk.eventhub.EventData("x" * 900_000))
        sender.send_batch(batch)
        assert sender.get_eventhub_properties()["eventhub_name"] == HUB
    security = Security(ca=door.authority.ca)
    door.cluster.settings.security = security
    assert door.cluster.call(lambda admin: admin.describe_log(HUB))["name"] == HUB, "by TLS from the first byte"
    door.cluster.settings.security = Security()
    assert [event.body_as_str()[:20] for event in read(plain, 3)] == ["plain", "by WebSocket", "x" * 20]
    reading = sdk.Reading(consumer(door.tls_text, **over), partition_id="0", starting_position="-1")
    reading.until(lambda now: len(now.events) >= 3 or now.errors).stop()
    assert not reading.errors
    assert reading.bodies[:2] == ["plain", "by WebSocket"]


@NEEDS_NODE
def test_the_javascript_sdk_comes_by_websocket(door: Door) -> None:
    home = installed(HERE)
    program = Program(home, "websocket", door.text_of(OTHER_HUB), "0", NODE_EXTRA_CA_CERTS=str(door.authority.ca))
    wait_until(lambda: program.all("read") or program.all("failed"), "the program reads", sdk.WITHIN_S)
    program.finish()
    assert program.all("read") == [["by wss", "too"]]


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/elsewhere", {}, 404),
        (PATH, {"origin": "https://evil.example"}, 403),
        (PATH, {"subprotocols": ["mqtt"]}, 400),
    ],
)
async def test_what_is_refused_is_told_by_its_status(
    door: Door, path: str, options: dict[str, Any], status: int
) -> None:
    with pytest.raises(exceptions.InvalidStatus) as refused:
        await websockets.connect(door.url(path=path), proxy=None, **options)
    assert refused.value.response.status_code == status


@pytest.mark.parametrize(
    ("scheme", "path", "options", "chosen"),
    [
        ("ws", PATH, {}, None),
        ("ws", PATH + "/", {"subprotocols": ["AMQPWSB10"]}, "AMQPWSB10"),
        ("ws", "/", {"subprotocols": ["x", "amqp"]}, "amqp"),
        ("ws", PATH, {"origin": "own"}, None),
        ("wss", PATH, {"subprotocols": ["binary", "amqp"]}, "binary"),
    ],
)
async def test_amqp_begins_behind_the_greeting(
    door: Door, scheme: str, path: str, options: dict[str, Any], chosen: str | None
) -> None:
    if options.get("origin") == "own":
        options = {"origin": f"http://127.0.0.1:{door.port}"}
    if scheme == "wss":
        options = {**options, "ssl": ssl.create_default_context(cafile=str(door.authority.ca))}
    async with websockets.connect(door.url(scheme, path), proxy=None, **options) as peer:
        assert peer.subprotocol == chosen
        for byte in AMQP_HEADER:  # however it is cut
            await peer.send(bytes([byte]))
        assert await peer.recv() == AMQP_HEADER


@pytest.mark.parametrize(
    "message", ["text is no AMQP", bytes(2 << 20), b"nonsense" * 20], ids=["text", "large", "other bytes"]
)
async def test_nonsense_ends_that_connection_alone(door: Door, message: str | bytes) -> None:
    async with websockets.connect(door.url(), proxy=None, max_size=None) as peer:
        await peer.send(message)
        async with asyncio.timeout(sdk.WITHIN_S):
            await peer.wait_closed()
    send(connection_string(f"127.0.0.1:{door.port}", OTHER_HUB), "1", ["x"])


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\n\r\n", b"GET " + b"x" * 100_000, b"Gnonsense\r\n\r\n", b"\0" * 64]
)
async def test_what_is_no_websocket_is_closed(door: Door, head: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(door.port))
    writer.write(head)
    async with asyncio.timeout(sdk.WITHIN_S):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    writer.close()


@pytest.mark.parametrize("header", ["GET //[ HTTP/1.1", "GET / HTTP/1.1\r\nOrigin: http://["])
async def test_what_cannot_be_parsed_is_told_so(door: Door, header: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(door.port))
    writer.write(f"{header}\r\nHost: x\r\n\r\n".encode())
    assert (await reader.readline()).split()[1] in (b"400", b"404", b"426")
    writer.close()


async def test_a_name_that_somebody_else_may_own_is_no_host_of_a_page_without_tls(door: Door) -> None:
    with pytest.raises(exceptions.InvalidStatus) as refused:
        await websockets.connect(
            f"ws://evil.example:{door.port}{PATH}", host="127.0.0.1", port=int(door.port), proxy=None,
            origin=f"http://evil.example:{door.port}",
        )  # fmt: skip
    assert refused.value.response.status_code == 403
