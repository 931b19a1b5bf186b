"""Parts of a cluster's life that more than one test goes through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.hosts.spaces import Space
from tests.ansible.playbooks import CLUSTER, ROOT, ControlHost, PlayOutcome
from tests.integration.clusters.cluster import wait_until

LOG, PARTITIONS = "events", 6
PYTHON_OF_TESTS = sys.executable
NODE, ZOOKEEPER = "holdfast-node", "holdfast-zookeeper"
CONTROL = "/opt/holdfast-supervisor/current/bin/supervisorctl -c /etc/holdfast/supervisord.conf"
DAEMON = "/opt/holdfast-supervisor/current/bin/supervisord -c /etc/holdfast/supervisord.conf"
USER_DATABASES = {"/etc/group", "/etc/gshadow", "/etc/passwd", "/etc/shadow", "/etc/subgid", "/etc/subuid"} | {
    "/etc/.pwd.lock"
}
"""A teardown leaves the user, who may own events."""


def done(outcome: PlayOutcome) -> PlayOutcome:
    assert outcome.status == 0, outcome.text
    assert outcome.recap, outcome.text
    return outcome


def asked_for_health(host: NetworkHost) -> str:
    """By root, as the operator where there is one."""
    config = "HOLDFAST_CONFIG=$(ls /etc/holdfast/operator.toml /etc/holdfast/client.toml 2>/dev/null | tail -1)"
    return host.ssh(f"{config} holdfast node health --json --server {host.inside}:5672").stdout


def health(host: NetworkHost) -> dict[str, Any]:
    return dict(json.loads(asked_for_health(host)))


def whole(host: NetworkHost) -> bool:
    asked = asked_for_health(host)
    return bool(asked) and bool(json.loads(asked)["healthy"])


def node_numbers(host: NetworkHost) -> list[int]:
    """The nodes that the cluster has."""
    told = host.ssh(f"holdfast node list --json --server {host.inside}:5672")
    return [node["node"] for node in json.loads(told.stdout)["nodes"]]


def configured(host: NetworkHost) -> set[str]:
    """Files that were written on the host, but what its node stores, and what services say."""
    return {path for path in host.written() if not path.startswith(("/var/lib/holdfast/", "/var/log/"))}


def running(host: NetworkHost) -> str:
    """Nodes and ZooKeeper servers, with their numbers: others after a restart."""
    return host.ssh("ps -e -o pid=,args= | grep -E -e '-m node|QuorumPeerMain' | grep -v grep").stdout


def numbers(lines: str) -> set[str]:
    return {line.split()[0] for line in lines.splitlines()}


@contextmanager
def beside(space: Space, module: str, *arguments: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """One of this folder's programs, at work in the space; what is yielded ends it and returns what it found."""
    process = subprocess.Popen(
        space.command(PYTHON_OF_TESTS, "-m", f"tests.ansible.clients.{module}", *arguments),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    def found() -> dict[str, Any]:
        told, _ = process.communicate(timeout=600)
        return dict(json.loads(told))

    try:
        assert process.stdout is not None
        assert "event" in json.loads(process.stdout.readline())
        yield found
    finally:
        process.kill()
        process.communicate()


def under_load(network: HostNetwork, per_second: int, *login: str, hosts: Sequence[NetworkHost] = ()) -> Any:
    """`login`: a user, and the file with the password. `hosts`: where clients begin, else anywhere."""
    servers = ",".join(f"{host.outside}:5672" for host in hosts or network.hosts)
    return beside(network.client, "load", servers, LOG, str(PARTITIONS), str(per_second), *login)


def nothing_was_lost(report: dict[str, Any]) -> None:
    assert report["acknowledged"] == report["sent"] > 0, report
    assert [report[key] for key in ("lost", "doubled", "disordered", "strange")] == [0, 0, 0, 0], report
    assert report["errors"] == [], report


def watched(network: HostNetwork, servers: Sequence[str]) -> Any:
    return beside(network.control, "watch", *servers)


def one_after_another(away: dict[str, list[list[float]]], servers: Sequence[str]) -> None:
    """Each was away once, and was back before the next one went."""
    assert [len(away[server]) for server in servers] == [1] * len(servers), away
    times = sorted(away[server][0] for server in servers)
    assert all(back < next_gone for (_, back), (next_gone, _) in pairwise(times)), away


def process(host: NetworkHost, service: str) -> str:
    """The number of a service's process under supervisord."""
    return host.ssh(f"{CONTROL} pid {service}").stdout.strip()


def status(host: NetworkHost, number: str) -> dict[str, str]:
    said = host.ssh(f"cat /proc/{number}/status").stdout
    return dict(line.split(":\t", 1) for line in said.splitlines())


def services_run_with_what_they_were_promised(control: ControlHost, host: NetworkHost) -> None:
    """By what the kernel says of the processes."""
    for service, user in ((NODE, "holdfast"), (ZOOKEEPER, "zookeeper")):
        number = process(host, service)
        said = status(host, number)
        user_number = host.ssh(f"id -u {user}").stdout.strip()
        assert said["Uid"].split() == [user_number] * 4
        assert (said["NoNewPrivs"], said["CapEff"].strip("0"), said["Umask"]) == ("1", "", "0027")
        limits = host.ssh(f"cat /proc/{number}/limits").stdout
        wanted = str(control.variables["common_nofile"])
        assert [line.split()[3:5] for line in limits.splitlines() if "open files" in line] == [[wanted, wanted]]
        assert [line.split()[4:6] for line in limits.splitlines() if "core file" in line] == [["0", "0"]]
        assert "SUPERVISOR" not in host.ssh(f"cat /proc/{number}/environ").stdout


def a_node_that_is_killed_is_started_again(host: NetworkHost) -> None:
    before = process(host, NODE)
    assert host.ssh(f"kill -9 {before}").returncode == 0
    wait_until(lambda: process(host, NODE) not in (before, "0", ""), "the node to be started again")
    wait_until(lambda: whole(host), "the cluster to be whole")


def supervisord_is_killed_and_started_again(host: NetworkHost) -> None:
    """With it its services end, so that none runs twice afterwards."""
    before = running(host)
    assert host.ssh(f"kill -9 $({CONTROL} pid)").returncode == 0
    wait_until(lambda: not numbers(before) & numbers(running(host)), "the end of its services")
    assert host.ssh(DAEMON).returncode == 0
    wait_until(lambda: whole(host), "the cluster to be whole")
    assert len(running(host).splitlines()) == len(before.splitlines())


def logs_rotate(host: NetworkHost) -> None:
    before = host.ssh("stat -c %s /var/log/holdfast/node.log").stdout
    assert int(before) > 0
    rotated = host.ssh("logrotate --force --state /run/logrotate.state /etc/logrotate.d/holdfast-node")
    assert rotated.returncode == 0, rotated.stderr
    assert int(host.ssh("stat -c %s /var/log/holdfast/node.log.1").stdout) >= int(before)


def teardown_leaves_nothing(control: ControlHost, network: HostNetwork, bare: list[set[str]]) -> None:
    """But the user, when the events go too."""
    done(control.play("teardown", teardown_confirmed=CLUSTER, holdfast_node_remove_data=True))
    for host, before in zip(network.hosts, bare, strict=True):
        assert running(host) == ""
        assert "supervisord" not in host.ssh("ps -e -o args=").stdout
        left = {path for path in host.written() - before if path.rstrip("-") not in USER_DATABASES}
        assert left == set(), sorted(left)
