"""The wheel, installed as a user would: the client and the command line without what a node needs, then a node, too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.ports import cluster_ports

ROOT = Path(__file__).resolve().parents[3]
BOUND_S = 240.0
HAS_TRADES = (
    "from holdfast.cli.commands.demo import DEFAULT_FILE as f; print(f.is_file(), (f.parent / 'README.md').is_file())"
)
NODE_PACKAGES = ("grpc", "pysyncobj", "rocksdict", "kazoo", "prometheus_client", "google.protobuf")


class Environment:
    """A virtual environment of a user, with nothing in it but what pip was told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Without a pip of its own: making one takes longer than all else, and the test's serves as well.
        self.run(sys.executable, "-m", "venv", "--without-pip", str(directory / "venv"))

    def path(self, program: str) -> str:
        return str(self.directory / "venv" / "bin" / program)

    def run(self, *command: str, status: int = 0, text: str = "") -> str:
        """What it said, on both outputs. It ended with that status."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST", "PYTHON"))}
        done = subprocess.run(
            command,
            cwd=self.directory,  # far from the work tree, so that only the wheel can be imported
            env={**environment, "HOLDFAST_CONFIG": str(self.directory / "holdfast.toml")},
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BOUND_S,
        )
        assert done.returncode == status, f"$ {' '.join(command)}\n{done.stdout}"
        return done.stdout

    def install(self, what: str) -> None:
        lock = ROOT / "requirements.lock"
        pip = (sys.executable, "-m", "pip", "--python", self.path("python"), "--disable-pip-version-check")
        self.run(*pip, "install", "-q", "--no-compile", "-c", str(lock), what)

    def holdfast(self, *arguments: str, status: int = 0, text: str = "") -> str:
        return self.run(self.path("holdfast"), *arguments, status=status, text=text)


@pytest.fixture
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in ("cluster", "node", "holdfast", "pipeline", "pyspark_holdfast"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(directory), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S)
    if built.returncode:
        if "connection" in built.stderr.lower() or "could not find a version" in built.stderr.lower():
            pytest.skip(f"no package index can be reached: {built.stderr[-300:]}")
        pytest.fail(built.stderr)
    return next(directory.glob("holdfast-*.whl"))


@pytest.mark.early
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_client_needs_nothing_of_a_node_and_the_extra_of_nodes_runs_a_cluster(
    wheel: Path, cluster: Cluster, tmp_path: Path
) -> None:
    """In one environment: what the extra brings comes to what the client has."""
    user = Environment(tmp_path)
    (tmp_path / "holdfast.toml").touch()
    user.install(str(wheel))
    a_client_needs_nothing_of_a_node(user, cluster)
    user.install(f"{wheel}[node]")
    it_runs_a_cluster(user)


def a_client_needs_nothing_of_a_node(user: Environment, cluster: Cluster) -> None:
    there = user.run(
        user.path("python"),
        "-c",
        f"from importlib.util import find_spec; print([m for m in {NODE_PACKAGES} if find_spec(m.split('.')[0])])",
    )
    assert there.strip() == "[]", "the client's environment has packages of a node"

    server = ("--server", cluster.address(1))
    user.holdfast("log", "create", "by-wheel", "--partitions", "2", "--replicas", "1", *server)
    user.holdfast("produce", "by-wheel", "--partition", "0", "--idempotent", *server, text="one\ntwo\n")
    read = user.holdfast("consume", "by-wheel", "--from", "earliest", "--until-end", *server)
    assert sorted(line for line in read.splitlines() if line in ("one", "two")) == ["one", "two"]
    user.holdfast("log", "delete", "by-wheel", "--yes", *server)

    for command in (
        ["holdfast", "cluster", "up", "--dir", "there", "--detach"],
        ["python", "-m", "node", "--config", "x"],
    ):
        program, *arguments = command
        said = user.run(user.path(program), *arguments, status=1 if program == "holdfast" else 2)
        assert "pip install 'holdfast[node]'" in said
        assert "Traceback" not in said
    places = ("--parquet", "out", "--checkpoint", "state")
    said = user.holdfast("pipeline", "capture", "--source", "by-wheel", *places, *server, status=1)
    assert "pip install 'holdfast[spark]'" in said
    found = user.run(
        user.path("python"), "-c", "from importlib.util import find_spec; print(find_spec('pyspark_holdfast'))"
    )
    assert "site-packages" in found, "where Spark looks for data sources"
    assert not (user.directory / "there").exists(), "nothing is left of a cluster that could not be"
    said = user.run(user.path("python"), "-c", HAS_TRADES)
    assert said.split() == ["True", "True"], "the demo has its data, and says whose they are"


def it_runs_a_cluster(user: Environment) -> None:
    ports = cluster_ports(3)
    try:
        user.holdfast("cluster", "up", "--dir", "there", "--nodes", "3", *ports, "--detach")
        server = ("--server", f"127.0.0.1:{ports[1]}")
        user.holdfast("log", "create", "own", "--partitions", "2", "--replicas", "3", *server)
        user.holdfast("produce", "own", *server, text="here\n")
        assert "here" in user.holdfast("consume", "own", "--from", "earliest", "--until-end", *server)
    finally:
        if (user.directory / "there").exists():
            user.holdfast("cluster", "down", "--dir", "there")
