"""Nodes that trust certificates only: who has none of a node is nobody, whatever it says and whatever it knows."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from cluster.raft import RaftMessage
from cluster.rpc import CertificateFault, PeerTls, shared_port
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.grpc_calls import methods
from cluster.rpc.handshake import hello_to
from cluster.rpc.options import channel_options
from cluster.rpc.peer_tls import NOT_A_NODE, node_host
from cluster.rpc.raft_transport.errors import StreamRefused
from cluster.rpc.raft_transport.frame_writer import FRAME_HELLO, submessage
from cluster.rpc.raft_transport.stream_protocol import DiallerEnd
from cluster.rpc.refusal_log import WHY
from holdfast.cli.local_cluster.authority import NodeAuthority
from tests.authority import Authority as AnyAuthority
from tests.ports import free_port
from tests.unit.rpc.support import MemoryPartition, TestNode, notice_no_silence, questions, until

CLUSTER = "dev"
GROUP = 5


class Hosts:
    """The files of two nodes, and of such as are none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = str(directory / "ca.pem")
        self.authority = NodeAuthority(CLUSTER)
        self.authority.write(Path(self.ca))
        for node in (1, 2, 3):
            self.issue(node)

    def issue(self, node: int, cluster: str = "") -> tuple[str, str]:
        cert, key = (self.directory / f"{cluster}{node}{end}" for end in (".pem", ".key"))
        if cluster:
            self.authority._cluster, before = cluster, self.authority._cluster
        self.authority.issue(node, cert, key)
        if cluster:
            self.authority._cluster = before
        return str(cert), str(key)

    def tls(self, node: int) -> PeerTls:
        return PeerTls(CLUSTER, self.ca, str(self.directory / f"{node}.pem"), str(self.directory / f"{node}.key"))


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


@pytest_asyncio.fixture
async def pair(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[int, TestNode]]:
    notice_no_silence(monkeypatch)  # of a machine that is busy
    addresses = {node: f"127.0.0.1:{free_port()}" for node in (1, 2)}
    nodes = {node: TestNode(node, addresses, cluster=CLUSTER, tls=hosts.tls(node)) for node in (1, 2)}
    for node in nodes.values():
        node.groups[GROUP] = MemoryPartition()
        await node.network.start()
    await nodes[1].up(2)
    await nodes[2].up(1)
    yield nodes
    for node in nodes.values():
        await node.network.stop()


async def test_nodes_talk(pair: dict[int, TestNode]) -> None:
    pair[1].network.send(2, [RaftMessage(group=7)])
    await until(lambda: pair[2].heard, "a message")
    assert await pair[1].network.client(2).execute(b"x", 60.0) == b"done:x"


def secure(port: int, ca: bytes, cert: bytes | None, key: bytes | None, name: str = node_host(CLUSTER, 2)) -> Any:
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    return grpc.aio.secure_channel(
        f"127.0.0.1:{port}", credentials, options=[*channel_options(), ("grpc.ssl_target_name_override", name)]
    )


def with_files(port: int, hosts: Hosts, files: tuple[str, str] | None) -> Any:
    cert, key = (None, None) if files is None else (Path(name).read_bytes() for name in files)
    return secure(port, Path(hosts.ca).read_bytes(), cert, key)


def strangers(hosts: Hosts, tmp_path: Path) -> dict[str, Callable[[int], Any]]:
    """What somebody may come with who knows all of the protocol, and the names of cluster and nodes."""
    other = AnyAuthority(tmp_path / "other")
    foreign = other.issue("node", [node_host(CLUSTER, 1)], uris=[f"holdfast://{CLUSTER}/node/1"])
    client = hosts.issue(1, "no-cluster-")  # of the same authority, and no node's of this cluster
    return {
        "no TLS": lambda port: grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=channel_options()),
        "no certificate": lambda port: with_files(port, hosts, None),
        "of another authority": lambda port: with_files(port, hosts, (foreign.cert, foreign.key)),
        "a client's": lambda port: with_files(port, hosts, client),
        "another node's": lambda port: with_files(port, hosts, hosts.issue(3)),
    }


@pytest.mark.parametrize("kind", ["no TLS", "no certificate", "of another authority", "a client's", "another node's"])
async def test_a_stranger_gets_nothing_and_learns_nothing(
    pair: dict[int, TestNode], hosts: Hosts, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "holdfast.rpc")
    before, references = list(pair[2].events), set()
    channel = strangers(hosts, tmp_path)[kind](pair[2].network.port)
    try:
        # With a Hello that is as good as that of node 1.
        for what, ask in questions(channel, hello_to(2, cluster=CLUSTER, self_id=1)).items():
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await ask()
            told, code = refusal.value.details() or "", refusal.value.code()
            if kind in ("a client's", "another node's"):
                assert code is grpc.StatusCode.PERMISSION_DENIED, what
                assert re.fullmatch(f"{NOT_A_NODE}: {WHY}[0-9a-f]{{8}}", told), (what, told)
                references.add(told[-8:])
            else:  # it never comes to a call; the text is this side's own
                assert code is grpc.StatusCode.UNAVAILABLE, (what, told)
                assert "protocol" not in told, told
    finally:
        await channel.close()
    for reference in references:  # one: what does not fit is the same in each
        assert [reference in line and "node 1" in line for line in caplog.messages].count(True) == 1
    assert pair[2].heard == []
    assert pair[2].executed == []
    assert pair[2].groups[GROUP].requests == 0
    assert pair[2].events == before
    pair[1].network.send(2, [RaftMessage(group=7)])
    await until(lambda: pair[2].heard, "a message from the true node")


