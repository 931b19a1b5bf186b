"""Connections through TLS: from the first byte, or started in AMQP's own words; and those at the wrong door."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import SSLDomain
from proton.utils import BlockingConnection

from holdfast.amqp.framing.handshake import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from holdfast.client import AdminClient, AuthenticationError, HoldfastError, NetworkOptions, Security
from holdfast.client.sync import AdminClient as SyncAdminClient
from node.security.tls import Certificate, CertificateError, ServerTls, TlsFiles
from tests.authority import Authority
from tests.unit.listener.support.peer import eventually

MakeTls = Callable[..., ServerTls]


def admin(port: int, **security: Any) -> AdminClient:
    return AdminClient(
        f"127.0.0.1:{port}", timeout_s=60, options=NetworkOptions(security=Security(**security), first_contact_s=0.1)
    )


def client_context(authority: Authority, **options: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    for name, value in options.items():
        setattr(context, name, value)
    return context


def shown_to(port: int, context: ssl.SSLContext, name: str = "127.0.0.1") -> ssl.SSLSocket:
    """A blocking TLS connection, for what asyncio hides."""
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname=name)


async def sent_away(port: int, said: bytes, **options: Any) -> None:
    """The node ends the connection, and has answered nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    writer.write(said)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def test_our_clients_speak_tls(serving: Any, tls: MakeTls, authority: Authority) -> None:
    async with serving(tls=tls()) as node:
        async with admin(node.port, ca=authority.ca) as client:
            assert [log["name"] for log in await client.list_logs()] == ["trades"]

        def blocking() -> list[Any]:
            options = NetworkOptions(security=Security(ca=authority.ca))
            with SyncAdminClient(f"127.0.0.1:{node.port}", options=options) as client:
                return client.list_logs()

        assert await asyncio.to_thread(blocking)


async def test_a_stock_client_speaks_tls(serving: Any, tls: MakeTls, authority: Authority) -> None:
    async with serving(tls=tls()) as node:

        def talk() -> None:
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(authority.ca)
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            connection = BlockingConnection(f"amqps://localhost:{node.port}", ssl_domain=domain, timeout=60)
            connection.create_sender("trades")
            connection.close()

        await asyncio.to_thread(talk)


async def test_a_server_that_nobody_vouches_for_is_not_believed(
    serving: Any, tls: MakeTls, tmp_path: Path, authority: Authority
) -> None:
    other = Authority(tmp_path / "other")
    async with serving(tls=tls()) as node:
        for security in ({"ca": other.ca}, {"tls": True}):
            with pytest.raises(AuthenticationError, match="not believed"):
                async with admin(node.port, **security) as client:
                    await client.list_logs()
        elsewhere = authority.issue("elsewhere", ["elsewhere.example"])
    async with serving(tls=ServerTls(TlsFiles(Certificate(elsewhere.cert, elsewhere.key)))) as node:
        with pytest.raises(AuthenticationError, match="not believed"):
            async with admin(node.port, ca=authority.ca) as client:
                await client.list_logs()


async def test_what_is_agreed_on(serving: Any, tls: MakeTls, authority: Authority) -> None:
    """ALPN, the certificate for the name that is asked for, and no version before 1.2."""
    special = authority.issue("special", ["special.example"])
    by_name = {"special.example": Certificate(special.cert, special.key)}
    async with serving(tls=tls(by_name=by_name)) as node:
        context = client_context(authority)
        context.set_alpn_protocols(["h2", "amqp"])

        def seen(name: str) -> tuple[str | None, Any]:
            with shown_to(node.port, context, name) as connection:
                return connection.selected_alpn_protocol(), connection.getpeercert()["subject"]  # type: ignore[index]

        assert await asyncio.to_thread(seen, "special.example") == ("amqp", ((("commonName", "special"),),))
        assert (await asyncio.to_thread(seen, "localhost"))[1] == ((("commonName", "node"),),)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            versions = {"minimum_version": ssl.TLSVersion.TLSv1, "maximum_version": ssl.TLSVersion.TLSv1_1}
            old = client_context(authority, **versions)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(shown_to, node.port, old)


async def test_a_certificate_may_be_required_of_clients(
    serving: Any, tls: MakeTls, authority: Authority, tmp_path: Path
) -> None:
    ann = authority.issue("ann")
    stranger = Authority(tmp_path / "other").issue("ann")
    async with serving(tls=tls(client_certificate_required=True)) as node:
        async with admin(node.port, ca=authority.ca, cert=ann.cert, key=ann.key, mechanism="ANONYMOUS") as client:
            await client.list_logs()
        for files in ({}, {"cert": stranger.cert, "key": stranger.key, "mechanism": "ANONYMOUS"}):
            with pytest.raises(HoldfastError):
                async with admin(node.port, ca=authority.ca, **files) as client:
                    await client.list_logs()


