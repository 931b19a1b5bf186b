"""What strangers, broken peers and attackers send to the AMQP port: it costs them their connection, and nobody else.

Every test runs beside a client that goes on producing and consuming (`Heartbeat`), and ends with it having lost
nothing.
"""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
from proton import Message, uint
from proton.utils import LinkDetached, SendException

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.workloads.plain import (
    Bound,
    Heartbeat,
    connected,
    read,
    send,
    starting,
)
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
    raw,
)

pytestmark = pytest.mark.cluster

CONNECTIONS = number_from("HOLDFAST_CONNECTIONS", 2000)

SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(200))
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def seeded() -> random.Random:
    """Shown when the test fails; HOLDFAST_SEED replays it."""
    print(f"HOLDFAST_SEED={SEED}")
    return random.Random(SEED)


@pytest.fixture
def log(cluster: Cluster, log_name: str) -> str:
    return cluster.create(log_name, 1)


@pytest.fixture
def others(cluster: Cluster, log_name: str) -> Iterator[Heartbeat]:
    """Somebody else's work: into the very node that is abused, and out of another one."""
    own = cluster.create(f"{log_name}-others", 1)
    with Heartbeat(cluster.address(1), cluster.address(2), own) as heartbeat:
        yield heartbeat


# ------------------------------------------------------------------------------------------------- not AMQP


@pytest.mark.parametrize("name", ["random", "zeros", "TLS", "HTTP", "HTTP/2", "AMQP 0-9-1", "AMQP with TLS inside"])
def test_what_is_not_amqp_gets_our_header_and_the_door(cluster: Cluster, others: Heartbeat, name: str) -> None:
    """The specification's answer to a header that is not understood: the header that would be. HTTP is understood as
    far as it asks for a WebSocket."""
    noise = seeded()
    said = {
        "random": noise.randbytes(4096),
        "zeros": bytes(4096),
        "TLS": TLS_HELLO,
        "HTTP": HTTP,
        "HTTP/2": HTTP2,
        "AMQP 0-9-1": b"AMQP\x00\x00\x09\x01",
        "AMQP with TLS inside": b"AMQP\x02\x01\x00\x00",
    }[name]
    with raw(cluster.address(1)) as peer:
        answer = peer.send(said).read_to_end()
    assert answer[:4] == (b"HTTP" if name == "HTTP" else b"AMQP"), f"{answer!r}"


def test_a_peer_that_says_nothing_or_little_harms_nobody(cluster: Cluster, others: Heartbeat) -> None:
    """Half-open: connections that never get as far as an AMQP open, and some that vanish in the middle of a word."""
    openings = [b"", b"A", AMQP_HEADER[:5], AMQP_HEADER, AMQP_HEADER + b"\x00\x00", SASL_HEADER]
    peers = [Raw(cluster.address(1)).send(opening) for opening in openings for _ in range(20)]
    for peer in peers[::2]:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, no goodbye
        peer.close()
    others.wait_beats(20)
    for peer in peers[1::2]:
        peer.close()


@pytest.mark.slow
def test_half_open_connections_are_shown_the_door(cluster: Cluster, others: Heartbeat) -> None:
    peers = [Raw(cluster.address(1)).send(opening) for opening in (b"", AMQP_HEADER, SASL_HEADER)]
    for peer in peers:
        peer.read_to_end(within_s=30.0)
        peer.close()


# ------------------------------------------------------------------------------------------------- not quite AMQP

FRAMES = {
    "a frame shorter than its head": struct.pack(">IBBH", 4, 2, 0, 0),
    "a frame of 3 GiB": struct.pack(">IBBH", 3 << 30, 2, 0, 0) + bytes(1000),
    "a frame larger than agreed": struct.pack(">IBBH", 10 << 20, 2, 0, 0) + bytes(100_000),
    "a head that reaches behind the frame": struct.pack(">IBBH", 16, 200, 0, 0) + bytes(8),
    "a frame of an unknown kind": struct.pack(">IBBH", 16, 2, 9, 0) + bytes(8),
    "a body that is no performative": struct.pack(">IBBH", 16, 2, 0, 0) + b"\x45" * 8,
    "an unknown performative": frame(0x99, []),
    "a truncated list": struct.pack(">IBBH", 13, 2, 0, 0) + b"\x00\x53\x11\xc0\xff",
    "a second open": frame(OPEN, ["again"]),
    "an attach without a session": frame(ATTACH, ["link", uint(0), False], channel=7),
    "a transfer without a link": frame(BEGIN, [None, uint(0), uint(10), uint(10)]) + frame(TRANSFER, [uint(3)]),
    "a flow without a session": frame(FLOW, [uint(0), uint(1), uint(0), uint(1)], channel=9),
    "an attach whose name is a number": frame(BEGIN, [None, uint(0), uint(10), uint(10)]) + frame(ATTACH, [17]),
    "values nested without end": struct.pack(">IBBH", 8 + 3 + 3000, 2, 0, 0) + b"\x00\x53\x10" + b"\x00" * 3000,
}


