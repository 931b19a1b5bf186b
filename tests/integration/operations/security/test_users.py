"""A cluster is closed by its first user, with the commands that its operator has; what they say holds on every node,
on links that are open, and after all nodes were killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import (
    AdminClient,
    AuthenticationError,
    HoldfastError,
    NetworkOptions,
    NotAuthorizedError,
    ProducerOptions,
    Security,
)
from holdfast.client.sync import ProducerClient
from tests.integration.clusters.cluster import Cluster, wait_until

pytestmark = pytest.mark.cluster


class Commands:
    """The command line, as one person uses it."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory

    def password(self, user: str, password: str) -> str:
        path = self._directory / f"{user}.password"
        path.write_text(password + "\n")
        return str(path)

    def run(self, *words: str, by: str = "", node: int = 1, status: int = 0) -> Any:
        who = ["--user", by, "--password-file", str(self._directory / f"{by}.password")] if by else []
        place = ["--server", self._cluster.address(node), "--config", "/dev/null", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *words, *who, *place],
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout if status == 0 else done.stderr)


def test_a_cluster_is_closed_and_stays_so(make_cluster: Callable[..., Cluster], log_name: str, tmp_path: Path) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.create(log_name, 1)
    do = Commands(cluster, tmp_path)
    assert do.run("whoami")["open_cluster"] is True

    refused = do.run("user", "add", "ann", "--new-password-file", do.password("ann", "pencil"), status=1)
    assert "administrator" in refused["error"]
    assert "administrator" in do.run("grant", "add", "ann", "publish", f"log:{log_name}", status=1)["error"]
    secret = do.password("root", "very secret")
    do.run("user", "add", "root", "--role", "admin", "--new-password-file", secret)
    assert "asks for a login" in do.run("user", "list", status=1, node=2)["error"], "the door is closed"
    cluster.settings.security = Security(user="root", password_file=secret)

    do.run("user", "add", "ann", "--new-password-file", str(tmp_path / "ann.password"), by="root", node=3)
    do.run("grant", "add", "ann", "publish", f"log:{log_name[:6]}*", by="root")
    assert [one["name"] for one in do.run("user", "list", by="root")["users"]] == ["ann", "root"]
    assert "may not" in do.run("user", "list", by="ann", status=1)["error"]
    assert do.run("whoami", by="ann") == {
        "principal": "ann", "mechanism": "SCRAM-SHA-512", "roles": [], "open_cluster": False, "expires_ms": None,
    }  # fmt: skip
    assert "may not" in do.run("log", "delete", log_name, "--yes", by="ann", status=1)["error"]
    assert "only administrator" in do.run("user", "remove", "root", by="root", status=1)["error"]

    options = ProducerOptions(network=NetworkOptions(security=Security(user="ann", password="pencil")))
    with ProducerClient(cluster.addresses, log_name, options=options) as producer:
        producer.send(b"allowed").result()
        do.run("grant", "remove", "ann", "publish", f"log:{log_name[:6]}*", by="root", node=2)
        with pytest.raises(HoldfastError, match="may not publish"):
            _send_for_ever(producer)  # until the word is at the node that it is connected to

    do.run("user", "password", "ann", "--new-password-file", do.password("ann", "quill"), by="root")
    cluster.kill()
    cluster.start()
    assert do.run("whoami", by="ann")["principal"] == "ann"
    for node in cluster.nodes:
        address = cluster.address(node)
        for wrong, what in ((Security(user="ann", password="pencil"), "wrong"), (Security(), "asks for a login")):
            with pytest.raises(AuthenticationError, match=what):
                _ask(cluster, address, wrong)
    do.run("user", "remove", "ann", by="root")
    wait_until(lambda: _is_refused(cluster), "the word that ann is gone to be everywhere")


def test_a_cluster_begins_closed_with_its_first_user(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """Its file counts while there are no users: neither a password nor a user that is gone comes back by a restart."""
    path = tmp_path / "first-user.json"
    cluster = make_cluster(nodes=1, more=f'[security]\nfirst_user_file = "{path}"')
    do = Commands(cluster, tmp_path)
    words = ["user", "keys", "ops", "--new-password-file", do.password("ops", "from the file")]
    made = subprocess.run([sys.executable, "-m", "holdfast.cli", *words], capture_output=True, text=True, check=True)
    assert "from the file" not in made.stdout
    path.write_text(made.stdout)
    cluster.start()
    assert "asks for a login" in do.run("whoami", status=1)["error"]
    assert do.run("whoami", by="ops")["roles"] == ["admin"]
    do.run("user", "add", "root", "--role", "admin", "--new-password-file", do.password("root", "other"), by="ops")
    do.run("user", "remove", "ops", by="root")
    cluster.kill()
    cluster.start()
    assert [one["name"] for one in do.run("user", "list", by="root")["users"]] == ["root"]


def _send_for_ever(producer: ProducerClient) -> None:
    while True:
        producer.send(b"not any more").result()


def _ask(cluster: Cluster, address: str, security: Security) -> Any:
    before, cluster.settings.security = cluster.settings.security, security
    try:
        return cluster.call(lambda admin: _whoami(admin), [address])
    finally:
        cluster.settings.security = before


async def _whoami(admin: AdminClient) -> Any:
    return await admin.whoami()


def _is_refused(cluster: Cluster) -> bool:
    for node in cluster.nodes:
        try:
            _ask(cluster, cluster.address(node), Security(user="ann", password="quill"))
        except (AuthenticationError, NotAuthorizedError):
            continue
        return False
    return True