async def test_a_stream_of_a_node_that_says_it_is_another_one_is_refused(
    pair: dict[int, TestNode], hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    stream = DiallerEnd(2, f"127.0.0.1:{pair[2].network.port}", hosts.tls(3))
    await stream.write(submessage(FRAME_HELLO, hello_to(2, cluster=CLUSTER, self_id=1)))
    error = await stream.wait_over()
    stream.hang_up()
    assert isinstance(error, StreamRefused)
    assert re.fullmatch(f"{WHY}[0-9a-f]{{8}}", str(error))
    assert [str(error)[-8:] in line and "names holdfast://dev/node/3" in line for line in caplog.messages].count(
        True
    ) == 1
    assert pair[2].events == [("up", 1)]


async def test_frames_without_tls_do_not_come_through(pair: dict[int, TestNode]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", pair[2].network.port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 100)
    try:
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        answer = b""
    writer.close()
    assert b"\x04\x00\x00\x00\x00\x00" not in answer, "no settings of HTTP/2"
    assert pair[2].heard == []


async def test_a_node_is_dialled_as_itself(pair: dict[int, TestNode], hosts: Hosts) -> None:
    """Node 2's address, but node 1 is meant: the certificate of who answers is not that node's."""
    channel = hosts.tls(1).channel(1, f"127.0.0.1:{pair[2].network.port}")
    with pytest.raises(grpc.aio.AioRpcError):
        await methods.info_call(channel)(pb.InfoRequest(group=GROUP), timeout=30)
    await channel.close()


async def test_certificates_are_renewed_without_a_restart(pair: dict[int, TestNode], hosts: Hosts) -> None:
    """A new authority on both sides: what is open stays, what is dialled anew is of the new one."""
    client = pair[1].network.client(2)
    assert await client.execute(b"before", 60.0) == b"done:before"
    fresh = hosts.directory / "fresh"
    fresh.mkdir()
    Hosts(fresh)
    for path in sorted(fresh.iterdir()):
        shutil.copy(path, hosts.directory / path.name)
        os.utime(hosts.directory / path.name, ns=(1, 1))
    assert await client.execute(b"after", 60.0) == b"done:after"
    assert pair[1].events == [("up", 2)], "the streams of Raft were never cut"


def test_files_that_do_not_fit_are_told(hosts: Hosts) -> None:
    with pytest.raises(CertificateFault, match=r"1\.pem"):
        PeerTls(CLUSTER, hosts.ca, str(hosts.directory / "1.pem"), str(hosts.directory / "2.key"))
    with pytest.raises(CertificateFault):
        PeerTls(CLUSTER, str(hosts.directory / "none"), str(hosts.directory / "1.pem"), str(hosts.directory / "1.key"))


def test_keys_are_for_their_owner(hosts: Hosts) -> None:
    assert {path.stat().st_mode & 0o777 for path in hosts.directory.iterdir() if path.is_file()} == {0o640}


async def test_handshakes_that_fail_are_few(pair: dict[int, TestNode], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the event loop a while; the nodes of another address are not kept waiting for them."""
    monkeypatch.setattr(shared_port, "FAILED_HANDSHAKE_S", 60.0)
    port = pair[1].network.port

    async def greeted(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        writer.write(shared_port.GREETING)
        assert await reader.readexactly(len(shared_port.GREETING)) == shared_port.GREETING
        return reader, writer

    garbage = b"\x16\x03\x01\x00\x05" + bytes(5)
    for _ in range(shared_port.HANDSHAKES + 3):
        reader, writer = await greeted("127.0.0.2")
        writer.write(garbage)
        assert not await reader.read()
        writer.close()
    reader, writer = await greeted("127.0.0.3")
    writer.write(garbage)
    assert not await reader.read()
    writer.close()
    assert pair[1].network._shared_port._handshakes == {"127.0.0.2": shared_port.HANDSHAKES, "127.0.0.3": 1}
    pair[1].network.send(2, [RaftMessage(group=7)])
    await until(lambda: pair[2].heard, "the message")


async def test_streams_trust_what_calls_trust(hosts: Hosts) -> None:
    """An authority in `ca_file` may have one above it, and a common name is no name."""
    tls = hosts.tls(1)
    for context in (tls.listener_context(), tls.dialler_context()):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert tls.dialler_context().check_hostname
    assert not tls.dialler_context().hostname_checks_common_name
