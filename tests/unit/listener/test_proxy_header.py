"""Connections through proxies: the client that the header names is the peer, and nobody else may name one."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from node.listener.connections.proxy_header import (
    FIXED_BYTES,
    MAX_REST_BYTES,
    SIGNATURE,
    BadHeader,
    client_of,
    is_among,
    rest_bytes,
)
from node.listener.limits import unauthenticated_connections
from tests.attacks import fuzz
from tests.unit.listener.support.peer import Peer, eventually
from tests.unit.listener.support.single import SingleNode

HERE = (ipaddress.ip_network("127.0.0.1"),)
ELSEWHERE = (ipaddress.ip_network("192.0.2.0/24"),)
AMQP = b"AMQP\x00\x01\x00\x00"


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.listener")


def header(client: str = "198.51.100.7", port: int = 4711, *, command: int = 0x21, more: bytes = b"") -> bytes:
    address = ipaddress.ip_address(client)
    family = 0x11 if address.version == 4 else 0x21
    rest = address.packed * 2 + struct.pack(">HH", port, 5672) + more
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest)) + rest


class ProxiedPeer(Peer):
    """A peer behind a proxy that says `before` first."""

    def __init__(self, port: int, before: bytes, **options: Any) -> None:
        super().__init__(port, **options)
        self._before = before

    async def flush(self) -> None:
        assert self._writer is not None
        self._writer.write(self._before)
        self._before = b""
        await super().flush()


@asynccontextmanager
async def serving(path: Path, **config: Any) -> AsyncIterator[SingleNode]:
    node = await SingleNode(path / "data", **config).start()
    await node.create("trades", 1)
    try:
        yield node
    finally:
        await node.stop()


def peers(node: SingleNode) -> list[str]:
    return [connection.address for connection in node.listener._connections]


async def sent_away(port: int, said: bytes) -> None:
    """Wait until the node ends a connection, without a word."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    try:
        assert await reader.read() == b""
    except ConnectionResetError:
        pass
    finally:
        writer.close()


@pytest.mark.parametrize("client", ["198.51.100.7", "2001:db8::7"])
async def test_the_client_that_a_proxy_names_is_the_peer(tmp_path: Path, client: str) -> None:
    async with serving(tmp_path, proxies=HERE) as node, ProxiedPeer(node.port, header(client, more=b"x" * 90)) as peer:
        await peer.sender("trades")
        assert peers(node) == [client]
        assert next(iter(node.listener._connections)).visitor.peer == str((client, 4711))


async def test_a_proxy_that_checks_or_has_no_address_of_the_internet_is_the_peer_itself(tmp_path: Path) -> None:
    unix = SIGNATURE + struct.pack(">BBH", 0x21, 0x31, 216) + bytes(216)
    async with serving(tmp_path, proxies=HERE) as node:
        for said in (header(command=0x20), SIGNATURE + b"\x20\x00\x00\x00", unix):
            async with ProxiedPeer(node.port, said) as peer:
                await peer.sender("trades")
                assert "127.0.0.1" in peers(node)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (AMQP + bytes(16), "no header: let the proxy send one"),
        (b"PROXY TCP4 198.51.100.7 192.0.2.1 1 2\r\n", "version 1: let the proxy send version 2"),
        (SIGNATURE + b"\x21\x11\xff\xff", f"at most {MAX_REST_BYTES} are read"),
        (SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12), "version 3"),
        (SIGNATURE + b"\x21\x71\x00\x0c" + bytes(12), "unknown family 0x71"),
        (SIGNATURE + b"\x21\x11\x00\x04" + bytes(4), "4 bytes of addresses, which take 12"),
    ],
)
async def test_a_header_that_cannot_be_followed_is_told_and_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: bytes, why: str
) -> None:
    async with serving(tmp_path, proxies=HERE) as node:
        await sent_away(node.port, said)
        assert why in caplog.text


