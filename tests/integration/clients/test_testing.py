"""`holdfast.testing` as an application's tests use it: in one line, by fixtures, and when things go wrong."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cli.local_cluster.processes import ProcessId
from holdfast.client import ConsumerOptions, Start, sync
from holdfast.testing import Cluster, ClusterError
from tests.integration.clusters.cluster import wait_until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "clients" / "testing.md"
BOUND_S = 240.0


def processes_of(cluster: Cluster) -> list[ProcessId]:
    """The node processes as they were recorded at their birth."""
    pids = [path.read_text() for path in sorted(cluster.directory.glob("node*/node.pid"))]
    found = [ProcessId.of(int(re.findall(r"\d+", text)[0])) for text in pids]
    assert found
    assert None not in found
    return [process for process in found if process is not None]


def bodies(server: str | list[str], log: str) -> list[bytes]:
    options = ConsumerOptions(until_end=True)
    with sync.ConsumerClient(server, log, start=Start.earliest(), options=options) as consumer:
        return [event.body for event in consumer]


def test_a_cluster_serves_and_leaves_nothing() -> None:
    with Cluster() as cluster:
        directory, processes = cluster.directory, processes_of(cluster)
        assert cluster.addresses == [cluster.address]
        log = cluster.create_log("by-name", partitions=2)
        assert log == "by-name"
        with sync.ProducerClient(cluster.address, log) as producer:
            producer.send(b"one").result()
        assert bodies(cluster.address, log) == [b"one"]
        assert " INFO " in cluster.node_log(1)
    assert not [process for process in processes if process.alive]
    assert not directory.exists()
    with pytest.raises(ClusterError, match="does not run"):
        _ = cluster.address


def test_a_killed_node_is_missed_and_comes_back(tmp_path: Path) -> None:
    with Cluster(3, directory=tmp_path / "there") as cluster:
        log = cluster.create_log()
        with sync.ProducerClient(cluster.addresses, log) as producer:
            producer.send(b"before").result()
            leader = cluster.admin.describe_log(log)["partitions"][0]["leader"]
            cluster.kill_node(leader)
            with pytest.raises(ClusterError, match=rf"node {leader} does not run: start it with"):
                cluster.kill_node(leader)
            producer.send(b"after").result()
        cluster.start_node(leader)
        assert bodies(cluster.addresses[leader - 1], log) == [b"before", b"after"]
        with pytest.raises(ClusterError, match="there is no node 4"):
            cluster.kill_node(4)
        processes = processes_of(cluster)
    assert not [process for process in processes if process.alive]
    assert (tmp_path / "there" / "node1" / "node.log").is_file(), "a directory that the caller names stays"
    with pytest.raises(ClusterError, match="holds a cluster already"):
        Cluster(directory=tmp_path / "there").start()


async def test_it_starts_where_a_loop_runs() -> None:
    """A test that is a coroutine may use it, though it blocks the loop for that time."""
    with Cluster() as cluster:
        assert asyncio.get_running_loop().is_running()
        assert cluster.admin.list_logs() == []


def test_a_start_that_fails_shows_the_log_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "data").write_text("no directory")
    with pytest.raises(ClusterError) as caught:
        Cluster(directory=tmp_path).start()
    assert "node 1 did not start" in str(caught.value)
    assert str(tmp_path / "node1" / "data") in str(caught.value), "what the node logged"
    assert "what to do: " in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"nodes": 0}, "1 to 31 nodes, not 0"),
        ({"nodes": 32}, "1 to 31 nodes, not 32"),
        ({"durability": "none"}, "'fsync' or 'replicated', not 'none'"),
        ({"wait_s": 0}, "positive number of seconds, not 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Cluster(**arguments)  # type: ignore[arg-type]


PROGRAM = """
import signal, sys
from holdfast.testing import Cluster

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a test run in the background has ignored

with Cluster(2) as cluster:
    print(*(path.read_text().strip() for path in cluster.directory.glob("node*/node.pid")), flush=True)
    sys.stdin.read()
"""


@contextmanager
def program() -> Iterator[tuple[subprocess.Popen[str], list[ProcessId]]]:
    """A program that has a cluster of two nodes, and its nodes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        nodes: list[ProcessId] = []
        try:
            found = [ProcessId.of(int(pid)) for pid in re.findall(r'"pid": (\d+)', running.stdout.readline())]
            nodes = [node for node in found if node is not None]
            assert len(nodes) == 2
            yield running, nodes
        finally:
            running.kill()
            for node in nodes:
                node.signal(signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_node_outlives_a_test_process_that_is_interrupted(number: signal.Signals) -> None:
    with program() as (running, nodes):
        running.send_signal(number)
        running.wait(BOUND_S)
        wait_until(lambda: not any(node.alive for node in nodes), f"the nodes to end after {number.name}")


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as an application does. The plugin is named here, so that this tree's is taken."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "holdfast.pytest_plugin", "--rootdir", str(directory)]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
    )


@pytest.mark.slow
def test_the_page_works_as_it_stands(tmp_path: Path) -> None:
    """Its tests pass, in a cluster of as many nodes as its configuration says."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    for number, block in enumerate(blocks):
        (tmp_path / f"test_page_{number}.py").write_text(block)
    (configuration,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(configuration)
    (tmp_path / "test_nodes.py").write_text(
        "def test_nodes(holdfast_cluster): assert len(holdfast_cluster.addresses) == 3\n"
        "def test_fresh(holdfast_cluster, holdfast_log):\n"
        "    assert [log['name'] for log in holdfast_cluster.admin.list_logs()].count(holdfast_log) == 1\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_a_number_of_nodes_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nholdfast_nodes = several\n")
    (tmp_path / "test_one.py").write_text("def test_one(holdfast_log): pass\n")
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "holdfast_nodes in pytest's configuration is a number from 1 to 7, not 'several'" in done.stdout


def test_a_run_without_the_fixtures_imports_nothing_of_the_client(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("import sys\ndef test_one(): assert 'holdfast.client' not in sys.modules\n")
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
