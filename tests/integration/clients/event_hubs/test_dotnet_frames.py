"""What the .NET SDK of Event Hubs puts on the wire, by hand: it cannot be run here.

The facts are those of Azure.Messaging.EventHubs 5.12 on Microsoft.Azure.Amqp 2.7: mechanism MSSBCBS, a token first,
answers to where the request says, paths that begin with a slash, milliseconds and an entity's kind at each attach.
"""

from __future__ import annotations

import http.client
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Data, Described, Message, int32, symbol, timestamp, ubyte, uint, ulong

from tests.integration.clients.event_hubs.hub_cluster import HUB, HubCluster
from tests.integration.clusters.cluster import Cluster
from tests.integration.workloads.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    FLOW,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    TRANSFER,
    Raw,
    frame,
)

pytestmark = pytest.mark.cluster

GEO = "com.microsoft:georeplication"
SAS = "SharedAccessSignature sr=amqps%3A%2F%2Flocalhost%2Fhub&sig=eA%3D%3D&se=4000000000&skn=any"
SELECTOR = symbol("apache.org:selector-filter:string")
SECOND_MS = uint(60_000)
HUB_KIND, GROUP_KIND, PARTITION_KIND = int32(7), int32(8), int32(9)
BATCH_FORMAT = 0x80013700


class DotNet(Raw):
    """A connection as the SDK makes it, with one session for tokens, requests and links."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._handles, self._deliveries = itertools.count(), itertools.count()
        self._requests = itertools.count(1)
        self.send(SASL_HEADER)
        assert self.read_until(b"\x00\x53\x40"), "mechanisms"
        assert b"MSSBCBS" in self.received
        self.send(frame(SASL_INIT, [symbol("MSSBCBS"), None, "localhost"], kind=1))
        assert self.read_until(b"\x00\x53\x44"), "an outcome"
        said = {symbol("product"): "MSEventHub", symbol("framework"): ".NET 8.0.0"}
        opening = ["dotnet", "localhost", uint(65536), None, uint(60_000), None, None, None, None, said]
        self.send(AMQP_HEADER + frame(OPEN, opening))
        self.send(frame(BEGIN, [None, uint(0), uint(5000), uint(5000), uint(255)]))
        assert self.read_until(b"\x00\x53\x11"), "a session"
        self.received.clear()

    def attach(
        self,
        name: str,
        *,
        source: Any,
        target: Any,
        sends: bool,
        said: dict[Any, Any] | None = None,
        wanted: tuple[str, ...] = (GEO,),
    ) -> int:
        """Attach a link, and return its handle; `received` then begins with the answer."""
        self.received.clear()
        handle = next(self._handles)
        properties = {symbol("com.microsoft:timeout"): SECOND_MS, **(said or {})}
        desired = [symbol(word) for word in wanted] or None
        fields = [
            name, uint(handle), not sends, ubyte(0 if sends else 1), ubyte(0), source, target, None, None,
            uint(0) if sends else None, ulong(1 << 60), None, desired, properties,
        ]  # fmt: skip
        self.send(frame(ATTACH, fields))
        assert self.read_until(b"\x00\x53\x12"), "an attach"
        return handle

    def sender(self, path: str, **options: Any) -> int:
        source, target = Described(ulong(0x28), [name := f"sender of {path}"]), Described(ulong(0x29), [path])
        return self.attach(name, source=source, target=target, sends=True, **options)

    def receiver(self, path: str, expression: str | None, **options: Any) -> int:
        chosen = {SELECTOR: Described(SELECTOR, expression)} if expression is not None else None
        source = Described(ulong(0x28), [path, None, None, None, None, None, None, chosen])
        name = f"receiver of {path} {expression}"
        return self.attach(name, source=source, target=Described(ulong(0x29), [name]), sends=False, **options)

    def requests(self, entity: str) -> tuple[int, str]:
        """A pair of links to an entity: the handle to send by, and the address of answers, which is the SDK's own."""
        own = f"answers of {entity}"
        handle = self.attach(
            f"to {entity}",
            source=Described(ulong(0x28), [own]),
            target=Described(ulong(0x29), [entity]),
            sends=True,
            wanted=(),
        )
        receiving = self.attach(
            f"from {entity}",
            source=Described(ulong(0x28), [entity]),
            target=Described(ulong(0x29), [own]),
            sends=False,
            wanted=(),
        )
        self.grant(receiving)
        return handle, own

    def grant(self, handle: int, credit: int = 50) -> None:
        self.send(frame(FLOW, [uint(0), uint(5000), uint(0), uint(5000), uint(handle), uint(0), uint(credit)]))

    def transfer(self, handle: int, payload: bytes, message_format: int = 0) -> None:
        number = next(self._deliveries)
        fields = [uint(handle), uint(number), struct.pack(">I", number), uint(message_format), False]
        self.send(frame(TRANSFER, fields, payload))

    def ask(self, pair: tuple[int, str], body: Any, **said: Any) -> bytes:
        """The bytes of the answer to a request."""
        handle, own = pair
        self.received.clear()
        asked = Message(body, id=ulong(next(self._requests)), reply_to=own, properties=said, inferred=False)
        self.transfer(handle, asked.encode())
        assert self.read_until(b"status-description"), "an answer"
        assert self.read_until(b"\x00\x53\x77"), "its body"
        return bytes(self.received)