@pytest.mark.parametrize("proxies", [ELSEWHERE, ()], ids=["other proxies", "no proxies"])
async def test_nobody_else_may_name_a_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, proxies: tuple[Any, ...]
) -> None:
    async with serving(tmp_path, proxies=proxies) as node:
        for said in (header(), b"PROXY TCP4 198.51.100.7 192.0.2.1 1 2\r\n"):
            if proxies:
                await sent_away(node.port, said + AMQP)
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
                writer.write(said + AMQP)
                await reader.read()
                writer.close()
        assert "listener.proxies" in caplog.text
        assert "198.51.100.7" not in peers(node)
        async with Peer(node.port) as peer:  # without a header, beside proxies
            await peer.sender("trades")


async def test_a_header_that_does_not_end_is_cut_in_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path, proxies=HERE, handshake_timeout_s=0.2) as node:
        for said in (b"", SIGNATURE[:9], header()[:-1], header()):
            await sent_away(node.port, said)
        assert "did not begin in time" in caplog.text
        assert "no AMQP open in time" in caplog.text


async def test_limits_by_address_are_those_of_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unauthenticated_connections, "UNOPENED_FROM_ONE_ADDRESS", 3)
    async with serving(tmp_path, proxies=HERE) as node:
        quiet = [await asyncio.open_connection("127.0.0.1", node.port)]
        quiet[0][1].write(header("198.51.100.1"))
        await eventually(lambda: peers(node) == ["198.51.100.1"])
        for _ in range(8):
            quiet.append(await asyncio.open_connection("127.0.0.1", node.port))
            quiet[-1][1].write(header("198.51.100.2"))
            await asyncio.sleep(0)
        await eventually(lambda: sorted(peers(node)) == ["198.51.100.1", *["198.51.100.2"] * 3])
        for _, writer in quiet:
            writer.transport.abort()


async def test_nonsense_in_headers_harms_nobody(tmp_path: Path) -> None:
    """As the other doors are fuzzed: `tests/attacks/fuzz.py` has more of it, for real nodes."""
    async with serving(tmp_path, proxies=HERE) as node, ProxiedPeer(node.port, header()) as peer:
        sender = await peer.sender("trades")
        first = random.randrange(1 << 30)
        for seed in range(first, first + 60):
            rng = random.Random(seed)
            await fuzz.converse(rng, node.port, fuzz.proxied(rng))
        await peer.send(sender, [b"\x00Su\xa0\x01x"])
        await peer.states(sender, 1)
        await eventually(lambda: node.listener.counters.connections_open == 1)


def test_any_bytes_are_a_header_or_a_reason() -> None:
    rng = random.Random(7)
    for _ in range(20_000):
        said = bytearray(header(more=rng.randbytes(rng.randrange(20))))
        for _ in range(rng.randrange(4)):
            said[rng.randrange(len(said))] = rng.randrange(256)
        fixed, rest = bytes(said[:FIXED_BYTES]), bytes(said[FIXED_BYTES:])
        try:
            found = client_of(fixed, rest[: rest_bytes(fixed)])
        except BadHeader:
            continue
        assert found is None or ipaddress.ip_address(found[0])


def test_a_client_of_ipv4_has_one_address_however_written() -> None:
    for written in ("198.51.100.7", "::ffff:198.51.100.7"):
        said = header(written)
        assert client_of(said[:FIXED_BYTES], said[FIXED_BYTES:]) == ("198.51.100.7", 4711)


async def test_a_second_header_is_not_for_this_listener(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client behind the proxy may send one as well, and names nobody by it."""
    async with serving(tmp_path, proxies=HERE) as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(header("198.51.100.7") + header("127.0.0.1") + AMQP)
        await reader.read()
        writer.close()
        assert "not expected here" in caplog.text
        assert "('198.51.100.7', 4711)" in caplog.text


def test_networks_hold_addresses_of_both_kinds_however_written() -> None:
    networks = (ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("fe80::/10"))
    assert is_among("192.0.2.9", networks)
    assert is_among("::ffff:192.0.2.9", networks)
    assert is_among("fe80::1%eth0", networks)
    assert not is_among("198.51.100.1", networks)
