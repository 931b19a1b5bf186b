"""Certificates between nodes come and go while clients publish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli.local_cluster.authority import NodeAuthority, write_private
from tests.integration.clusters.cluster import Cluster
from tests.integration.judges.judging import judge, start_producers

pytestmark = pytest.mark.cluster


def test_certificates_and_their_authority_are_renewed_under_load_and_nothing_is_lost(
    make_cluster: Callable[..., Cluster], log_name: str, tmp_path: Path
) -> None:
    """No node is restarted for it. Afterwards each is, so that every connection is one of the new certificates, which
    are taken by processes that began with the old ones."""
    files = tmp_path / "certificates"
    files.mkdir()
    ca = files / "ca.pem"
    cluster = make_cluster(peer_tls=files)
    old, new = NodeAuthority(cluster.name), NodeAuthority(cluster.name)
    old.write(ca)
    issue(old, cluster, files)
    cluster.start()
    cluster.create(log_name, 3)
    cluster.wait_settled(log_name)
    producers = start_producers(cluster, log_name)

    def go_on() -> None:
        for producer in producers:
            producer.wait_for(50)

    go_on()
    old_pem = ca.read_bytes()
    new.write(ca)
    new_pem = ca.read_bytes()
    write_private(ca, old_pem + new_pem)
    go_on()
    issue(new, cluster, files)
    go_on()
    write_private(ca, new_pem)
    for node in cluster.nodes:
        cluster.kill(node)
        go_on()
        cluster.start(node)
        cluster.wait_led(log_name)
        go_on()
    judge(cluster, log_name, producers)


def issue(authority: NodeAuthority, cluster: Cluster, files: Path) -> None:
    for node in cluster.nodes:
        authority.issue(node, files / f"node{node}.pem", files / f"node{node}.key")