@pytest.fixture
def peer(cluster: Cluster, log_name: str) -> Iterator[DotNet]:
    cluster.create(log_name, 2)
    cluster.wait_led(log_name)
    made = DotNet(cluster.address(1))
    yield made
    made.close()


def put_token(peer: DotNet, hub: str) -> bytes:
    said = {
        "operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": f"amqps://localhost/{hub}",
        "expiration": timestamp(4_000_000_000_000),
    }  # fmt: skip
    return peer.ask(peer.requests("$cbs"), SAS.replace("hub", hub), **said)


def text8(text: str) -> bytes:
    return bytes((0xA1, len(text))) + text.encode()


def symbol8(text: str) -> bytes:
    return bytes((0xA3, len(text))) + text.encode()


def is_int32(said: bytes, name: str, value: int) -> bool:
    """Whether a map has an entry of that name whose value is an AMQP int."""
    head = text8(name)
    return any(head + form in said for form in (b"\x54" + bytes((value & 255,)), b"\x71" + struct.pack(">i", value)))


def is_long(said: bytes, name: str, value: int) -> bool:
    head = text8(name)
    forms = (b"\x55" + struct.pack(">b", value), b"\x81" + struct.pack(">q", value))
    return any(head + form in said for form in forms)


def event(body: bytes, **annotations: Any) -> bytes:
    return bytes(Message(body, annotations=annotations or None, inferred=True).encode())


def test_a_token_is_answered_where_the_request_says(peer: DotNet, log_name: str) -> None:
    answer = put_token(peer, log_name)
    assert is_int32(answer, "status-code", 202)


def test_what_a_hub_is_told_as(peer: DotNet, log_name: str) -> None:
    put_token(peer, log_name)
    asked = {"operation": "READ", "name": log_name, "security_token": SAS}
    pair = peer.requests("$management")
    hub = peer.ask(pair, None, type="com.microsoft:eventhub", **asked)
    assert is_int32(hub, "status-code", 200)
    assert is_int32(hub, "partition_count", 2)
    assert is_int32(hub, "georeplication_factor", 1)
    assert text8("created_at") + b"\x83" in hub, "a timestamp"
    assert any(text8("partition_ids") + form in hub for form in (b"\xe0", b"\xf0")), "an array"
    partition = peer.ask(pair, None, type="com.microsoft:partition", partition="0", **asked)
    assert is_long(partition, "begin_sequence_number", -1)
    assert is_long(partition, "last_enqueued_sequence_number", -1)
    assert text8("last_enqueued_offset") + text8("-1") in partition
    assert text8("last_enqueued_time_utc") + b"\x83" in partition
    absent = peer.ask(pair, None, type="com.microsoft:eventhub", operation="READ", name="nobody", security_token=SAS)
    assert is_int32(absent, "status-code", 404)
    assert b"could not be found" in absent, "by which the SDK tells ResourceNotFound"


