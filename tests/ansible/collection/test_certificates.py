"""The module that makes and renews the certificates of a cluster's nodes: what it makes is what nodes take."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from cluster.rpc import PeerTls
from cluster.rpc.peer_tls import node_host, node_uri
from tests.ansible.collection.test_files_module import RUN
from tests.ansible.playbooks import COLLECTION, ansible_directory

pytestmark = pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it")

CLUSTER = "prod"


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    directory = tmp_path / "certificates"

    def make(check: bool = False, **wanted: Any) -> dict[str, Any]:
        programs = ansible_directory()
        assert programs is not None
        usual = {"directory": str(directory), "cluster": CLUSTER, "nodes": [1, 2]}
        done = subprocess.run(
            [str(programs / "python"), "-c", RUN, str(COLLECTION / "library/holdfast_certificates.py"),
             json.dumps({**usual, **wanted, "_ansible_check_mode": check})],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        told = dict(json.loads(done.stdout))
        told["written"] = [Path(path).name for path in told.get("written", [])]
        return told

    return make


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_nodes_take_what_it_makes_and_a_second_call_has_nothing_to_do(
    made: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    directory = tmp_path / "certificates"
    assert made(check=True)["written"] == ["ca.pem", "node-1.pem", "node-2.pem"]
    assert not directory.exists()
    assert made()["written"] == ["ca.pem", "node-1.pem", "node-2.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for node in (1, 2):
        PeerTls(CLUSTER, *(str(directory / name) for name in ("ca.pem", f"node-{node}.pem", f"node-{node}.key")))
        carried = certificate(directory / f"node-{node}.pem").extensions
        names = carried.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.UniformResourceIdentifier) == [node_uri(CLUSTER, node)]
        assert names.get_values_for_type(x509.DNSName) == [node_host(CLUSTER, node)]
    assert not made()["changed"]
    assert made(nodes=[1, 2, 3])["written"] == ["node-3.pem"]


def test_what_ends_soon_or_belongs_to_somebody_else_is_made_anew(
    made: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    directory = tmp_path / "certificates"
    made(days=60, renew_days=30)
    first = (directory / "ca.pem").read_bytes()
    assert not made(days=60, renew_days=30)["changed"]
    assert made()["written"] == ["node-1.pem", "node-2.pem"], "60 days are left, and 90 wanted"
    for end in ("pem", "key"):
        shutil.copy(directory / f"node-1.{end}", directory / f"node-2.{end}")
    assert made()["written"] == ["node-2.pem"]
    shutil.copy(directory / "node-1.key", directory / "node-2.key")
    assert made()["written"] == ["node-2.pem"], "certificate and key do not belong together"
    os.unlink(directory / "node-1.key")
    assert made()["written"] == ["node-1.pem"]
    assert (directory / "ca.pem").read_bytes() == first


def test_an_authority_that_ends_is_renewed_and_both_vouch_for_all(
    made: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    directory = tmp_path / "certificates"
    made()
    before = certificate(directory / "ca.pem")
    os.unlink(directory / "ca.pem")  # its key stays, as when it ends
    assert made()["written"] == ["ca.pem"]
    after = certificate(directory / "ca.pem")
    assert after != before
    assert made(nodes=[3])["written"] == ["node-3.pem"]
    for authority in (before, after):
        for node in (1, 3):
            certificate(directory / f"node-{node}.pem").verify_directly_issued_by(authority)


def test_a_lost_key_and_wrong_days_are_said(made: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    made()
    os.unlink(tmp_path / "certificates" / "ca.key")
    told = made()
    assert told["failed"]
    assert "bring the key back" in told["msg"]
    assert "renew_days must be less than days" in made(days=10)["msg"]


def test_what_another_authority_signed_is_made_anew(made: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    made()
    for name in ("ca.pem", "ca.key"):
        os.unlink(tmp_path / "certificates" / name)
    assert made()["written"] == ["ca.pem", "node-1.pem", "node-2.pem"]
