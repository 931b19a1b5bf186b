"""A chaos run on the nodes of an inventory: clients log in by TLS, nodes are hurt over SSH, and nothing is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.playbooks import COLLECTION, ROOT, ControlHost, ansible_directory
from tests.ansible.steps import LOG, PYTHON_OF_TESTS, configured, done, process, status
from tests.authority import Authority
from tests.integration.clusters.cluster import wait_until

NODE = "holdfast-node"
SECONDS = 15.0

pytestmark = whole_of_provisioning


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_nodes_of_an_inventory_are_hurt(
    network: HostNetwork, control: ControlHost, measured: Callable[[str], None]
) -> None:
    pytest.importorskip("pyarrow", reason="chaos runs keep their histories by it: pip install -e '.[chaos]'")
    built = done(ready_for_chaos(network, control).play("site"))
    again = done(control.play("site"))
    assert again.changed == 0, again.text
    before = [configured(host) for host in network.hosts]
    processes_are_hurt(network, control)
    ways_are_hurt(network, control)
    cells_of_a_matrix_are_run(network, control)
    who_is_not_let_in_is_told_before_anything_is_done(network, control)
    a_run_that_is_killed_leaves_no_node_standing_still(network, control)
    a_run_that_loses_its_connection_goes_on(network, control)
    assert [configured(host) for host in network.hosts] == before
    measured(f"site {built.took_s:.0f} s")


def ready_for_chaos(network: HostNetwork, control: ControlHost) -> ControlHost:
    """As the example inventory says, and with TLS and an operator; where Toxiproxy can be had, its proxies, too."""
    proxied = bool(control.groups["toxiproxies"])
    ways = yaml.safe_load((COLLECTION / "inventories/chaos/group_vars/holdfast_nodes/proxy_addresses.yml").read_text())
    (control.directory / "operator").write_text("of-the-operator\n")
    control.write_vault(vault_operator="of-the-operator")
    control.groups |= {"zookeepers": [], "toxiproxies": control.groups["holdfast_nodes"] if proxied else []}
    control.variables |= ways if proxied else {"holdfast_node_listeners": ways["holdfast_node_listeners"][:1]}
    addresses = [address for host in network.hosts for address in (host.inside, host.outside)]
    Authority(control.directory).issue("node", addresses)
    for host in control.hosts.values():
        del host["holdfast_node_listeners"]
        host.pop("toxiproxy_proxies", None)
    for listener in control.variables["holdfast_node_listeners"]:
        listener["tls"] = "on"
    control.variables |= {
        "holdfast_node_discovery": "static",
        "holdfast_node_operator": "operator",
        "holdfast_node_operator_password": "{{ vault_operator }}",
        "holdfast_node_tls_cert_file": str(control.directory / "node.pem"),
        "holdfast_node_tls_key_file": str(control.directory / "node.key"),
        "holdfast_node_tls_ca_file": str(control.directory / "ca.pem"),
        "ansible_ssh_private_key_file": str(network.key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={network.known_hosts}",
    }
    return control


def command(
    network: HostNetwork, control: ControlHost, *words: str, user: str = "operator", what: str = "run"
) -> list[str]:
    """`user`: nobody, where the cluster knows no users, and no TLS."""
    directory = control.directory
    login = ("--ca", str(directory / "ca.pem"), "--user", user, "--password-file", str(directory / "operator"))
    return network.control.command(
        PYTHON_OF_TESTS, "-m", "holdfast.cli", "chaos", what, "--inventory", str(control.inventory),
        "--ansible", str(ansible_directory()), "--vault-password-file", str(directory / "vault-password"),
        *(login if user else ()), "--dir", str(directory / "runs"), *words,
    )  # fmt: skip


def ran(network: HostNetwork, control: ControlHost, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(network, control, *words, **more), capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def told(answer: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return dict(json.loads(answer.stdout))


def faults_that_struck(run: dict[str, Any]) -> set[str]:
    report = json.loads((Path(run["directory"]) / "report.json").read_text())
    return {fault["kind"].split()[0] for fault in report["faults"] if fault["to_s"] is not None}


def hurt(network: HostNetwork, control: ControlHost, workload: str, faults: str, *words: str) -> dict[str, Any]:
    """And afterwards everything is as it was."""
    answer = ran(
        network, control, "--workload", workload, "--faults", faults, "--time", str(SECONDS), "--seed", "7", "--json",
        *words,
    )  # fmt: skip
    run = told(answer)
    assert run["result"] == "PASSED", json.dumps(run) + answer.stderr
    assert faults_that_struck(run) == set(faults.split(","))
    nothing_is_left(network)
    return run


def processes_are_hurt(network: HostNetwork, control: ControlHost) -> None:
    run = hurt(network, control, "W1", "F1,F2,F13")
    passed = ("C1", "C2", "C3", "C4", "C6", "C7", "C9", "C15", "C16", "C20", "C21", "C22", "CALLS")
    assert {name: run["verdicts"][name] for name in passed} == dict.fromkeys(passed, "PASSED")
    assert run["verdicts"]["C18"] == "NODATA", "nobody has read a disk"
    directory = Path(run["directory"])
    assert "left out: it reads the disks" in (directory / "report.html").read_text()
    assert all("leads term" in (directory / f"node{one}/node.log").read_text() for one in (1, 2, 3))


def ways_are_hurt(network: HostNetwork, control: ControlHost) -> None:
    """Where Toxiproxy can be had."""
    if control.groups["toxiproxies"]:
        run = hurt(network, control, "W2", "F3,F7", "--listener", "chaos")
        passed = ("C1", "C2", "C3", "C4", "C6", "C7", "C9", "C15", "C16", "C20", "C21", "CALLS")
        assert {name: run["verdicts"][name] for name in passed} == dict.fromkeys(passed, "PASSED")
        for host in network.hosts:
            told = json.loads(host.ssh(f"curl -s http://{host.inside}:8474/proxies").stdout)
            assert len(told) == 3
            assert all(proxy["enabled"] and not proxy["toxics"] for proxy in told.values()), told


def cells_of_a_matrix_are_run(network: HostNetwork, control: ControlHost) -> None:
    """Two of the short matrix, and one that such a cluster cannot have. Behind each the cluster is as it was."""
    words = ("--workload", "W1,W2", "--part", "1/3", "--time", "8", "--seed", "7", "--json")
    answer = ran(network, control, *words, what="matrix")
    matrix = told(answer)
    assert [one["result"] for one in matrix["runs"]] == ["PASSED", "PASSED"], json.dumps(matrix) + answer.stderr
    first, second = (one["command"] for one in matrix["runs"])
    assert ("--workload W1 --faults F1 " in first, "--workload W2 --faults F1,F16 " in second) == (True, True)
    assert [(one["workload"], one["faults"]) for one in matrix["left_out"]] == [("W1", ["F9"])]
    nothing_is_left(network)


def nothing_is_left(network: HostNetwork) -> None:
    """But the nodes, each running and ready, and the logs that were there before."""
    for host in network.hosts:
        assert agents(host) == [], "an agent is left"
        assert not stands_still(host)
        answer = host.ssh(f"HOLDFAST_CONFIG=/etc/holdfast/operator.toml holdfast node status {host.number} --json")
        found = json.loads(answer.stdout)
        assert found["ready"], answer.stdout
        assert not found["draining"], answer.stdout
    assert logs(network.hosts[0]) == [LOG]


def logs(host: NetworkHost) -> list[str]:
    answer = host.ssh("HOLDFAST_CONFIG=/etc/holdfast/operator.toml holdfast log list --json")
    return [str(one["name"]) for one in json.loads(answer.stdout)["logs"]]


def agents(host: NetworkHost) -> list[str]:
    said = host.ssh("ps -e -o args=").stdout
    return [line for line in said.splitlines() if "json.loads(open(0" in line and "ps -e" not in line]


def stands_still(host: NetworkHost) -> bool:
    return status(host, process(host, NODE))["State"].startswith("T")


def who_is_not_let_in_is_told_before_anything_is_done(network: HostNetwork, control: ControlHost) -> None:
    before = [process(host, NODE) for host in network.hosts]
    words = ("--workload", "W1", "--faults", "F1", "--time", "5")
    answer = ran(network, control, *words, user="nobody")
    assert (answer.returncode, "a run needs an administrator" in answer.stderr) == (1, True), answer.stderr
    answer = ran(network, control, *words, "--listener", "elsewhere")
    assert (answer.returncode, "it has no listener elsewhere" in answer.stderr) == (1, True), answer.stderr
    answer = ran(network, control, "--workload", "W1", "--faults", "F3", "--time", "5")
    assert (answer.returncode, "that takes a proxy on each way" in answer.stderr) == (1, True), answer.stderr
    assert [process(host, NODE) for host in network.hosts] == before


@contextmanager
def at_work(network: HostNetwork, control: ControlHost) -> Iterator[subprocess.Popen[str]]:
    """A run that pauses nodes, for longer than anybody waits here."""
    words = ("--workload", "W2", "--faults", "F2", "--time", "300", "--seed", "5")
    run = subprocess.Popen(
        command(network, control, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        wait_until(lambda: any(stands_still(host) for host in network.hosts), "a node that stands still", 300)
        yield run
    finally:
        run.kill()
        run.communicate()


def a_run_that_is_killed_leaves_no_node_standing_still(network: HostNetwork, control: ControlHost) -> None:
    """Its log it leaves, and a command ends that. While it is at work, another one is refused, and told whose it is."""
    with at_work(network, control) as run:
        second = ran(network, control, "--workload", "W1", "--faults", "F1", "--time", "5")
        assert second.returncode == 1, second.stderr
        assert re.search(r"another run is at work here.*: \S+@\S+, process \d+, since ", second.stderr), second.stderr
        run.kill()
        run.wait()
        wait_until(lambda: not any(agents(host) for host in network.hosts), "the end of every agent", 120)
        assert not any(stands_still(host) for host in network.hosts)
    as_operator = "HOLDFAST_CONFIG=/etc/holdfast/operator.toml holdfast log"
    [left] = [name for name in logs(network.hosts[0]) if name != LOG]
    assert network.hosts[0].ssh(f"{as_operator} delete {left} --yes").returncode == 0
    nothing_is_left(network)


def a_run_that_loses_its_connection_goes_on(network: HostNetwork, control: ControlHost) -> None:
    """Its agents heal what was done at once; the run connects anew, and comes to its end as one that is interrupted."""
    with at_work(network, control) as run:
        [chaos] = psutil.Process(run.pid).children()  # `nsenter` waits for it, and hands no signal on
        connections = [one for one in chaos.children() if one.name() == "ssh"]
        assert len(connections) == len(network.hosts)
        for one in connections:
            one.kill()
        wait_until(lambda: not any(stands_still(host) for host in network.hosts), "all nodes to go on", 120)
        wait_until(lambda: any(stands_still(host) for host in network.hosts), "the next one to stand still", 300)
        chaos.send_signal(signal.SIGTERM)  # SIGINT is ignored by what a script has started in the background
        said, _ = run.communicate(timeout=300)
    assert ("interrupted" in said, "Traceback" in said) == (True, False), said
    nothing_is_left(network)