@pytest.mark.parametrize(
    ("path", "kind"), [("/{hub}", HUB_KIND), ("/{hub}/Partitions/0", PARTITION_KIND)], ids=["hub", "partition"]
)
def test_single_events_and_batches_are_accepted(peer: DotNet, log_name: str, path: str, kind: int32) -> None:
    put_token(peer, log_name)
    handle = peer.sender(path.format(hub=log_name), said={symbol("com.microsoft:entity-type"): kind})
    assert b"\x80" + struct.pack(">Q", 1024 * 1024) in peer.received, "max-message-size, as an ulong"
    assert GEO.encode() not in peer.received, "offsets would be opaque to the SDK then"
    assert peer.read_until(b"\x00\x53\x13"), "credit"
    peer.received.clear()
    peer.transfer(handle, event(b"alone, so no batch"))
    assert peer.read_until(b"\x00\x53\x24"), "accepted"
    peer.received.clear()
    inner = [event(body, **{"x-opt-partition-key": "k"}) for body in (b"one", b"two")]
    front = event(b"", **{"x-opt-partition-key": "k"}).split(b"\x00\x53\x75")[0]
    sections = b"".join(b"\x00\x53\x75\xb0" + struct.pack(">I", len(one)) + one for one in inner)
    peer.transfer(handle, front + sections, BATCH_FORMAT)
    assert peer.read_until(b"\x00\x53\x24"), "accepted"


def test_the_three_of_an_idempotent_producer_are_filled_in(peer: DotNet, log_name: str) -> None:
    put_token(peer, log_name)
    names = [symbol(f"com.microsoft:producer-{what}") for what in ("id", "epoch", "sequence-number")]
    said = {symbol("com.microsoft:entity-type"): PARTITION_KIND, **dict.fromkeys(names)}
    path = f"/{log_name}/Partitions/1"
    peer.sender(path, said=said, wanted=(GEO, "com.microsoft:idempotent-producer"))
    answer = bytes(peer.received)
    for name, codes in zip(names, (b"\x55\x81", b"\x61", b"\x54\x71"), strict=True):
        at = answer.index(symbol8(name)) + len(symbol8(name))
        assert answer[at] in codes, f"{name} is of type {answer[at]:#x}"


@pytest.mark.parametrize(
    "expression",
    [
        "amqp.annotation.x-opt-sequence-number > 0",
        "amqp.annotation.x-opt-sequence-number >= 1",
        "amqp.annotation.x-opt-offset > '0'",
        "amqp.annotation.x-opt-offset >= 1",
        "amqp.annotation.x-opt-enqueued-time > 1",
    ],
)
def test_a_receiver_begins_where_its_filter_says(peer: DotNet, log_name: str, expression: str) -> None:
    put_token(peer, log_name)
    sender = peer.sender(f"/{log_name}/Partitions/0")
    for number in range(2):
        peer.received.clear()
        peer.transfer(sender, event(b"number %d" % number))
        assert peer.read_until(b"\x00\x53\x24"), "accepted"
    said = {
        symbol("com.microsoft:entity-type"): GROUP_KIND,
        symbol("com.microsoft:receiver-name"): "processor 1",
        symbol("com.microsoft:epoch"): 0,  # a long on the wire
    }
    wanted = (GEO, "com.microsoft:enable-receiver-runtime-metric")
    path = f"/{log_name}/ConsumerGroups/$Default/Partitions/0"
    handle = peer.receiver(path, expression, said=said, wanted=wanted)
    peer.received.clear()
    peer.grant(handle)
    assert peer.read_until(b"number 1"), "the second event"
    came = bytes(peer.received)
    assert (b"number 0" in came) is ("enqueued-time" in expression)
    assert symbol8("x-opt-offset") + text8("1") in came, "decimal digits, as a string"
    head = symbol8("x-opt-sequence-number")
    assert any(head + form in came for form in (b"\x55\x01", b"\x81" + struct.pack(">q", 1))), "a long"
    assert symbol8("x-opt-enqueued-time") + b"\x83" in came, "a timestamp"
    assert is_settled(came), "the SDK settles nothing that it prefetched"


def is_settled(came: bytes) -> bool:
    """Whether the first transfer of these bytes is sent settled."""
    at = came.index(b"\x00\x53\x14")
    data = Data()
    data.decode(came[at:])
    data.rewind()
    assert data.next()
    described = data.get_object()
    return bool(described.value[4])


def test_a_filter_without_an_offset_is_answered_in_the_services_words(peer: DotNet, log_name: str) -> None:
    put_token(peer, log_name)
    peer.receiver(f"/{log_name}/ConsumerGroups/$Default/Partitions/0", "amqp.annotation.x-opt-offset > ''")
    assert peer.read_until(b"is not a valid amqp filter for EventHub entities")
    assert b"amqp:not-allowed" in peer.received