async def test_tls_may_start_on_a_plain_port(serving: Any, tls: MakeTls, authority: Authority) -> None:
    async with serving(tls=tls(), tls_mode="start") as node:
        async with admin(node.port) as client:
            await client.list_logs()

        def started(pieces: list[bytes]) -> bytes:
            plain = socket.create_connection(("127.0.0.1", node.port))
            for piece in pieces:
                plain.sendall(piece)
            assert plain.recv(8) == TLS_HEADER
            with client_context(authority).wrap_socket(plain, server_hostname="127.0.0.1") as secured:
                secured.sendall(SASL_HEADER)
                return secured.recv(8)

        assert await asyncio.to_thread(started, [TLS_HEADER]) == SASL_HEADER
        assert await asyncio.to_thread(started, [TLS_HEADER[:5], TLS_HEADER[5:]]) == SASL_HEADER

        def without_waiting() -> bytes:
            """The hello in one piece with the request: nothing of it is lost."""
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            secured = client_context(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            with pytest.raises(ssl.SSLWantReadError):
                secured.do_handshake()
            plain = socket.create_connection(("127.0.0.1", node.port))
            plain.sendall(TLS_HEADER + outgoing.read())
            return plain.recv(9, socket.MSG_WAITALL)

        assert await asyncio.to_thread(without_waiting) == TLS_HEADER + b"\x16"


@pytest.mark.parametrize(
    ("mode", "said", "word"),
    [
        ("on", SASL_HEADER, "AMQP; connect with TLS"),
        ("on", b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        ("start", b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS hello"),
        ("off", b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS hello"),
        ("off", b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        ("off", TLS_HEADER, "start TLS"),
    ],
)
async def test_who_is_at_the_wrong_door_is_noted(
    serving: Any, tls: MakeTls, caplog: pytest.LogCaptureFixture, mode: str, said: bytes, word: str
) -> None:
    config = {} if mode == "off" else {"tls": tls(), "tls_mode": mode}
    async with serving(**config) as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(said)
        answer = await reader.read()
        writer.close()
        if mode == "off" and said.startswith(b"GET"):
            assert answer.startswith(b"HTTP/1.1 426 Upgrade Required")  # in its own words: WebSocket is served
        else:
            assert answer == (TLS_HEADER if mode == "on" else AMQP_HEADER)
        await eventually(lambda: any(word in record.getMessage() for record in caplog.records))


async def test_who_does_not_begin_is_sent_away(serving: Any, tls: MakeTls, authority: Authority) -> None:
    """Silent; silent after a piece of a header; silent in the midst of TLS; silent behind it."""
    async with serving(tls=tls(), handshake_timeout_s=0.3) as node:
        for said in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
            await sent_away(node.port, said)
        await sent_away(node.port, b"", ssl=client_context(authority))
    async with serving(tls=tls(), tls_mode="start", handshake_timeout_s=0.3) as node:
        await sent_away(node.port, TLS_HEADER[:6])


async def test_certificates_are_renewed_while_clients_are_connected(
    serving: Any, tls: MakeTls, authority: Authority
) -> None:
    now = [100.0]
    files = authority.issue("before", ["127.0.0.1"], file="renewed")
    server = ServerTls(TlsFiles(Certificate(files.cert, files.key)), lambda: now[0])
    key = Path(files.key)
    async with serving(tls=server) as node, admin(node.port, ca=authority.ca) as before:
        await before.list_logs()

        async def name() -> str:
            connection = await asyncio.to_thread(shown_to, node.port, client_context(authority))
            with connection:
                return str(connection.getpeercert()["subject"][0][0][1])  # type: ignore[index]

        assert await name() == "before"
        good = await asyncio.to_thread(key.read_bytes)
        await asyncio.to_thread(key.write_bytes, b"half of it")
        now[0] += 2
        assert await name() == "before", "what does not fit is not used"
        await asyncio.to_thread(key.write_bytes, good)
        authority.issue("after", ["127.0.0.1"], file="renewed")
        os.utime(files.cert, ns=(1, 1))
        now[0] += 2
        assert await name() == "after"
        await before.list_logs()


def test_bad_files_are_told_at_once(authority: Authority, tmp_path: Path) -> None:
    one, two = authority.issue("one"), authority.issue("two")
    for cert, key in ((one.cert, two.key), (one.cert, str(tmp_path / "none")), (one.key, one.key)):
        with pytest.raises(CertificateError, match="PEM"):
            ServerTls(TlsFiles(Certificate(cert, key)))
    with pytest.raises(CertificateError, match="PEM"):
        ServerTls(TlsFiles(Certificate(one.cert, one.key), client_ca_file=one.key))
