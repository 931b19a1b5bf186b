"""`holdfast cluster` and a cluster that has users: its nodes need no login to start, and who asks them does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.local_cluster.processes import LocalCluster
from tests.ports import cluster_ports

pytestmark = pytest.mark.cluster

NODES = 3
NOBODY = "/dev/null"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cluster"
    yield path
    if LocalCluster.exists(path):
        LocalCluster.load(path).stop()


def holdfast(*words: str, config: str | Path) -> tuple[int, str, str]:
    """A command, as the user of whom that settings file speaks: its exit status, what it prints, and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words, "--json"],
        env={**os.environ, "HOLDFAST_CONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def settings(path: Path, user: str, password: str) -> Path:
    secret = path.with_suffix(".password")
    secret.write_text(password + "\n")
    path.write_text(f'[security]\nuser = "{user}"\npassword_file = "{secret}"\n')
    return path


def test_a_cluster_with_users_is_started_again(directory: Path, tmp_path: Path) -> None:
    at = ("--dir", str(directory))
    status, said, _ = holdfast("cluster", "up", *at, *cluster_ports(NODES), "--detach", config=NOBODY)
    assert status == 0
    root = settings(tmp_path / "root.toml", "root", "very secret")
    secret = str(tmp_path / "root.password")
    server = ("--server", json.loads(said)["nodes"][0]["amqp"])
    added = holdfast("user", "add", "root", "--role", "admin", "--new-password-file", secret, *server, config=NOBODY)
    assert added[0] == 0, added
    assert holdfast("cluster", "down", *at, config=NOBODY)[0] == 0

    status, _, noted = holdfast("cluster", "up", *at, "--detach", config=NOBODY)
    assert status == 0, noted
    assert "do not tell whom they follow" in noted
    assert "asks for a login" in noted
    assert len(LocalCluster.load(directory).running()) == NODES

    status, shown, refused = holdfast("cluster", "status", *at, config=NOBODY)
    assert status == 1
    assert not any(node["answers"] for node in json.loads(shown)["nodes"])
    assert "let in" in json.loads(refused)["advice"]
    wrong = settings(tmp_path / "wrong.toml", "root", "guessed")
    assert holdfast("cluster", "status", *at, config=wrong)[0] == 1
    status, shown, _ = holdfast("cluster", "status", *at, config=root)
    assert status == 0
    assert all(node["answers"] for node in json.loads(shown)["nodes"])
    login = ("--user", "root", "--password-file", secret)
    assert holdfast("cluster", "status", *at, *login, config=NOBODY)[0] == 0

    assert holdfast("cluster", "down", *at, config=NOBODY)[0] == 0
    status, _, noted = holdfast("cluster", "up", *at, "--detach", config=root)
    assert (status, noted) == (0, "")
    assert holdfast("cluster", "down", *at, config=NOBODY)[0] == 0