@pytest.mark.parametrize("field", ["offset > '7'", "sequence-number > 7"])
@pytest.mark.parametrize(
    ("wanted", "condition"),
    [((GEO,), GEO + ":invalid-offset"), ((), "com.microsoft:argument-error")],
    ids=["knows", "older"],
)
def test_a_checkpoint_of_another_life_is_answered_so_that_its_processor_drops_it(
    peer: DotNet, log_name: str, field: str, wanted: tuple[str, ...], condition: str
) -> None:
    put_token(peer, log_name)
    path = f"/{log_name}/ConsumerGroups/$Default/Partitions/0"
    peer.receiver(path, f"amqp.annotation.x-opt-{field}", wanted=wanted)
    assert peer.read_until(b"\x00\x53\x16"), "a detach"
    assert condition.encode() in peer.received
    assert b"'7' is invalid. The last" in peer.received


@pytest.mark.parametrize(
    ("path", "condition", "sentence"),
    [
        ("/nobody/ConsumerGroups/$Default/Partitions/0", b"amqp:not-found", b"could not be found"),
        ("/{hub}/ConsumerGroups/$Default/Partitions/7", b"com.microsoft:argument-out-of-range", b"is invalid"),
    ],
    ids=["hub", "partition"],
)
def test_what_is_not_there_is_refused(
    peer: DotNet, log_name: str, path: str, condition: bytes, sentence: bytes
) -> None:
    put_token(peer, log_name)
    peer.receiver(path.format(hub=log_name), None)
    assert peer.read_until(b"\x00\x53\x16"), "a detach"
    assert condition in peer.received
    assert sentence in peer.received


def test_the_checkpoint_store_answers_as_the_processor_expects(tmp_path: Path) -> None:
    stored = HubCluster(tmp_path)
    try:
        host, _, port = stored.doors[0].rpartition(":")
        base = f"/any/checkpoints/localhost/{HUB.lower()}/billing"
        said = {"Authorization": "SharedKey any:eA==", "x-ms-version": "2021-12-02", "Content-Length": "0"}

        def ask(method: str, path: str, **more: str) -> tuple[int, dict[str, str], str]:
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            headers = said | {name.replace("_", "-"): value for name, value in more.items()}
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            body = answer.read().decode()
            connection.close()
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, body

        owner = {"x_ms_meta_ownerid": "processor 1"}
        status, heads, _ = ask("PUT", f"{base}/ownership/0?comp=metadata", If_Match='"0x1"', **owner)
        assert (status, heads["x-ms-error-code"]) == (404, "BlobNotFound"), "it then uploads"
        create = {"If_None_Match": "*", "x_ms_blob_type": "BlockBlob", **owner}
        status, heads, _ = ask("PUT", f"{base}/ownership/0", **create)
        assert status == 201
        again, lost, _ = ask("PUT", f"{base}/ownership/0", **create)
        assert (again, lost["x-ms-error-code"]) == (409, "BlobAlreadyExists")
        status, renewed, _ = ask("PUT", f"{base}/ownership/0?comp=metadata", If_Match=heads["etag"], **owner)
        assert (status, renewed["etag"] != heads["etag"]) == (200, True)
        late, lost, _ = ask("PUT", f"{base}/ownership/0?comp=metadata", If_Match=heads["etag"], **owner)
        assert (late, lost["x-ms-error-code"]) == (412, "ConditionNotMet")
        noted = {"x_ms_meta_offset": "-1", "x_ms_meta_sequencenumber": "-1", "x_ms_meta_clientidentifier": "one"}
        status, lost, _ = ask("PUT", f"{base}/checkpoint/0?comp=metadata", **noted)
        assert (status, lost["x-ms-error-code"]) == (404, "BlobNotFound"), "it then uploads"
        listed = f"/any/checkpoints?restype=container&comp=list&include=metadata&prefix=localhost/{HUB.lower()}/billing"
        assert "<Blob>" in ask("GET", f"{listed}/ownership/")[2]
        assert "<Blob>" not in ask("GET", f"{listed}/checkpoint/")[2]
        assert not stored.cluster.complaints()
    finally:
        stored.cluster.close()
