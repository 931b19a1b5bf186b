"""A node process is never mistaken for a stranger, and a node that does not start says why."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import main
from holdfast.cli.local_cluster.lifecycle import create, start
from holdfast.cli.local_cluster.processes import (
    EVERYWHERE,
    LOOPBACK,
    ClusterPlan,
    LocalCluster,
    NodePlan,
    ProcessId,
)
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.output import Output
from holdfast.client.transport.security.credentials import Security
from node.config import parse


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that does nothing."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield child
    child.kill()
    child.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    nodes = [NodePlan(id=n, amqp=f"127.0.0.1:{5000 + n}", rpc=f"127.0.0.1:{7000 + n}") for n in (1, 2, 3)]
    local = LocalCluster(tmp_path / "cluster", ClusterPlan(name="dev", durability="fsync", nodes=nodes))
    local.write()
    return local


def record(cluster: LocalCluster, node_id: int, pid: int, started: str) -> None:
    path = cluster.node_directory(node_id) / "node.pid"
    path.write_text(json.dumps({"pid": pid, "started": started}))


def test_a_recorded_process_is_found_and_ended(cluster: LocalCluster, sleeper: subprocess.Popen[bytes]) -> None:
    process = ProcessId.of(sleeper.pid)
    assert process is not None
    record(cluster, 2, process.pid, process.started)
    assert list(cluster.running()) == [2]
    assert cluster.kill(2)
    assert sleeper.wait(5) == -signal.SIGKILL
    assert cluster.process(2) is None
    assert not cluster.kill(2)


def test_a_stranger_with_the_same_number_is_left_alone(cluster: LocalCluster, sleeper: subprocess.Popen[bytes]) -> None:
    record(cluster, 1, sleeper.pid, "12345")
    assert cluster.process(1) is None
    assert not cluster.kill(1)
    assert cluster.stop()[1] == "was not running"
    assert sleeper.poll() is None


@pytest.mark.cluster
def test_the_node_of_the_original_is_left_alone_by_a_copy(tmp_path: Path) -> None:
    local = create(tmp_path / "original", 1, None, 0, "dev", "fsync")
    try:
        local.spawn(1)
        process = local.process(1)
        assert process is not None
        (tmp_path / "copy" / "node1").mkdir(parents=True)
        for name in ("cluster.json", "node1/node.pid"):
            shutil.copy(local.directory / name, tmp_path / "copy" / name)
        copy = LocalCluster.load(tmp_path / "copy")
        assert not copy.kill(1)
        assert copy.stop() == {1: "was not running"}
        assert process.alive
    finally:
        assert local.stop() == {1: "stopped"}


@pytest.mark.cluster
def test_a_node_is_found_where_its_directory_was_moved(
    cluster: LocalCluster, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    process = ProcessId.of(sleeper.pid)
    assert process is not None
    home = cluster.node_directory(1)
    born_in = [home.stat().st_dev, home.stat().st_ino]
    (home / "node.pid").write_text(json.dumps({"pid": process.pid, "started": process.started, "directory": born_in}))
    cluster.directory.rename(tmp_path / "moved")
    assert LocalCluster.load(tmp_path / "moved").running() == {1: process}


def started_once(cluster: LocalCluster) -> LocalCluster:
    """A cluster of one node that was started, and stopped again."""
    try:
        cluster.spawn(1).wait(time.monotonic() + 60)
    finally:
        cluster.stop()
    return cluster


@pytest.mark.parametrize(("original", "tls"), [("stays", True), ("is gone", False), ("is another cluster now", False)])
@pytest.mark.cluster
def test_a_moved_or_copied_cluster_uses_its_own_files(original: str, tls: bool, tmp_path: Path) -> None:
    local = started_once(create(tmp_path / 'a "b', 1, None, 0, "dev", "fsync", tls=tls))
    if original == "stays":
        shutil.copytree(local.directory, tmp_path / "copy")
    else:
        local.directory.rename(tmp_path / "copy")
    if original == "is another cluster now":
        create(local.directory, 1, None, 0, "other", "fsync")
    copy = LocalCluster.load(tmp_path / "copy")
    try:
        copy.spawn(1).wait(time.monotonic() + 60)
        text = copy.config_path(1).read_text()
        assert str(local.directory) not in tomllib.loads(text)["node"]["data_dir"]
        assert json.dumps(f"{local.directory}/")[:-1] not in text, "certificates too"
        if original == "is another cluster now":
            assert not (local.node_directory(1) / "data").exists()
    finally:
        copy.stop()


@pytest.mark.parametrize("exists", [False, True])
def test_data_that_somebody_put_elsewhere_stay_there(exists: bool, tmp_path: Path) -> None:
    local = create(tmp_path / "cluster", 1, None, 0, "dev", "fsync")
    elsewhere = tmp_path / "disk" / "node1" / "data"
    if exists:
        elsewhere.mkdir(parents=True)
    text = local.config_path(1).read_text()
    local.config_path(1).write_text(text.replace(str(local.node_directory(1) / "data"), str(elsewhere)))
    started_once(local)
    assert list(elsewhere.iterdir())
    assert not (local.node_directory(1) / "data").exists()


def test_data_of_another_cluster_are_refused_where_the_configuration_cannot_follow(tmp_path: Path) -> None:
    local = create(tmp_path / "original", 1, None, 0, "dev", "fsync")
    shutil.copytree(local.directory, tmp_path / "copy")
    copy = LocalCluster.load(tmp_path / "copy")
    text = copy.config_path(1).read_text()
    copy.config_path(1).write_text(
        text.replace('"' + str(local.node_directory(1) / "data") + '"', f"'{local.node_directory(1) / 'data'}'")
    )
    with pytest.raises(CliError, match="belongs to the cluster in") as caught:
        copy.spawn(1)
    assert f'write data_dir = "{copy.node_directory(1) / "data"}"' in caught.value.advice
    assert not processes_of(copy, 1)


def test_a_process_that_ended_but_was_not_waited_for_counts_as_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()  # until the end: then it exits
    deadline = time.monotonic() + 5
    while (process := ProcessId.of(child.pid)) is not None:
        assert process.wait(deadline - time.monotonic()), "a zombie is not alive"
    child.wait()


def test_waiting_for_a_process_is_bounded(sleeper: subprocess.Popen[bytes]) -> None:
    process = ProcessId.of(sleeper.pid)
    assert process is not None
    assert not process.wait(0.05)
    assert process.signal(signal.SIGTERM)
    assert process.wait(5)
    assert not process.signal(signal.SIGTERM)


def test_the_configuration_written_is_one_a_node_accepts(cluster: LocalCluster) -> None:
    text = cluster.config_path(2).read_text()
    config = parse(text)
    assert config.node.id == 2
    assert config.rpc_addresses == {1: "127.0.0.1:7001", 2: "127.0.0.1:7002", 3: "127.0.0.1:7003"}
    assert config.listener[0].bind == "127.0.0.1:5002"
    assert config.storage.durability == "fsync"
    assert Path(tomllib.loads(text)["node"]["data_dir"]).is_absolute()


@pytest.mark.parametrize(
    ("bind", "nodes", "told"),
    [(LOOPBACK, 3, {}), (EVERYWHERE, 1, {}), (EVERYWHERE, 3, {"1": "", "3": ""})],
)
def test_who_comes_from_elsewhere_is_told_of_no_address_at_loopback(
    bind: str, nodes: int, told: dict[str, str], tmp_path: Path
) -> None:
    plans = [
        NodePlan(number, f"{LOOPBACK}:{5000 + number}", f"{LOOPBACK}:{7000 + number}", bind=bind)
        for number in range(1, nodes + 1)
    ]
    local = LocalCluster(tmp_path / "c", ClusterPlan("c", "fsync", plans))
    local.write()
    number = min(2, nodes)
    (listener,) = parse(local.config_path(number).read_text()).listener
    assert listener.address_map == told
    assert listener.bind == f"{bind}:{5000 + number}"


def test_a_plan_is_read_as_it_was_written(cluster: LocalCluster) -> None:
    assert LocalCluster.load(cluster.directory).plan == cluster.plan


@pytest.mark.parametrize("text", ["", "{", '{"name": "x"}', '{"name": "x", "nodes": [], "durability": "y", "odd": 1}'])
def test_a_plan_that_cannot_be_read_is_said_so(cluster: LocalCluster, text: str) -> None:
    (cluster.directory / "cluster.json").write_text(text)
    with pytest.raises(CliError, match="cannot be read"):
        LocalCluster.load(cluster.directory)


def test_a_directory_without_a_cluster_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="holds no cluster") as caught:
        LocalCluster.load(tmp_path)
    assert "cluster up" in caught.value.advice


@pytest.mark.cluster
def test_a_node_that_refuses_its_configuration_is_reported_with_its_words(cluster: LocalCluster) -> None:
    config = cluster.config_path(1)
    config.write_text(config.read_text() + "\n[surprise]\nkey = 1\n")
    with pytest.raises(CliError, match="exit status 2: its configuration is refused") as caught:
        cluster.spawn(1).wait(time.monotonic() + 30)
    assert "surprise" in str(caught.value)
    assert str(cluster.log_path(1)) in caught.value.advice
    assert cluster.process(1) is None


@pytest.mark.cluster
def test_of_a_failed_start_the_reason_comes_first_and_no_line_of_an_earlier_start(cluster: LocalCluster) -> None:
    cluster.log_path(1).write_text("2026-01-01 00:00:00,000 CRITICAL holdfast an old trouble\n")
    cluster.config_path(1).write_text(cluster.config_path(1).read_text() + "\n[surprise]\nkey = 1\n")
    for _ in range(2):
        with pytest.raises(CliError) as caught:
            cluster.spawn(1).wait(time.monotonic() + 30)
        first, *more = str(caught.value).splitlines()
        assert first.startswith("node 1 did not start (exit status 2: its configuration is refused): ")
        assert "unknown key 'surprise'" in first
        assert not more


def processes_of(cluster: LocalCluster, node_id: int) -> list[int]:
    """Every process whose command line names the node's configuration."""
    config = str(cluster.config_path(node_id))
    every = subprocess.run(["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in every.splitlines() if config in line]


@pytest.mark.cluster
def test_a_node_that_cannot_be_recorded_is_ended(cluster: LocalCluster) -> None:
    (cluster.node_directory(1) / "node.pid.new").mkdir()  # nothing can be written there, as on a full disk
    with pytest.raises(CliError, match=r"node 1 was not started: .*node\.pid cannot be written") as caught:
        cluster.spawn(1)
    assert str(cluster.node_directory(1)) in caught.value.advice
    assert not processes_of(cluster, 1)
    assert cluster.process(1) is None


@pytest.mark.cluster
def test_a_start_without_a_majority_says_what_it_waits_for_and_how_to_start_all(tmp_path: Path) -> None:
    local = create(tmp_path / "cluster", 3, None, 0, "dev", "fsync")
    try:
        with pytest.raises(CliError) as caught:
            local.spawn(1).wait(time.monotonic() + 3)
        assert str(caught.value).startswith("node 1 did not become ready in time; it runs on")
        assert "a majority must run; start all: holdfast cluster up --dir" in caught.value.advice
    finally:
        local.stop()


@pytest.mark.cluster
def test_a_node_that_dies_is_named_though_the_others_wait_for_it(tmp_path: Path) -> None:
    local = create(tmp_path / "cluster", 3, None, 0, "dev", "fsync")
    config = local.config_path(3)
    config.write_text(config.read_text() + "\n[surprise]\nkey = 1\n")
    with pytest.raises(CliError, match="node 3 did not start") as caught:
        start(local, Output(as_json=True), 300.0, Security())
    assert "unknown key 'surprise'" in str(caught.value)
    assert not local.running()


def cluster_status(cluster: LocalCluster) -> Result:
    return CliRunner().invoke(main, ["cluster", "status", "--dir", str(cluster.directory)])


def status(cluster: LocalCluster) -> str:
    done = cluster_status(cluster)
    assert done.exit_code == 1
    return done.output


def test_the_status_of_a_cluster_names_the_command_that_mends_it(
    cluster: LocalCluster, sleeper: subprocess.Popen[bytes]
) -> None:
    where = f"--dir {cluster.directory}"
    said = status(cluster)
    assert "error: no node runs" in said
    assert f"what to do: holdfast cluster up {where} --detach" in said

    process = ProcessId.of(sleeper.pid)
    assert process is not None
    record(cluster, 1, process.pid, process.started)
    record(cluster, 2, process.pid, process.started)
    said = status(cluster)
    assert f"holdfast cluster start-node 3 {where}" in said
    for number in (1, 2):
        assert f"node {number} runs, and does not answer" in said
        assert f"holdfast cluster kill-node {number} {where} && holdfast cluster start-node {number} {where}" in said
    assert "log in" not in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--dir", ""), "the name is empty"),
        (("--name", ""), "must be 1-63 of"),
        (("--name", "a b"), "must be 1-63 of"),
    ],
)
def test_a_cluster_without_a_name_is_refused_before_anything_is_written(
    wrong: tuple[str, str], said: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(main, ["cluster", "up", "--dir", str(tmp_path / "new"), *wrong])
    assert done.exit_code == 2
    assert said in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.cluster
def test_the_status_of_a_cluster_tells_that_a_node_refuses_events_for_lack_of_disk(tmp_path: Path) -> None:
    local = create(tmp_path / "cluster", 1, None, 0, "dev", "fsync")
    text = local.config_path(1).read_text()
    assert "[storage]\n" in text
    local.config_path(1).write_text(text.replace("[storage]\n", f"[storage]\nmin_free_bytes = {1 << 60}\n"))
    try:
        local.spawn(1).wait(time.monotonic() + 60)
        deadline_s = time.monotonic() + 30
        while (shown := cluster_status(local)).exit_code == 0 and time.monotonic() < deadline_s:
            time.sleep(0.1)  # the node looks at its disk every second
        said = shown.output
        assert "answers, and has problems" in said
        assert "error: node 1: " in said
        assert "bytes" in said or "space" in said
    finally:
        local.stop()
