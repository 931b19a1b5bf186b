"""What users install, built and installed as they would: the client and the command line alone, then a node, too."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.ports import cluster_ports, free_ports

ROOT = Path(__file__).resolve().parents[3]
BOUND_S = 240.0
HAS_TRADES = (
    "from holdfast.cli.commands.demo import DEFAULT_FILE as f; print(f.is_file(), (f.parent / 'README.md').is_file())"
)
LISTS = (
    "import json; from importlib.metadata import distributions as d; "
    "print(json.dumps([[one.name, one.version] for one in d()]))"
)
NODE_PACKAGES = (
    "grpc", "pysyncobj", "rocksdict", "kazoo", "prometheus_client", "google.protobuf",
    "node", "cluster", "pipeline", "chaos",
)  # fmt: skip
TESTS_BY_HAND = "from holdfast.testing import Cluster; Cluster().start()"
PRODUCES_AND_CONSUMES = """
from holdfast.client import ConsumerOptions, Start, sync

server = {server!r}
with sync.AdminClient(server) as admin:
    admin.create_log("greetings")
with sync.ProducerClient(server, "greetings") as producer:
    producer.send(b"through a node").result()
options = ConsumerOptions(until_end=True)
with sync.ConsumerClient(server, "greetings", start=Start.earliest(), options=options) as consumer:
    print(*(event.body for event in consumer))
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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
        done = self._done(*command, text=text)
        assert done.returncode == status, f"$ {' '.join(command)}\n{done.stdout}"
        return done.stdout

    def _done(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST", "PYTHON"))}
        return subprocess.run(
            command,
            cwd=self.directory,  # far from the work tree, so that only what is installed can be imported
            env={**environment, "HOLDFAST_CONFIG": str(self.directory / "holdfast.toml")},
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BOUND_S,
        )

    def install(self, *what: str) -> None:
        lock = ROOT / "requirements.lock"
        pip = [sys.executable, "-m", "pip", "--python", self.path("python"), "--disable-pip-version-check"]
        pip += ["install", "-q", "--no-compile", "-c", str(lock), *what]
        done = self._done(*pip)
        if done.returncode and "connection" in done.stdout.lower():
            pytest.skip(f"no package index can be reached: {done.stdout[-300:]}")
        assert not done.returncode, done.stdout

    def installed(self) -> set[tuple[str, str]]:
        """Distributions there, with their versions."""
        found = json.loads(self.run(self.path("python"), "-c", LISTS))
        return {(normal(name), version) for name, version in found}

    def holdfast(self, *arguments: str, status: int = 0, text: str = "") -> str:
        return self.run(self.path("holdfast"), *arguments, status=status, text=text)


class Built:
    """The directory in which `make dist` has written everything."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        command = [sys.executable, str(ROOT / "scripts" / "dist" / "make_dist.py"), str(directory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S)
        assert not done.returncode, done.stdout + done.stderr

    def wheel(self, name: str) -> str:
        (found,) = self.directory.glob(f"{name}-*.whl")
        return str(found)

    def components(self, name: str) -> set[tuple[str, str]]:
        """Everything that a distribution brings, itself included, as its list says."""
        (path,) = self.directory.glob(f"{name}-[0-9]*.cdx.json")
        document = json.loads(path.read_text())
        own = document["metadata"]["component"]
        return {(one["name"], one["version"]) for one in [own, *document["components"]]}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("holdfast", {"holdfast", "pyspark_holdfast"}),
        ("holdfast_node", {"node", "cluster"}),
        ("holdfast_pipeline", {"pipeline"}),
    ],
)
def test_what_users_install_is_whole_and_says_what_it_is(built: Built, name: str, packages: set[str]) -> None:
    with zipfile.ZipFile(built.wheel(name)) as wheel:
        names = wheel.namelist()
        (metadata,) = [one for one in names if one.endswith(".dist-info/METADATA")]
        said = email.message_from_bytes(wheel.read(metadata))
    assert {one.split("/")[0] for one in names} - {metadata.split("/")[0]} == packages
    tracked = subprocess.run(["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {one for one in tracked.stdout.split() if one.endswith((".py", ".pyi"))} <= set(names)
    assert said["Name"].replace("-", "_") == name
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Author"] == "The Holdfast developers"
    assert any(one.startswith("Programming Language :: Python :: 3.") for one in said.get_all("Classifier", []))
    assert "Holdfast" in str(said.get_payload()), "its page"
    (path,) = built.directory.glob(f"{name}-*.tar.gz")
    with tarfile.open(path) as archive:
        sources = {one.partition("/")[2] for one in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= sources
    assert {one for one in names if ".dist-info/" not in one} <= sources
    assert (name != "holdfast_node") or any(one.endswith(".proto") for one in sources)


def test_the_version_has_the_suffix_that_was_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "dist" / "make_dist.py"), "--wheels", "--suffix", "+site.2"]
    subprocess.run([*command, str(tmp_path)], check=True, capture_output=True, timeout=BOUND_S)
    found = [path.name.split("-")[:2] for path in sorted(tmp_path.iterdir())]
    assert [name for name, _ in found] == ["holdfast", "holdfast_node", "holdfast_pipeline"], "wheels only"
    assert all(version.endswith("+site.2") for _, version in found)
    with zipfile.ZipFile(next(tmp_path.glob("holdfast_node-*"))) as wheel:
        (metadata,) = [one for one in wheel.namelist() if one.endswith(".dist-info/METADATA")]
        assert f"Requires-Dist: holdfast=={found[0][1]}" in wheel.read(metadata).decode()


@pytest.mark.early
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_client_needs_nothing_of_a_node_and_a_node_comes_beside_it(
    built: Built, cluster: Cluster, tmp_path: Path
) -> None:
    """In one environment: what `holdfast-node` brings comes to what the client has."""
    user = Environment(tmp_path)
    (tmp_path / "holdfast.toml").touch()
    user.install(built.wheel("holdfast"))
    assert user.installed() == built.components("holdfast")
    a_client_needs_nothing_of_a_node(user, cluster)
    user.install(built.wheel("holdfast"), built.wheel("holdfast_node"))
    assert user.installed() == built.components("holdfast-node")
    it_runs_a_cluster(user)
    one_node_runs_by_its_command(user)
    user.install("pytest")
    an_application_tests_against_a_cluster(user)
    user.install("--no-deps", built.wheel("holdfast_pipeline"))  # without Spark's half a gigabyte
    said = user.holdfast("pipeline", "audit", "--captured", "none", status=1)
    assert "lacks matplotlib, pandas, pyarrow, pyspark: pip install holdfast-pipeline" in said


def a_client_needs_nothing_of_a_node(user: Environment, cluster: Cluster) -> None:
    assert user.holdfast("--version").strip().endswith(f"version {version('holdfast')}")
    there = user.run(
        user.path("python"),
        "-c",
        f"from importlib.util import find_spec; print([m for m in {NODE_PACKAGES} if find_spec(m.split('.')[0])])",
    )
    assert there.strip() == "[]", "the client's environment has packages of a node, or of common names"

    server = ("--server", cluster.address(1))
    user.holdfast("log", "create", "by-wheel", "--partitions", "2", "--replicas", "1", *server)
    user.holdfast("produce", "by-wheel", "--partition", "0", "--idempotent", *server, text="one\ntwo\n")
    read = user.holdfast("consume", "by-wheel", "--from", "earliest", "--until-end", *server)
    assert sorted(line for line in read.splitlines() if line in ("one", "two")) == ["one", "two"]
    user.holdfast("log", "delete", "by-wheel", "--yes", *server)

    job = ("pipeline", "capture", "--source", "by-wheel", "--parquet", "out", "--checkpoint", "state")
    for command, lacks in {
        ("cluster", "up", "--dir", "there", "--detach"): "lacks holdfast-node: pip install holdfast-node",
        ("demo", "--dir", "there", "--once"): "lacks holdfast-node: pip install holdfast-node",
        ("chaos", "list"): "lacks the code of chaos tests: run `make install` in a checkout",
        ("chaos", "serve"): "lacks the code of chaos tests: run `make install` in a checkout",
        job: "lacks holdfast-pipeline: pip install holdfast-pipeline",
    }.items():
        said = user.holdfast(*command, status=1)
        assert lacks in said
        assert "Traceback" not in said
    said = user.run(user.path("python"), "-c", TESTS_BY_HAND, status=1)
    assert said.strip().endswith("lacks holdfast-node: pip install holdfast-node")
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


def one_node_runs_by_its_command(user: Environment) -> None:
    """As a supervisor starts and stops it."""
    amqp, rpc = free_ports(2)
    (user.directory / "node.toml").write_text(
        f'[node]\nid = 1\ndata_dir = "data"\n[cluster]\nname = "one"\n'
        f'peers = [{{ id = 1, address = "127.0.0.1:{rpc}" }}]\n'
        f'[[listener]]\nname = "default"\nbind = "127.0.0.1:{amqp}"\n'
    )
    with subprocess.Popen(
        [user.path("holdfast-node"), "--config", "node.toml"], cwd=user.directory, stdout=subprocess.PIPE
    ) as node:
        try:
            assert node.stdout is not None
            assert json.loads(node.stdout.readline())["event"] == "ready"
            program = PRODUCES_AND_CONSUMES.format(server=f"127.0.0.1:{amqp}")
            assert user.run(user.path("python"), "-c", program).strip() == "b'through a node'"
            node.terminate()
            assert node.wait(BOUND_S) == 0
        finally:
            node.kill()


def an_application_tests_against_a_cluster(user: Environment) -> None:
    """pytest finds the fixtures by the entry point of the distribution."""
    (user.directory / "test_application.py").write_text(
        "def test_log(holdfast_cluster, holdfast_log):\n"
        "    assert [one['name'] for one in holdfast_cluster.admin.list_logs()] == [holdfast_log]\n"
    )
    assert "1 passed" in user.run(user.path("python"), "-m", "pytest", "-q", "test_application.py")
