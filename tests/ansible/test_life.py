"""A cluster's whole life on hosts of its own: built, verified, upgraded under load, hurt, and taken down.

One test, because each part needs what the parts before it made; its parts are the functions it calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.hosts import OUTSIDE, Host, Network
from tests.ansible.playbooks import CLUSTER, ROOT, Control, Outcome
from tests.ansible.spaces import PYTHON
from tests.integration.clusters.cluster import wait_until

LOG, PARTITIONS = "events", 6
PER_SECOND = 5000
PAUSE_MOST_S = 3.0
SUFFIX = "+next"
PYTHON_OF_TESTS = sys.executable


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_life_of_a_cluster(
    network: Network, control: Control, make_bundle: Callable[[str], Path], measured: Callable[[str], None]
) -> None:
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
    another_version_is_refused_by_site(control, make_bundle(SUFFIX))
    upgrade_under_load(control, network, make_bundle(SUFFIX), measured)
    control.variables["holdfast_node_bundle"] = str(make_bundle(SUFFIX))
    a_host_is_killed_and_brought_back(control, network)
    a_host_is_rebuilt_without_its_data(control, network)
    logs_rotate(network.hosts[0])
    teardown(control, network)


def done(outcome: Outcome) -> Outcome:
    assert outcome.status == 0, outcome.text
    assert outcome.recap, outcome.text
    return outcome


def check_mode_changes_nothing_on_bare_hosts(control: Control, network: Network) -> None:
    before = [host.written() for host in network.hosts]
    done(control.play("site", "--check"))
    assert [host.written() for host in network.hosts] == before


def check_mode_tells_what_would_change_on_a_cluster(control: Control, network: Network) -> None:
    assert done(control.play("site", "--check", "--diff")).changed == 0
    before = [(host.written(), running(host)) for host in network.hosts]
    told = done(control.play("site", "--check", "--diff", holdfast_node_min_free_mib=128))
    assert all(counts["changed"] == 1 for counts in told.recap.values()), told.text
    assert told.text.count(f"-min_free_bytes = {256 << 20}\n+min_free_bytes = {128 << 20}") == len(network.hosts)
    assert [(host.written(), running(host)) for host in network.hosts] == before


def running(host: Host) -> str:
    """Nodes and ZooKeeper servers, with their numbers: others after a restart."""
    return host.ssh("ps -e -o pid=,args= | grep -E -e '-m node|QuorumPeerMain' | grep -v grep").stdout


def a_changed_variable_restarts_the_nodes_one_by_one(control: Control, network: Network) -> None:
    """Also when the run that wrote it was broken off before any restart, and although the nodes are then not where the
    inventory says."""
    listeners = [f"{host.inside}:5672" for host in network.hosts]
    control.variables |= {"holdfast_node_monitoring_port": 9102, "zookeeper_heap_mib": 100}
    before = [running(host) for host in network.hosts]
    done(control.play("site", "--tags", "configure"))
    assert [running(host) for host in network.hosts] == before
    watch = subprocess.Popen(
        network.control.command(PYTHON_OF_TESTS, "-m", "tests.ansible.watch", *listeners),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline()) == {"event": "watching"}
        done(control.play("site"))
        told, _ = watch.communicate(timeout=60)
    finally:
        watch.kill()
        watch.wait()
    away: dict[str, list[list[float]]] = json.loads(told)
    assert [len(away[listener]) for listener in listeners] == [1, 1, 1], away
    times = [away[listener][0] for listener in listeners]
    assert all(back < next_gone for (_, back), (next_gone, _) in pairwise(times)), away
    for host, was in zip(network.hosts, before, strict=True):
        now = running(host)
        assert not {line.split()[0] for line in was.splitlines()} & {line.split()[0] for line in now.splitlines()}
        assert "-Xmx100m" in now


def a_stranger_in_another_network_uses_every_node(network: Network) -> None:
    """Stock proton, through each node to every partition, following redirects."""
    command = ["holdfast", "log", "create", "strangers", "--partitions", str(PARTITIONS), "--server"]
    assert network.hosts[0].ssh(" ".join([*command, f"{network.hosts[0].inside}:5672"])).returncode == 0
    named: set[str] = set()
    for turn, host in enumerate(network.hosts):
        answer = network.in_client(
            PYTHON_OF_TESTS, "-m", "tests.ansible.outside", f"{host.outside}:5672", "strangers", str(PARTITIONS),
            str(5 * turn), PYTHONPATH=str(ROOT),
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        named |= set(json.loads(answer.stdout))
    assert named == {f"{OUTSIDE}.{host.number}:5672" for host in network.hosts}
    inside = network.in_client(
        PYTHON, "-c", f"import socket; socket.create_connection(('{network.hosts[0].inside}', 5672), 2)"
    )
    assert inside.returncode != 0, "the client's network reaches the inner one, and so proves nothing"


def a_client_passes_through_the_proxy(control: Control, network: Network) -> None:
    """Where Toxiproxy can be had."""
    if control.proxied:
        command = ["-m", "holdfast.cli", "log", "list", "--json", "--server", control.proxied]
        answer = network.in_client(PYTHON_OF_TESTS, *command, PYTHONPATH=str(ROOT))
        assert LOG in answer.stdout, answer.stderr


def registrations_are_protected(network: Network) -> None:
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


def another_version_is_refused_by_site(control: Control, bundle: Path) -> None:
    refused = control.play("site", holdfast_node_bundle=str(bundle))
    assert refused.status != 0
    assert "holdfast_node_bundle: version" in refused.text
    assert refused.changed == 0


def upgrade_under_load(control: Control, network: Network, bundle: Path, measured: Callable[[str], None]) -> None:
    servers = ",".join(f"{host.outside}:5672" for host in network.hosts)
    load = subprocess.Popen(
        network.client.command(
            PYTHON_OF_TESTS, "-m", "tests.ansible.load", servers, LOG, str(PARTITIONS), str(PER_SECOND)
        ),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert load.stdout is not None
        assert json.loads(load.stdout.readline()) == {"event": "running"}
        upgrade = done(control.play("rolling-upgrade", holdfast_node_bundle=str(bundle)))
        told, _ = load.communicate(timeout=600)
    finally:
        load.kill()
        load.wait()
    report: dict[str, Any] = json.loads(told)
    measured(f"rolling upgrade of three nodes under load: {json.dumps(report)}")
    assert report["acknowledged"] == report["sent"] > 10 * PER_SECOND, report
    assert [report[key] for key in ("lost", "doubled", "disordered", "strange")] == [0, 0, 0, 0], report
    assert report["errors"] == []
    assert report["longest_pause_s"] < PAUSE_MOST_S, report
    assert all(counts["changed"] > 0 for host, counts in upgrade.recap.items() if host != "localhost")
    for host in network.hosts:
        said = json.loads(host.ssh(f"holdfast node status {host.number} --json --server {host.inside}:5672").stdout)
        assert said["version"].endswith(SUFFIX)


def a_host_is_killed_and_brought_back(control: Control, network: Network) -> None:
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


def a_host_is_rebuilt_without_its_data(control: Control, network: Network) -> None:
    """The steps of docs/operations.md, `Rebuilding a host`."""
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


def with_vote(host: Host) -> bool:
    nodes = json.loads(host.ssh(f"holdfast node list --json --server {host.inside}:5672").stdout)["nodes"]
    return all(node["without_vote"] == 0 for node in nodes)


def health(host: Host) -> dict[str, Any]:
    return dict(json.loads(host.ssh(f"holdfast node health --json --server {host.inside}:5672").stdout))


def logs_rotate(host: Host) -> None:
    before = host.ssh("stat -c %s /var/log/holdfast/node.log").stdout
    assert int(before) > 0
    rotated = host.ssh("logrotate --force --state /run/logrotate.state /etc/logrotate.d/holdfast-node")
    assert rotated.returncode == 0, rotated.stderr
    assert int(host.ssh("stat -c %s /var/log/holdfast/node.log.1").stdout) >= int(before)


def teardown(control: Control, network: Network) -> None:
    unsure = control.play("teardown")
    assert unsure.status != 0
    assert f"teardown_confirmed={CLUSTER}" in unsure.text
    assert health(network.hosts[0])["healthy"]
    done(control.play("teardown", teardown_confirmed=CLUSTER))
    for host in network.hosts:
        left = host.ssh("ps ax -o args; ls /opt /etc/holdfast/services /var/lib/holdfast/data").stdout
        assert "-m node" not in left
        assert "QuorumPeerMain" not in left
        assert "journal" in left, "the events were to stay"
    done(control.play("teardown", teardown_confirmed=CLUSTER, holdfast_node_remove_data=True))
    for host in network.hosts:
        assert "journal" not in host.ssh("ls /var/lib/holdfast/data").stdout
