"""Strangers on the port between nodes: no node loses sight of another, no leader changes, nobody else notices."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import grpc
import pytest

from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.handshake import METADATA_KEY
from cluster.rpc.refusal_log import WHY
from cluster.versions import NEWEST
from tests.integration.clients.bad_input.test_bad_input_amqp import HTTP, TLS_HELLO, seeded
from tests.integration.clusters.cluster import Cluster
from tests.integration.workloads.plain import Heartbeat
from tests.integration.workloads.raw import AMQP_HEADER, Raw

pytestmark = pytest.mark.cluster

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
CALL_WITHIN_S = 60

ATTEMPTS = 10
"""A deed that disturbs nodes does so every time; a machine that is busy with other things, now and then."""

LOST = "link to node "
"""What a node logs when its stream to another one ends."""


class Others(Heartbeat):
    """They use a log whose every event needs the port that is abused."""

    def __init__(self, cluster: Cluster, log: str) -> None:
        super().__init__(cluster.address(1), cluster.address(2), log)
        self._cluster, self._name = cluster, log

    def undisturbed(self, deed: Callable[[], None]) -> None:
        """Do it, and see that no leader changed and no node lost sight of another."""
        noticed = ""
        for _ in range(ATTEMPTS):
            before, seen = self._cluster.leaders(self._name), self._logged()
            deed()
            self.wait_beats(2)  # one that began after the deed
            lost = {node: self._cluster.log(node)[seen[node] :].count(LOST) for node in seen}
            after = self._cluster.leaders(self._name)
            if after == before and not any(lost.values()):
                return
            noticed = f"leaders were {before} and are {after}; streams lost, by node: {lost}"
        raise AssertionError(f"{ATTEMPTS} times out of {ATTEMPTS}: {noticed}")

    def _logged(self) -> dict[int, int]:
        return {node: len(self._cluster.log(node)) for node in self._cluster.nodes}


@pytest.fixture
def others(cluster: Cluster, log_name: str) -> Iterator[Others]:
    log = cluster.create(log_name, 3)
    with Others(cluster, log) as found:
        yield found


@pytest.mark.parametrize("name", ["random", "TLS", "HTTP", "AMQP", "preface and more", "an enormous frame", "nothing"])
def test_foreign_bytes(cluster: Cluster, others: Others, name: str) -> None:
    noise = seeded()
    said = {
        "random": noise.randbytes(100_000),
        "TLS": TLS_HELLO,
        "HTTP": HTTP,
        "AMQP": AMQP_HEADER,
        "preface and more": PREFACE + noise.randbytes(100_000),
        "an enormous frame": PREFACE + SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + noise.randbytes(1000),
        "nothing": b"",
    }[name]

    def deed() -> None:
        peers = [Raw(cluster.nodes[1].rpc).send(said) for _ in range(10)]
        others.wait_beats(10)
        for peer in peers:
            peer.close()

    others.undisturbed(deed)


def test_frames_cut_anywhere(cluster: Cluster, others: Others) -> None:
    noise = random.Random(1)
    whole = PREFACE + SETTINGS + bytes(noise.randrange(256) for _ in range(64))

    def deed() -> None:
        for cut in range(0, len(whole), 7):
            Raw(cluster.nodes[1].rpc).send(whole[:cut]).close()

    others.undisturbed(deed)


def hello(cluster: str, node: int, dialled: int, protocol: int = NEWEST) -> bytes:
    return pb.Hello(cluster=cluster, node=node, dialled=dialled, protocol=protocol).SerializeToString()


@pytest.mark.parametrize("fault", ["cluster", "node", "dialled", "protocol", "no hello", "garbled hello"])
def test_a_node_that_does_not_belong_is_told_where_it_stands_why(cluster: Cluster, others: Others, fault: str) -> None:
    given = {
        "cluster": (hello("another", 2, 1), "cluster 'another'"),
        "node": (hello(cluster.name, 9, 1), "node 9 of cluster"),
        "dialled": (hello(cluster.name, 2, 3), "took this for node 3"),
        "protocol": (hello(cluster.name, 2, 1, 99), "version 99"),
        "no hello": (None, "Hello"),
        "garbled hello": (b"\xff\xff\xff", "Hello"),
    }
    said, word = given[fault]
    metadata = [(METADATA_KEY, said)] if said is not None else []

    def deed() -> None:
        with grpc.insecure_channel(cluster.nodes[1].rpc) as channel:
            for method in ("Admin/Execute", "Partition/Info"):
                call = channel.unary_unary(f"/cluster.rpc.{method}")
                with pytest.raises(grpc.RpcError) as refusal:
                    call(b"", metadata=metadata, timeout=CALL_WITHIN_S)
                assert refusal.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                told = str(refusal.value.details())
                assert told.startswith(WHY)
                reference = told.removeprefix(WHY)
                line = next(line for line in cluster.log(1).splitlines() if reference in line)
                assert word in line

    others.undisturbed(deed)


def test_nonsense_from_a_peer_changes_nothing(cluster: Cluster, others: Others) -> None:
    """It has a proper Hello, and then says things that are no commands, no requests, or far too long."""
    before = cluster.call(lambda admin: admin.list_logs())
    metadata = [(METADATA_KEY, hello(cluster.name, 2, 1))]
    noise = seeded()
    options = [("grpc.max_send_message_length", -1)]

    def deed() -> None:
        with grpc.insecure_channel(cluster.nodes[1].rpc, options=options) as channel:
            for said in (noise.randbytes(1000), b"\xff" * 100, bytes(80 << 20)):
                for method in ("Admin/Execute", "Partition/Info", "No/Such"):
                    call = channel.unary_unary(f"/cluster.rpc.{method}")
                    with pytest.raises(grpc.RpcError):
                        call(said, metadata=metadata, timeout=CALL_WITHIN_S)
            execute = channel.unary_unary("/cluster.rpc.Admin/Execute")
            for command in (
                b"",
                b"\0",
                noise.randbytes(1000),
            ):  # these reach the metadata group, which refuses them
                for _ in range(3):
                    with contextlib.suppress(grpc.RpcError):
                        execute(pb.AdminRequest(command=command).SerializeToString(), metadata=metadata, timeout=5)
        others.wait_beats(5)

    others.undisturbed(deed)
    assert cluster.call(lambda admin: admin.list_logs()) == before
