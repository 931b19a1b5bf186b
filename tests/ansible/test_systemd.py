"""The same roles where systemd is the init: services are hardened units, and systemd starts them again.

One host with a ZooKeeper server, a node and a proxy is enough: what differs from `test_life` is the service, not the
cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ansible.conftest import whole_of_provisioning, why_not
from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.hosts.systemd import SystemdHost, missing_systemd, python_for_services
from tests.ansible.playbooks import ControlHost
from tests.ansible.steps import NODE, ZOOKEEPER, done, health, logs_rotate, whole
from tests.ansible.test_chaos import faults_that_struck, ran, told
from tests.integration.clusters.cluster import wait_until

pytestmark = whole_of_provisioning


@pytest.fixture
def systemd_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetwork]:
    if why_not() or missing_systemd():
        pytest.skip(why_not() or missing_systemd())
    network = HostNetwork(tmp_path_factory.mktemp("hosts"), 1, SystemdHost)
    try:
        network.start()
        yield network
    finally:
        network.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_services_under_systemd(systemd_network: HostNetwork, tmp_path: Path, make_bundle: Callable[..., Path]) -> None:
    control = ControlHost(systemd_network, tmp_path, make_bundle())
    host = systemd_network.hosts[0]
    control.variables |= {
        "holdfast_node_python": python_for_services(),
        "holdfast_node_logs": [{"name": "events", "partitions": 2, "replicas": 1}],
    }
    done(control.play("site", "--check", "--diff"))
    done(control.play("site"))
    again = done(control.play("site"))
    assert again.changed == 0, again.text
    assert done(control.play("site", "--check", "--diff")).changed == 0
    done(control.play("verify"))
    for service in (NODE, ZOOKEEPER):
        it_is_a_hardened_unit_that_starts_at_boot(host, service)
    it_is_started_again(host)
    a_changed_variable_restarts_it(control, host)
    logs_rotate(host)
    it_is_hurt_by_a_chaos_run(control, systemd_network)
    it_comes_back_after_a_boot(host)
    a_status_that_a_new_start_does_not_mend_ends_it(host)
    teardown_forgets_the_units(control, host)


def of_unit(host: NetworkHost, service: str, name: str) -> str:
    return host.ssh(f"systemctl show --value -p {name} {service}").stdout.strip()


def it_is_a_hardened_unit_that_starts_at_boot(host: NetworkHost, service: str) -> None:
    """By what the kernel says of the process, not by what the unit asks for."""
    assert of_unit(host, service, "ActiveState") == "active"
    assert of_unit(host, service, "UnitFileState") == "enabled"
    said = host.ssh(f"cat /proc/{of_unit(host, service, 'MainPID')}/status").stdout
    status = dict(line.split(":\t", 1) for line in said.splitlines())
    assert status["Uid"].split()[0] != "0"
    assert [int(status[key], 16) for key in ("CapEff", "CapPrm", "CapBnd")] == [0, 0, 0]
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def it_is_started_again(host: NetworkHost) -> None:
    before = of_unit(host, NODE, "MainPID")
    assert host.ssh(f"kill -9 {before}").returncode == 0
    wait_until(lambda: of_unit(host, NODE, "MainPID") not in (before, "0"), "the node to be started again")
    wait_until(lambda: whole(host), "the cluster to be whole")
    assert of_unit(host, NODE, "NRestarts") == "1"


def a_changed_variable_restarts_it(control: ControlHost, host: NetworkHost) -> None:
    before = of_unit(host, NODE, "MainPID")
    control.variables["holdfast_node_min_free_mib"] = 128
    done(control.play("site"))
    assert of_unit(host, NODE, "MainPID") not in (before, "0")
    assert health(host)["healthy"]


def it_is_hurt_by_a_chaos_run(control: ControlHost, network: HostNetwork) -> None:
    """It stays dead, for as long as the run wants it, although its unit would start it again."""
    pytest.importorskip("pyarrow", reason="chaos runs keep their histories by it: pip install -e '.[chaos]'")
    control.variables |= {
        "ansible_ssh_private_key_file": str(network.key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={network.known_hosts}",
    }
    control.write_inventory(control.hosts, control.variables, control.inventory)
    words = ("--workload", "W1", "--faults", "F1,F2,F18", "--time", "15", "--seed", "10", "--json")
    run = told(ran(network, control, *words, user=""))
    assert run["result"] == "PASSED", run
    assert faults_that_struck(run) == {"F1", "F2", "F18"}
    assert of_unit(network.hosts[0], NODE, "ActiveState") == "active"
    assert whole(network.hosts[0])


def it_comes_back_after_a_boot(host: NetworkHost) -> None:
    host.kill()
    host.start()
    wait_until(lambda: whole(host), "the cluster to be whole after a boot")


def a_status_that_a_new_start_does_not_mend_ends_it(host: NetworkHost) -> None:
    host.ssh("echo nonsense >>/etc/holdfast/node.toml; systemctl restart holdfast-node")
    wait_until(lambda: of_unit(host, NODE, "ActiveState") == "failed", "systemd to give up")
    assert of_unit(host, NODE, "ExecMainStatus") == "2"


def teardown_forgets_the_units(control: ControlHost, host: NetworkHost) -> None:
    done(control.play("teardown", teardown_confirmed=control.variables["holdfast_node_cluster"]))
    assert "holdfast-" not in host.ssh("systemctl list-unit-files --no-pager; systemctl list-units --no-pager").stdout
    assert "QuorumPeerMain" not in host.ssh("ps -e -o args").stdout
