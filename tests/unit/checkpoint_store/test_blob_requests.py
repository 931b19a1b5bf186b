"""Names, signatures and connections of the checkpoint store, without a cluster behind it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from node.checkpoint_store import blob_server
from node.checkpoint_store.blob_names import BlobName, Listed, read_name, read_prefix
from node.checkpoint_store.blob_server import BlobServer
from node.checkpoint_store.shared_key import account_of, is_fresh, is_signed, text_to_sign
from node.config import HostAndPort
from tests.ports import free_port


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ns/hub/$default/ownership/0", BlobName("ns/hub/$default/ownership/", "hub", "$Default", "ownership", "0")),
        ("ns/team/hub/G/Checkpoint/3", BlobName("ns/team/hub/G/Checkpoint/", "team/hub", "g", "checkpoint", "3")),
        ("ns/hub/g/leases/0", None),
        ("hub/ownership/0", None),
        ("ns/hub/g/ownership/", None),
        ("ns/hub/\x00g/ownership/0", None),
        ("ns/hub//checkpoint/0", None),
        ("ns/hub/" + "g" * 512 + "/checkpoint/0", None),
        ("", None),
        ("/////", None),
    ],
)
def test_a_blob_is_known_by_its_name(text: str, meant: BlobName | None) -> None:
    assert read_name(text) == meant


def test_a_prefix_is_known_with_its_slash_and_without() -> None:
    meant = Listed("ns/hub/g/ownership/", "hub", "g", "ownership")
    assert read_prefix("ns/hub/g/ownership/") == read_prefix("ns/hub/g/ownership") == meant
    assert read_prefix("ns/hub/") is None


def test_the_signed_text_has_the_form_of_the_documentation() -> None:
    """As "Authorize with Shared Key" shows it: twelve lines, own headers in order, the resource and what is asked."""
    headers = {
        "x-ms-version": "2021-12-02", "x-ms-date": "Fri, 26 Jun 2015 23:39:12 GMT", "date": "is left out",
        "content-length": "0", "if-match": '"0x1"', "x-ms-meta-ownerid": " a   b ",
    }  # fmt: skip
    text = text_to_sign("PUT", headers, "shop", "/shop/c/a%20b", "comp=metadata&Timeout=30")
    assert text == (
        'PUT\n\n\n\n\n\n\n\n"0x1"\n\n\n\n'
        "x-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-meta-ownerid:a b\nx-ms-version:2021-12-02\n"
        "/shop/shop/c/a%20b\ncomp:metadata\ntimeout:30"
    )
    key = base64.b64encode(b"key").decode()
    signature = hmac.digest(b"key", text.encode(), hashlib.sha256)
    assert is_signed(key, signature, text)
    assert not is_signed(key, signature, text + " ")
    assert not is_signed("no base64!", signature, text)


@pytest.mark.parametrize("shown", ["", "SharedKey", "SharedKey x", "SharedKey x:!", "SharedKeyLite x:eA==", "Bearer y"])
def test_what_is_no_signature_opens_nothing(shown: str) -> None:
    found = account_of(shown)
    assert found is None or found[1] == b""


@pytest.mark.parametrize("date", ["", "soon", "Fri, 26 Jun 2015 23:39:12 GMT"])
def test_an_old_request_is_not_fresh(date: str) -> None:
    assert not is_fresh({"x-ms-date": date})


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(blob_server, "HEAD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(blob_server, "MAX_CONNECTIONS", 3)
    server, found = BlobServer(cast(Any, None), cast(Any, None), lambda: True), free_port()
    await server.start(HostAndPort("127.0.0.1", found))
    yield found
    await server.stop()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """True once the server has closed the connection, in whatever way, without an answer."""
    try:
        return not await reader.read()
    except ConnectionError:
        return True


async def test_who_sends_no_request_is_closed(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost:")
    assert await is_closed(reader)
    writer.close()


async def test_one_connection_too_many_is_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_server, "HEAD_TIMEOUT_S", 300.0)
    open_ = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    for _, writer in open_:  # each is known before the next comes
        writer.write(b"GET /c?restype=container HTTP/1.1\r\nHost: x\r\n\r\n")
    for reader, _ in open_:
        assert b"200" in await reader.readline()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await is_closed(reader)
    for _, each in [*open_, (reader, writer)]:
        each.close()
