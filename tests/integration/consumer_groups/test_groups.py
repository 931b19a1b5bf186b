"""Consumer groups from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster

pytestmark = pytest.mark.cluster


def holdfast(cluster: Cluster, *arguments: str, status: int = 0, text: bytes = b"") -> str:
    command = [sys.executable, "-m", "holdfast.cli", *arguments, "--server", cluster.addresses[0]]
    done = subprocess.run(command, input=text, capture_output=True, timeout=120, check=False)
    assert done.returncode == status, f"{arguments}: {done.stdout.decode()}\n{done.stderr.decode()}"
    return done.stdout.decode()


def asked(cluster: Cluster, *arguments: str) -> Any:
    return json.loads(holdfast(cluster, *arguments, "--json"))


def test_an_operator_lists_commits_resets_and_deletes(cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, 2)
    holdfast(cluster, "produce", log_name, "--partition", "1", text=b"a\nb\nc\n")
    assert asked(cluster, "group", "list", log_name) == {"log": log_name, "groups": []}
    holdfast(cluster, "group", "describe", log_name, "audit", status=3)
    done = asked(cluster, "group", "commit", log_name, "audit", "1", f"{0:016x}")
    assert (done["partition"], done["committed_offset"]) == ("1", f"{0:016x}")
    (listed,) = asked(cluster, "group", "list", log_name)["groups"]
    assert (listed["group"], listed["lag"], listed["known_lag"], listed["members"]) == ("audit", None, 2, 0)
    assert asked(cluster, "group", "describe", log_name, "audit")["unknown_partitions"] == 1
    assert "2 + unknown in 1 partition" in holdfast(cluster, "group", "describe", log_name, "audit")
    assert asked(cluster, "group", "reset", log_name, "audit", "--to", "latest")["lag"] == 0
    assert asked(cluster, "group", "reset", log_name, "audit", "--to", "earliest", "--partition", "1")["lag"] == 3
    for table in (("list", log_name), ("describe", log_name, "audit")):
        assert "lag" in holdfast(cluster, "group", *table)
    holdfast(cluster, "group", "reset", log_name, "audit", "--to", "noon", status=2)
    holdfast(cluster, "group", "reset", log_name, "audit", "--to", "noon", "--partition", "1", status=1)
    reading = ("consume", log_name, "--group", "audit", "--from", "earliest")
    assert holdfast(cluster, *reading, "--max", "2").split() == ["a", "b"]
    assert asked(cluster, "group", "describe", log_name, "audit")["lag"] == 1
    assert holdfast(cluster, *reading, "--partition", "1", "--epoch", "4", "--max", "1").split() == ["c"]
    assert asked(cluster, "group", "list", log_name)["groups"][0]["lag"] == 0
    holdfast(cluster, *reading, "--until-end", status=2)
    assert asked(cluster, "group", "delete", log_name, "audit")["deleted"] == "audit"
    holdfast(cluster, "group", "delete", log_name, "audit", status=3)
