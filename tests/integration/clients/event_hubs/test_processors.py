"""Processors of the Python SDK with its own Blob checkpoint store, which a node keeps in the consumer group."""

from __future__ import annotations

import asyncio
import base64
import http.client
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.app import main
from tests.integration.clients.event_hubs import sdk
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.event_hubs.hub_cluster import GROUP, HUB, PARTITIONS, HubCluster
from tests.integration.clients.event_hubs.sdk import Reading, consumer, send
from tests.integration.clusters.cluster import Cluster, wait_until

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob", reason="the SDK's store is not installed")
blob_aio = pytest.importorskip("azure.eventhub.extensions.checkpointstoreblobaio", reason="its asyncio form is not")
core = pytest.importorskip("azure.core.exceptions")

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubCluster]:
    made = HubCluster(tmp_path_factory.mktemp("stored"))
    yield made
    complaints = made.cluster.complaints()
    made.cluster.close()
    assert not complaints


class Noting(Reading):
    """Receives, and updates the checkpoint after each event."""

    def _on_event(self, context: Any, event: Any) -> None:
        if event is not None:
            context.update_checkpoint(event)
        super()._on_event(context, event)


def test_two_processors_share_and_the_second_goes_on_where_the_first_stopped(stored: HubCluster) -> None:
    hub = "Shared"  # other tests send to the one that is there
    stored.make(hub)
    text = stored.text(hub=hub)
    for partition in range(PARTITIONS):
        send(text, str(partition), [f"{partition} {number}" for number in range(5)])
    options = {
        "checkpoint_store": stored.store(),
        "load_balancing_interval": 0.5,
        "partition_ownership_expiration_interval": 5,
    }
    first = Noting(consumer(text, GROUP, **options), starting_position="-1")
    first.until(lambda now: len(now.events) >= 5 * PARTITIONS or now.errors)
    assert not first.errors
    owners = {row["owner"] for row in stored.describe(hub=hub)}
    assert len(owners) == 1, "one processor has all"
    second = Noting(consumer(text, GROUP, **options | {"checkpoint_store": stored.store()}), starting_position="-1")
    wait_until(lambda: len({row["owner"] for row in stored.describe(hub=hub)}) == 2, "both have partitions")
    first.stop()
    for partition in range(PARTITIONS):
        send(text, str(partition), [f"{partition} later"])
    second.until(lambda now: sum("later" in body for body in now.bodies) >= PARTITIONS or now.errors).stop()
    assert not second.errors
    assert [row["lag"] for row in stored.describe(hub=hub)] == [0] * PARTITIONS
    assert [row["committed_position"] for row in stored.describe(hub=hub)] == [6] * PARTITIONS
    again = Noting(consumer(text, GROUP, **options | {"checkpoint_store": stored.store()}), starting_position="-1")
    send(text, "0", ["last"])
    again.until(lambda now: "last" in now.bodies or now.errors).stop()
    assert again.bodies == ["last"], "it began behind the checkpoints"


def test_the_asyncio_store_of_the_sdk_does_the_same(stored: HubCluster) -> None:
    async def claim() -> None:
        store = blob_aio.BlobCheckpointStore.from_connection_string(stored.store_text(), "checkpoints")
        async with store:
            wish = _wish("aio", "one")
            (mine,) = await store.claim_ownership([wish])
            assert await store.claim_ownership([_wish("aio", "two")]) == []
            (renewed,) = await store.claim_ownership([mine])
            assert renewed["etag"] != mine["etag"]
            assert await store.claim_ownership([mine | {"owner_id": "two"}]) == [], "an old revision"
            (found,) = await store.list_ownership("any", HUB, "aio")
            assert (found["owner_id"], found["partition_id"], found["etag"]) == ("one", "0", renewed["etag"].strip('"'))
            await store.update_checkpoint(_checkpoint("aio", 0))
            (noted,) = await store.list_checkpoints("any", HUB, "aio")
            assert (noted["sequence_number"], noted["offset"]) == (0, "0")

    send(stored.text(), "0", ["x"])
    asyncio.run(claim())


def _wish(group: str, owner: str, **more: Any) -> dict[str, Any]:
    return {
        "fully_qualified_namespace": "any", "eventhub_name": HUB, "consumer_group": group, "partition_id": "0",
        "owner_id": owner, **more,
    }  # fmt: skip


def _checkpoint(group: str, number: int) -> dict[str, Any]:
    return {
        "fully_qualified_namespace": "any", "eventhub_name": HUB, "consumer_group": group, "partition_id": "0",
        "sequence_number": number, "offset": str(number),
    }  # fmt: skip