@pytest.mark.parametrize("name", FRAMES)
def test_broken_frames_end_in_a_close_with_the_reason(cluster: Cluster, others: Heartbeat, name: str) -> None:
    with raw(cluster.address(1)) as peer:
        peer.opened().send(FRAMES[name])
        peer.say_no_more()
        answer = peer.read_to_end()
    assert b"\x00\x53\x18" in answer, f"no close frame in {answer!r}"
    assert b"amqp:" in answer, f"no error condition in {answer!r}"


def test_frames_cut_at_every_place(cluster: Cluster, others: Heartbeat) -> None:
    whole = AMQP_HEADER + frame(OPEN, ["raw", "localhost", uint(65536)]) + frame(
        BEGIN, [None, uint(0), uint(10), uint(10)]
    )  # fmt: skip
    for cut in range(0, len(whole), 3):
        with raw(cluster.address(1)) as peer:
            peer.send(whole[:cut])
            peer.say_no_more()
            peer.read_to_end()


def test_random_bytes_after_a_proper_open(cluster: Cluster, others: Heartbeat) -> None:
    noise = seeded()
    for _ in range(60):
        with raw(cluster.address(1)) as peer:
            peer.begun()
            valid = frame(FLOW, [uint(0), uint(1), uint(0), uint(1)])
            damaged = bytearray(valid * 5)
            for _ in range(noise.randrange(1, 8)):
                damaged[noise.randrange(len(damaged))] = noise.randrange(256)
            peer.send(bytes(damaged))
            peer.say_no_more()
            peer.read_to_end()


def test_a_wrong_sasl_mechanism_is_answered(cluster: Cluster, others: Heartbeat) -> None:
    with raw(cluster.address(1)) as peer:
        peer.send(SASL_HEADER)
        assert peer.read_until(b"ANONYMOUS")
        peer.send(frame(SASL_INIT, ["SCRAM-SHA-999", b"whatever"], kind=1))
        answer = peer.read_to_end()
    assert b"\x00\x53\x44" in answer, f"no SASL outcome in {answer!r}"


# ------------------------------------------------------------------------------------------------- sizes


def test_an_oversize_message_is_refused_and_its_connection_lives(cluster: Cluster, log: str, others: Heartbeat) -> None:
    """The limit is told in the attach; a client that does not look sends it nevertheless."""
    with connected(cluster.address(1)) as connection:
        sender = connection.create_sender(log, name="big")
        limit = sender.link.remote_max_message_size
        assert limit == 4 << 20
        with pytest.raises((SendException, LinkDetached)) as refusal:
            sender.send(Message(body=bytes(limit + 1)))
        if isinstance(refusal.value, LinkDetached):
            assert refusal.value.condition == "amqp:link:message-size-exceeded"
        connection.create_sender(log, name="small").send(Message(body="fits"))


def test_a_message_without_end_is_cut_off(cluster: Cluster, log: str, others: Heartbeat) -> None:
    """Frame after frame of one delivery, for ever: memory stays bounded, the link is closed."""
    with raw(cluster.address(1)) as peer:
        peer.attached(log, sends=True)
        assert peer.read_until(b"\x00\x53\x13"), "no credit came"
        piece = frame(TRANSFER, [uint(0), uint(0), b"tag", uint(0), False, True], bytes(60_000))
        sent = 0
        before = memory_of(cluster, 1)
        peer.socket.settimeout(20)
        while sent < 64 << 20 and b"amqp:link:message-size-exceeded" not in peer.received:
            try:
                peer.socket.sendall(piece)
            except OSError:
                break
            sent += len(piece)
            peer.socket.setblocking(False)
            try:
                peer.received += peer.socket.recv(65536)
            except BlockingIOError:
                continue
            finally:
                peer.socket.settimeout(20)
        assert peer.read_until(b"amqp:link:message-size-exceeded")
        assert memory_of(cluster, 1) - before < 40 << 20


def memory_of(cluster: Cluster, node: int) -> int:
    process = cluster.nodes[node].process
    assert process is not None
    return int(psutil.Process(process.pid).memory_info().rss)


# ------------------------------------------------------------------------------------------------- credit


def test_transfers_without_credit_are_refused(cluster: Cluster, log: str, others: Heartbeat) -> None:
    """Far more than was granted, in one burst, settled or not: the link is closed, and what it was credited is kept."""
    body = b"\x00\x53\x77\xa1\x01x"
    with raw(cluster.address(1)) as peer:
        peer.attached(log, sends=True)
        assert peer.read_until(b"\x00\x53\x13"), "no credit came"
        burst = b"".join(
            frame(TRANSFER, [uint(0), uint(number), struct.pack(">I", number), uint(0), True], body)
            for number in range(20_000)
        )
        peer.send(burst)
        assert peer.read_until(b"amqp:link:transfer-limit-exceeded"), bytes(peer.received[-300:])


