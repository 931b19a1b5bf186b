"""`holdfast cluster up --tls`: nodes that take nobody for a node who has no certificate of their authority."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import grpc
import pytest

from cluster.rpc import peer_tls
from cluster.rpc.grpc_calls import methods
from cluster.rpc.handshake import METADATA_KEY, hello_to
from cluster.rpc.rpc_pb2 import AdminRequest
from holdfast.cli.local_cluster.authority import NodeAuthority
from tests.ports import cluster_ports

pytestmark = pytest.mark.cluster


def holdfast(*words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words, "--json", "--config", "/dev/null"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


async def test_a_cluster_with_an_authority_of_its_own(tmp_path: Path) -> None:
    at = ("--dir", str(tmp_path / "c"))
    up = holdfast("cluster", "up", *at, *cluster_ports(3), "--nodes", "3", "--tls", "--detach", "--name", "sealed")
    try:
        server = up["nodes"][1]["amqp"]
        described = holdfast("log", "create", "sealed", "--partitions", "3", "--server", server)
        assert {one["leader"] for one in described["partitions"]} <= {1, 2, 3}
        modes = {
            path.name: path.stat().st_mode & 0o777
            for path in (tmp_path / "c").rglob("node*")
            if path.suffix in (".toml", ".key", ".pem", ".log", ".pid") or path.is_dir()
        }
        assert modes["node.key"] == modes["node.toml"] == modes["node.log"] == 0o640
        assert modes["node1"] == 0o750
        await _is_refused(tmp_path / "c", up["nodes"][0]["rpc"])
    finally:
        holdfast("cluster", "down", *at)


async def _is_refused(directory: Path, rpc: str) -> None:
    hello = ((METADATA_KEY, hello_to(1, cluster="sealed", self_id=2).SerializeToString()),)
    plain = grpc.aio.insecure_channel(rpc)
    with pytest.raises(grpc.aio.AioRpcError):
        await methods.execute_call(plain)(AdminRequest(command=b"x"), timeout=30, metadata=hello)
    await plain.close()
    config = tomllib.loads((directory / "node3" / "node.toml").read_text())["cluster"]
    third = peer_tls.PeerTls("sealed", config["ca_file"], config["cert_file"], config["key_file"])
    channel = third.channel(1, rpc)
    with pytest.raises(grpc.aio.AioRpcError, match=peer_tls.NOT_A_NODE):  # node 3 says that it is node 2
        await methods.execute_call(channel)(AdminRequest(command=b"x"), timeout=30, metadata=hello)
    await channel.close()


def test_both_sides_know_the_names_of_nodes(tmp_path: Path) -> None:
    """The authority belongs to the command line, which may not look into the nodes' code."""
    from cryptography import x509

    NodeAuthority("a.b_c").issue(7, tmp_path / "cert", tmp_path / "key")
    certificate = x509.load_pem_x509_certificate((tmp_path / "cert").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [peer_tls.node_uri("a.b_c", 7)]
    assert names.get_values_for_type(x509.DNSName) == [peer_tls.node_host("a.b_c", 7)]