def test_of_many_that_claim_at_once_one_has_the_partition(stored: HubCluster) -> None:
    won: list[str] = []
    begin = threading.Barrier(8)

    def claim(owner: str) -> None:
        store = stored.store()
        begin.wait()
        won.extend(one["owner_id"] for one in store.claim_ownership([_wish("race", owner)]))

    threads = [threading.Thread(target=claim, args=(f"owner {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(sdk.WITHIN_S)
    assert len(won) == 1
    assert [one["owner_id"] for one in stored.store().list_ownership("another-name", HUB, "race")] == won


def test_a_log_made_anew_has_no_checkpoints(stored: HubCluster) -> None:
    cluster, store = stored.cluster, stored.store()
    cluster.create("again", 1)
    cluster.wait_led("again")
    wish = _wish("g", "one") | {"eventhub_name": "again"}
    noted = {**wish, "sequence_number": 0, "offset": "0"}
    send(connection_string(cluster.address(1), "again"), "0", ["x"])
    store.claim_ownership([wish])
    store.update_checkpoint(noted)
    assert len(list(store.list_checkpoints("any", "again", "g"))) == 1
    cluster.call(lambda admin: admin.delete_log("again"))
    assert list(store.list_checkpoints("any", "again", "g")) == []
    cluster.create("again", 1)
    cluster.wait_led("again")
    assert list(store.list_ownership("any", "again", "g")) == []
    with pytest.raises(core.HttpResponseError, match="no event of this partition"):
        store.update_checkpoint({**noted, "sequence_number": 71181, "offset": "71181"})


def _asked(door: str, request: str, body: bytes = b"") -> tuple[int, str, str]:
    """The status, error code and body of an answer to raw bytes; (0, "", "") where the connection just ends."""
    host, port = door.split(":")
    with socket.create_connection((host, int(port)), timeout=sdk.WITHIN_S) as peer:
        peer.sendall(request.replace("\n", "\r\n").encode() + body)
        answer = http.client.HTTPResponse(peer)
        try:
            answer.begin()
        except (http.client.HTTPException, ConnectionError):
            return 0, "", ""
        return answer.status, answer.headers.get("x-ms-error-code", ""), answer.read().decode()


HEAD, EMPTY = " HTTP/1.1\nHost: x\n", "Content-Length: 0\n\n"
OWNER, CHECKPOINT = f"/c/ns/{HUB}/g/ownership/0", f"/c/ns/{HUB}/g/checkpoint/0"
OWNERSHIP = f"/any/c/ns/{HUB.lower()}/raw/ownership/0"


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ("GET / HTTP/1.1\nHost: x\n\n", 400, "InvalidUri"),
        ("GET /any/c HTTP/1.1\nHost: x\nAuthorization: SharedKey any:eA==\n\n", 400, "InvalidUri"),
        ("PUT /c?restype=container HTTP/1.1\nHost: x\nContent-Length: 0\n\n", 201, ""),
        ("DELETE /c?restype=container HTTP/1.1\nHost: x\n\n", 405, "UnsupportedHttpVerb"),
        ("GET /c?restype=container&comp=list HTTP/1.1\nHost: x\n\n", 200, ""),
        ("GET /c?restype=container&comp=list&prefix=%00%ff/a/b/ownership/ HTTP/1.1\nHost: x\n\n", 200, ""),
        ("GET /c/some/old/lease HTTP/1.1\nHost: x\n\n", 404, "BlobNotFound"),
        ("PUT /c/some/blob HTTP/1.1\nHost: x\nContent-Length: 0\n\n", 400, "InvalidResourceName"),
        ("PUT /c/ns/nobody/g/ownership/0 HTTP/1.1\nHost: x\nContent-Length: 0\n\n", 404, "ResourceNotFound"),
        (f"PUT /c/ns/{HUB}/g/ownership/99 HTTP/1.1\nHost: x\nContent-Length: 0\n\n", 404, "ResourceNotFound"),
        (f"PUT /c/ns/{HUB}/g/checkpoint/0 HTTP/1.1\nHost: x\nContent-Length: 0\n\n", 400, "InvalidMetadata"),
        (f"PUT {CHECKPOINT}?comp=metadata{HEAD}{EMPTY}", 404, "BlobNotFound"),
        (f"PUT {OWNER}?comp=lease{HEAD}{EMPTY}", 400, "InvalidQueryParameterValue"),
        (f"PUT {OWNER}?comp=metadata{HEAD}If-Match: zzz\n{EMPTY}", 404, "BlobNotFound"),
        (f"DELETE /c/ns/{HUB}/g/ownership/0 HTTP/1.1\nHost: x\n\n", 404, "BlobNotFound"),
        (f"PATCH /c/ns/{HUB}/g/ownership/0 HTTP/1.1\nHost: x\n\n", 405, "UnsupportedHttpVerb"),
        (f"HEAD /c/ns/{HUB}/g/checkpoint/0 HTTP/1.1\nHost: x\n\n", 404, "BlobNotFound"),
        (f"PUT {OWNER}{HEAD}Content-Length: 9999999\n\n" + "x" * 100_000, 413, "RequestBodyTooLarge"),
        ("nonsense\n\n", 400, ""),
        ("GET /" + "x" * 100_000 + " HTTP/1.1\n\n", 400, ""),
        ("AMQP\0\1\0\0", 400, ""),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_each_request_gets_its_answer(stored: HubCluster, request_: str, status: int, code: str) -> None:
    found = _asked(stored.doors[0], request_)
    assert found[:2] == (status, code), found
    assert list(stored.store().list_ownership("any", HUB, "nobody")) == [], "the store goes on"


def test_an_ownership_can_be_removed_by_hand(stored: HubCluster) -> None:
    (mine,) = stored.store().claim_ownership([_wish("raw", "one")])
    head = f"DELETE {OWNERSHIP} HTTP/1.1\nHost: x\nAuthorization: SharedKey any:eA==\nIf-Match: "
    assert _asked(stored.doors[0], f'{head}"0x1"\n\n')[:2] == (412, "ConditionNotMet")
    assert _asked(stored.doors[0], f"{head}{mine['etag']}\n\n")[0] == 202
    assert list(stored.store().list_ownership("any", HUB, "raw")) == []


def test_logs_that_differ_in_case_only_share_no_checkpoints(stored: HubCluster) -> None:
    for name in ("twin", "Twin"):
        stored.cluster.create(name, 1)
        stored.cluster.wait_led(name)
    with pytest.raises(core.HttpResponseError, match="differ in case only"):
        list(stored.store().list_ownership("any", "twin", "g"))


@pytest.mark.parametrize("header", ['If-Match: "0x' + "f" * 100 + '"', "x-ms-meta-ownerid: \xff", "x-ms-a: \xff"])
def test_headers_that_make_no_sense_are_no_fault_of_the_store(stored: HubCluster, header: str) -> None:
    request = f"PUT {OWNER}?comp=metadata{HEAD}{header}\nContent-Length: 0\n\n"
    assert _asked(stored.doors[0], request)[0] in (400, 404, 412)


def test_only_a_rule_that_may_listen_opens_the_store(tmp_path: Path) -> None:
    closed = HubCluster(tmp_path, closed=True)
    try:
        assert list(closed.store().list_ownership("any", HUB, "g")) == []
        (mine,) = closed.store().claim_ownership([_wish("g", "one")])
        assert mine["owner_id"] == "one"
        login = ["--server", closed.cluster.address(1), "--user", "root", "--password-file", str(closed.password)]
        said = CliRunner().invoke(main, ["connection-string", "reader", "--checkpoints", closed.doors[0], *login])
        assert said.output.strip() == closed.store_text()
        wrong_key = base64.b64encode(os.urandom(32)).decode()
        refused = [
            ({"key": wrong_key}, "AuthenticationFailed"),
            ({"account": "nobody"}, "AuthenticationFailed"),
            ({"account": "sender", "key": closed.other_key}, "AuthorizationFailure"),
        ]
        for options, code in refused:
            with pytest.raises(core.HttpResponseError) as error:
                closed.store(**options).list_ownership("any", HUB, "g")
            assert error.value.error_code == code
        closed.cluster.call(lambda admin: admin.remove_rule("reader"))
        with pytest.raises(core.HttpResponseError):
            closed.store().list_ownership("any", HUB, "g")
        assert not closed.cluster.complaints()
    finally:
        closed.cluster.close()


def test_leaders_die_under_a_processor(tmp_path: Path, make_cluster: Callable[..., Cluster]) -> None:
    three = HubCluster(tmp_path, nodes=3)
    cluster = three.cluster
    try:
        # Served by one node, whose peers die: an SDK knows one address.
        victims = [2, 3]
        text = three.text(1)
        options = {"checkpoint_store": three.store(), "load_balancing_interval": 0.5}
        processor = Noting(consumer(text, GROUP, **options), starting_position="-1")
        for round_ in range(4):
            victim = victims[round_ % 2]
            cluster.kill(victim)
            for partition in range(PARTITIONS):
                send(text, str(partition), [f"{partition} of {round_}"])
            wanted = {f"{partition} of {round_}" for partition in range(PARTITIONS)}
            processor.until(lambda now, wanted=wanted: wanted <= now.seen or now.errors)
            assert not processor.errors
            cluster.start(victim)
            cluster.wait_settled(HUB)
        wait_until(lambda: [row["lag"] for row in three.describe()] == [0] * PARTITIONS, "all is read, copies too")
        processor.stop()
        assert not processor.errors
        assert all(row["committed_position"] >= 4 for row in three.describe())
        assert not cluster.complaints()
    finally:
        cluster.close()