def flow(count: int, credit: int, drain: bool = False) -> bytes:
    """next-incoming-id, incoming-window, next-outgoing-id, outgoing-window, handle, delivery-count, link-credit, ..."""
    window = uint(2**31 - 1)
    return frame(FLOW, [uint(0), window, uint(0), window, uint(0), uint(count), uint(credit), None, drain])


def test_huge_credit_is_served(cluster: Cluster, log: str, others: Heartbeat) -> None:
    send(cluster.address(1), log, ["something"])
    for node in cluster.nodes:
        with raw(cluster.address(node)) as peer:
            peer.attached(log, sends=False).send(flow(0, 2**31 - 1))
            assert peer.read_until(b"something"), bytes(peer.received)


@pytest.mark.parametrize("credit", [2**31, 2**32 - 1], ids=["2^31", "minus one"])
def test_negative_credit_is_refused(cluster: Cluster, log: str, others: Heartbeat, credit: int) -> None:
    """Beyond 2^31 - 1 the protocol's arithmetic makes it negative."""
    send(cluster.address(1), log, ["something"])
    for node in cluster.nodes:
        with raw(cluster.address(node)) as peer:
            peer.attached(log, sends=False).send(flow(0, credit))
            assert peer.read_until(b"amqp:invalid-field"), bytes(peer.received)
            assert b"something" not in peer.received


def test_credit_that_goes_backwards_harms_nobody(cluster: Cluster, log: str, others: Heartbeat) -> None:
    """delivery-count far ahead of what was delivered: by the arithmetic of the protocol, a negative credit."""
    send(cluster.address(1), log, ["something"] * 20)
    with raw(cluster.address(1)) as peer:
        peer.attached(log, sends=False)
        for count, credit in ((5, 0), (0, 10), (0, 0), (0xFFFFFFF0, 1), (2**31, 5), (2**32 - 1, 2**32 - 1)):
            peer.send(flow(count, credit, drain=True))
        assert peer.read_until(b"amqp:invalid-field"), bytes(peer.received)


# ------------------------------------------------------------------------------------------------- slow and many


def test_a_peer_that_never_reads_costs_a_bounded_amount(cluster: Cluster, log: str, others: Heartbeat) -> None:
    size, count = 256 * 1024, 240
    with connected(cluster.address(2)) as connection:
        sender = connection.create_sender(log, options=[Bound("0")])
        for number in range(count):
            sender.send(Message(body=bytes([number]) * size))
    before = {node: memory_of(cluster, node) for node in cluster.nodes}
    peers = []
    for node in cluster.nodes:
        for _ in range(3):
            peer = Raw(cluster.address(node))
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            peer.attached(log, sends=False)
            peer.send(frame(FLOW, [uint(0), uint(2**31 - 1), uint(0), uint(0), uint(0), uint(0), uint(10_000)]))
            peers.append(peer)
    others.wait_beats(100)
    for node, bytes_before in before.items():
        grown = memory_of(cluster, node) - bytes_before
        assert grown < 64 << 20, f"node {node} grew by {grown >> 20} MiB for three readers of {count * size >> 20} MiB"
    for peer in peers:
        peer.close()


@pytest.mark.timeout(480)
def test_thousands_of_connections_are_served(cluster: Cluster, log: str, others: Heartbeat) -> None:
    """Each gets its AMQP open, some begin sessions; meanwhile others work; afterwards the node has given all back.

    They live in a process of their own: stock proton waits with select(), which knows no descriptor above 1023.
    """
    process = cluster.nodes[1].process
    assert process is not None
    handles_before = psutil.Process(process.pid).num_fds()
    command = [sys.executable, "-m", "tests.integration.clusters.many", cluster.address(1), str(CONNECTIONS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        try:
            said = crowd.stdout.readline()
            assert said.startswith("opened "), f"the crowd said {said!r}"
            print(said)
            assert int(said.split()[1]) >= 100, "the limit of open files (ulimit -n) is too low for this test"
            others.wait_beats(20)
            send(cluster.address(1), log, ["among thousands"])
        finally:
            crowd.stdin.close()
        assert crowd.wait(60) == 0
    wait_until(
        lambda: psutil.Process(process.pid).num_fds() < handles_before + 50, "the node has given the connections back"
    )


def test_nothing_was_lost_through_all_this(cluster: Cluster, log: str) -> None:
    """The node that was abused by the tests before still takes and gives."""
    send(cluster.address(1), log, list(range(10)))
    assert [event.body for event in read(cluster.address(1), log, 10)] == list(range(10))
    with connected(cluster.address(1)) as connection:
        receiver = connection.create_receiver(log, options=[starting(offset="@earliest")])
        started = time.monotonic()
        assert receiver.receive().body == 0
        assert time.monotonic() - started < 10
