"""The programs of docs/clients/amqp.md work as they stand there, with another address and another log."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.clients.stock.java_clients import MISSING, build
from tests.integration.clusters.cluster import Cluster

HERE = Path(__file__).parent
PAGE = Path(__file__).parents[4] / "docs" / "clients" / "amqp.md"
PROGRAMS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
WITHIN_S = 240

pytestmark = pytest.mark.cluster


@pytest.fixture
def programs(cluster: Cluster, log_name: str) -> Mapping[str, str]:
    """The programs by language, for this cluster and a log of one partition."""
    cluster.create(log_name, 1)
    host, _, port = cluster.address(1).rpartition(":")
    assert host == "127.0.0.1"
    return {
        language: text.replace("5672", port).replace('"orders"', f'"{log_name}"').replace("'orders'", f"'{log_name}'")
        for language, text in PROGRAMS.items()
    }


def run(directory: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        words,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{words[0]} failed: {done.stdout}{done.stderr}"
    return done.stdout


def test_proton(programs: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(programs["python"])
    assert run(tmp_path, sys.executable, "orders.py").split()[:2] == ["from", "Python"]


@pytest.mark.skipif(None in map(shutil.which, ("node", "npm")), reason="node and npm are not installed")
def test_rhea(programs: Mapping[str, str], rhea_home: Path, tmp_path: Path) -> None:
    (tmp_path / "orders.js").write_text(programs["javascript"])
    said = run(tmp_path, "node", "orders.js", NODE_PATH=str(rhea_home / "node_modules"))
    assert said == f"from JavaScript {0:016x}\n"


@pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed")
def test_qpid_jms(programs: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "Orders.java").write_text(programs["java"])
    path = build()
    run(tmp_path, "javac", "-cp", path, "-d", ".", "Orders.java")
    assert run(tmp_path, "java", "-Xmx96m", "-cp", f"{path}:.", "Orders") == "from Java\n"


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_go_amqp(programs: Mapping[str, str], tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, tmp_path)
    (tmp_path / "main.go").write_text(programs["go"])
    assert run(tmp_path, "go", "run", ".") == f"from Go {0:016x}\n"
