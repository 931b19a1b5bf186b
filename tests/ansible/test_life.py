"""A cluster's whole life on hosts of its own: built, verified, upgraded under load, hurt, and taken down.

One test, because each part needs what the parts before it made; its parts are the functions it calls.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.hosts.network import OUTSIDE, HostNetwork, NetworkHost
from tests.ansible.hosts.spaces import PYTHON
from tests.ansible.playbooks import CLUSTER, ROOT, ControlHost
from tests.ansible.steps import (
    CONTROL,
    LOG,
    NODE,
    PARTITIONS,
    PYTHON_OF_TESTS,
    done,
    health,
    logs_rotate,
    nothing_was_lost,
    numbers,
    one_after_another,
    process,
    running,
    teardown_leaves_nothing,
    under_load,
    watched,
    whole,
)
from tests.integration.clusters.cluster import wait_until

PER_SECOND = int(os.environ.get("HOLDFAST_PER_SECOND", "5000"))
"""Less for a machine that is busy otherwise: the three nodes, the clients and Ansible share it."""
SUFFIX = "+next"

pytestmark = whole_of_provisioning


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_the_life_of_a_cluster(
    network: HostNetwork, control: ControlHost, make_bundle: Callable[[str], Path], measured: Callable[[str], None]
) -> None:
    bare = [host.written() for host in network.hosts]
    check_mode_changes_nothing_on_bare_hosts(control, network)
    done(control.play("site"))
    twice = done(control.play("site"))
    assert twice.changed == 0, twice.text
    check_mode_tells_what_would_change_on_a_cluster(control, network)
    done(control.play("verify"))
    a_stranger_in_another_network_uses_every_node(network)
    a_client_passes_through_the_proxy(control, network)
    registrations_are_protected(network)
    a_changed_variable_restarts_the_nodes_one_by_one(control, network)
    a_changed_proxy_restarts_toxiproxy(control, network)
    another_version_is_refused_by_site(control, make_bundle(SUFFIX))
    upgrade_under_load(control, network, make_bundle(SUFFIX), measured)
    control.variables["holdfast_node_bundle"] = str(make_bundle(SUFFIX))
    a_host_is_killed_and_brought_back(control, network)
    a_host_is_rebuilt_without_its_data(control, network)
    a_node_that_cannot_start_is_tried_again_until_it_can(network.hosts[0])
    logs_rotate(network.hosts[0])
    teardown(control, network)
    teardown_leaves_nothing(control, network, bare)


def check_mode_changes_nothing_on_bare_hosts(control: ControlHost, network: HostNetwork) -> None:
    before = [host.written() for host in network.hosts]
    done(control.play("site", "--check"))
    assert [host.written() for host in network.hosts] == before


def check_mode_tells_what_would_change_on_a_cluster(control: ControlHost, network: HostNetwork) -> None:
    assert done(control.play("site", "--check", "--diff")).changed == 0
    before = [(host.written(), running(host)) for host in network.hosts]
    told = done(control.play("site", "--check", "--diff", holdfast_node_min_free_mib=128))
    assert all(counts["changed"] == 1 for counts in told.recap.values()), told.text
    assert told.text.count(f"-min_free_bytes = {256 << 20}\n+min_free_bytes = {128 << 20}") == len(network.hosts)
    assert [(host.written(), running(host)) for host in network.hosts] == before


def a_changed_variable_restarts_the_nodes_one_by_one(control: ControlHost, network: HostNetwork) -> None:
    """Also when the run that wrote it was broken off before any restart, and although the nodes are then not where the
    inventory says."""
    listeners = [f"{host.inside}:5672" for host in network.hosts]
    servers = [f"{host.inside}:2181" for host in network.hosts]
    control.variables |= {"holdfast_node_monitoring_port": 9102, "zookeeper_tick_ms": 2500}
    before = [running(host) for host in network.hosts]
    done(control.play("site", "--tags", "configure"))
    assert [running(host) for host in network.hosts] == before
    with watched(network, listeners + servers) as seen:
        done(control.play("site"))
        away = seen()
    for kind in (listeners, servers):
        one_after_another(away, kind)
    for host, was in zip(network.hosts, before, strict=True):
        assert not numbers(was) & numbers(running(host))


def a_stranger_in_another_network_uses_every_node(network: HostNetwork) -> None:
    """Stock proton, through each node to every partition, following redirects."""
    command = ["holdfast", "log", "create", "strangers", "--partitions", str(PARTITIONS), "--server"]
    assert network.hosts[0].ssh(" ".join([*command, f"{network.hosts[0].inside}:5672"])).returncode == 0
    named: set[str] = set()
    for turn, host in enumerate(network.hosts):
        answer = network.in_client(
            PYTHON_OF_TESTS, "-m", "tests.ansible.clients.outside",
            f"{host.outside}:5672", "strangers", str(PARTITIONS),
            str(5 * turn), PYTHONPATH=str(ROOT),
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        named |= set(json.loads(answer.stdout))
    assert named == {f"{OUTSIDE}.{host.number}:5672" for host in network.hosts}
    inside = network.in_client(
        PYTHON, "-c", f"import socket; socket.create_connection(('{network.hosts[0].inside}', 5672), 2)"
    )
    assert inside.returncode != 0, "the client's network reaches the inner one, and so proves nothing"


def a_client_passes_through_the_proxy(control: ControlHost, network: HostNetwork) -> None:
    """Where Toxiproxy can be had."""
    if control.proxied:
        command = ["-m", "holdfast.cli", "log", "list", "--json", "--server", control.proxied]
        answer = network.in_client(PYTHON_OF_TESTS, *command, PYTHONPATH=str(ROOT))
        assert LOG in answer.stdout, answer.stderr


def a_changed_proxy_restarts_toxiproxy(control: ControlHost, network: HostNetwork) -> None:
    if control.proxied:
        first = network.hosts[0]
        before = process(first, "holdfast-toxiproxy")
        control.proxied = f"{first.outside}:15673"
        control.hosts[first.name]["toxiproxy_proxies"][0]["listen"] = control.proxied
        done(control.play("site", "--tags", "toxiproxy"))
        assert process(first, "holdfast-toxiproxy") not in (before, "0")
        wait_until(lambda: accepts(network, control.proxied), "the proxy at its new address")
        a_client_passes_through_the_proxy(control, network)


def accepts(network: HostNetwork, server: str) -> bool:
    host, port = server.split(":")
    code = f"import socket; socket.create_connection(({host!r}, {port}), 2).close()"
    return network.in_client(PYTHON, "-c", code).returncode == 0


def registrations_are_protected(network: HostNetwork) -> None:
    """With the secret from the vault: anybody may look nodes up, nobody else may write."""
    host = network.hosts[0]
    code = (
        "from kazoo.client import KazooClient; from kazoo.exceptions import NoAuthError\n"
        f"client = KazooClient('{host.inside}:2181'); client.start(20)\n"
        f"path = '/holdfast/{CLUSTER}/nodes'\n"
        "print(sorted(client.get_children(path)))\n"
        "try: client.delete(path + '/1')\n"
        "except NoAuthError: print('refused')\n"
        "client.stop()"
    )
    answer = network.in_control(PYTHON_OF_TESTS, "-c", code)
    assert answer.stdout.split("\n")[:2] == ["['1', '2', '3']", "refused"], answer.stderr


def another_version_is_refused_by_site(control: ControlHost, bundle: Path) -> None:
    refused = control.play("site", holdfast_node_bundle=str(bundle))
    assert refused.status != 0
    assert "holdfast_node_bundle: version" in refused.text
    assert refused.changed == 0


def upgrade_under_load(
    control: ControlHost, network: HostNetwork, bundle: Path, measured: Callable[[str], None]
) -> None:
    with under_load(network, PER_SECOND) as produced:
        upgrade = done(control.play("rolling-upgrade", holdfast_node_bundle=str(bundle)))
        report = produced()
    measured(f"rolling upgrade of three nodes under load: {json.dumps(report)}")
    assert report["sent"] > 10 * PER_SECOND, report
    nothing_was_lost(report)
    assert all(counts["changed"] > 0 for host, counts in upgrade.recap.items() if host != "localhost")
    for host in network.hosts:
        said = json.loads(host.ssh(f"holdfast node status {host.number} --json --server {host.inside}:5672").stdout)
        assert said["version"].endswith(SUFFIX)


def a_host_is_killed_and_brought_back(control: ControlHost, network: HostNetwork) -> None:
    victim, witness = network.hosts[1], network.hosts[0]
    victim.kill()
    wait_until(
        lambda: any("node 2 does not answer" in problem for problem in health(witness)["problems"]), "its absence"
    )
    produced = witness.ssh(f"echo meanwhile | holdfast produce {LOG} --json --server {witness.inside}:5672")
    assert json.loads(produced.stdout)["events"] == 1, produced.stderr
    victim.start()
    wait_until(lambda: health(witness)["healthy"], "the cluster to be whole", 120)
    again = done(control.play("site"))
    assert again.changed == 0, again.text
    done(control.play("verify"))


def a_host_is_rebuilt_without_its_data(control: ControlHost, network: HostNetwork) -> None:
    """The steps of docs/operate/deploy.md, `Rebuilding a host`."""
    victim, witness = network.hosts[2], network.hosts[0]
    at = f"--server {witness.inside}:5672"
    victim.kill()
    victim.rebuild()
    done(control.play("site", "--limit", victim.name, "--skip-tags", "health"))
    command = f"holdfast node readmit {victim.number}"
    wait_until(lambda: command in witness.ssh("cat /var/log/holdfast/node.log").stdout, "the refusal of the empty node")
    readmitted = witness.ssh(f"{command} {at}")
    assert readmitted.returncode == 0, readmitted.stderr
    waited = witness.ssh(f"holdfast node health --nodes {len(network.hosts)} --wait-s 120 {at}")
    assert waited.returncode == 0, waited.stdout + waited.stderr
    wait_until(lambda: with_vote(witness), "every replica's vote", 120)
    assert done(control.play("site")).changed == 0
    done(control.play("verify"))


def with_vote(host: NetworkHost) -> bool:
    nodes = json.loads(host.ssh(f"holdfast node list --json --server {host.inside}:5672").stdout)["nodes"]
    return all(node["without_vote"] == 0 for node in nodes)


def a_node_that_cannot_start_is_tried_again_until_it_can(host: NetworkHost) -> None:
    """Ever more rarely, and never given up; somebody mends it meanwhile."""
    host.ssh("cp -p /etc/holdfast/node.toml /root/node.toml; echo nonsense >>/etc/holdfast/node.toml")
    host.ssh(f"{CONTROL} signal KILL {NODE}")
    wait_until(lambda: "BACKOFF" in host.ssh(f"{CONTROL} status {NODE}").stdout, "a start that fails")
    host.ssh("mv /root/node.toml /etc/holdfast/node.toml")
    wait_until(lambda: whole(host), "the node to be started again", 120)


def teardown(control: ControlHost, network: HostNetwork) -> None:
    unsure = control.play("teardown")
    assert unsure.status != 0
    assert f"teardown_confirmed={CLUSTER}" in unsure.text
    assert health(network.hosts[0])["healthy"]
    done(control.play("teardown", teardown_confirmed=CLUSTER))
    for host in network.hosts:
        assert running(host) == ""
        assert "journal" in host.ssh("ls /var/lib/holdfast/data").stdout, "the events were to stay"
