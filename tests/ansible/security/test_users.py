"""Users from an inventory and its vault, on a host of its own: a cluster that is closed from its first start, and one
that was open before. One test each, because each part needs what the parts before it made."""

from __future__ import annotations

import json

import pytest

from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.playbooks import CLUSTER
from tests.ansible.security.closed import Closed, ask
from tests.ansible.steps import done

pytestmark = whole_of_provisioning

FIRST = {"ops": "of-ops-1", "ann": "of-ann-1", "bob": "of-bob-1"}
FILES = {"/etc/holdfast/operator.toml": "600 root root", "/etc/holdfast/operator.password": "600 root root"} | {
    "/etc/holdfast/first-user.json": "640 root holdfast"
}


def users(host: NetworkHost) -> dict[str, list[str]]:
    return {one["name"]: one["roles"] for one in ask(host, "user list")["users"]}


def nobody_is_let_in_without_a_credential(host: NetworkHost) -> None:
    told = host.ssh(f"holdfast log list --json --config /dev/null --server {host.inside}:5672")
    assert told.returncode != 0
    assert "asks for a login" in json.loads(told.stderr)["error"]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_cluster_is_closed_from_its_first_start_on(closed: Closed, one_host: HostNetwork) -> None:
    host = one_host.hosts[0]
    closed.name(FIRST, ["role:readers consume log:ev*", "ann publish log:events"], bob=["readers"])
    done(closed.play("site"))
    nobody_is_let_in_without_a_credential(host)
    assert users(host) == {"ops": ["admin"], "ann": [], "bob": ["readers"]}
    granted = {(one["principal"], one["operation"]) for one in ask(host, "grant list")["grants"]}
    assert granted == {("role:readers", "consume"), ("ann", "publish")}
    for path, mode in FILES.items():
        assert host.ssh(f"stat -c '%a %U %G' {path}").stdout.strip() == mode
    assert FIRST["ops"] not in host.ssh("cat /etc/holdfast/first-user.json /etc/holdfast/node.toml").stdout
    assert done(closed.play("site")).changed == 0
    assert done(closed.play("site", "--check")).changed == 0
    done(closed.play("verify"))
    another_password_and_a_shorter_list(closed, host)
    done(closed.play("site", holdfast_node_min_free_mib=128))  # a restart, asked for and waited for by the operator
    an_operator_who_is_unknown(closed, host)
    done(closed.play("teardown", teardown_confirmed=CLUSTER, holdfast_node_remove_data=True))
    assert host.ssh("ls /etc/holdfast").stdout == ""


def another_password_and_a_shorter_list(closed: Closed, host: NetworkHost) -> None:
    then = {"ops": "of-ops-2", "ann": "of-ann-2"}
    closed.name(then, ["ann publish log:events"])
    before = host.ssh("ps -e -o pid=,args= | grep -e '-m node' | grep -v grep").stdout
    done(closed.play("site"))
    assert host.ssh("ps -e -o pid=,args= | grep -e '-m node' | grep -v grep").stdout == before
    assert ask(host, "whoami")["principal"] == "ops"
    for user in then:
        assert ask(host, "whoami", user, then[user])["principal"] == user
        assert "error" in ask(host, "whoami", user, FIRST[user])
    assert ask(host, "whoami", "bob", FIRST["bob"])["roles"] == ["readers"], "whoever is not listed stays"
    assert done(closed.play("site")).changed == 0
    done(closed.play("site", holdfast_node_users_exclusive=True))
    assert users(host) == {"ops": ["admin"], "ann": []}
    assert [one["principal"] for one in ask(host, "grant list")["grants"]] == ["ann"]
    assert done(closed.play("site", holdfast_node_users_exclusive=True)).changed == 0


def an_operator_who_is_unknown(closed: Closed, host: NetworkHost) -> None:
    """Somebody has changed the password in the cluster: the files do not follow an inventory that is wrong."""
    assert "error" not in ask(host, "user add root --role admin --new-password-file /dev/stdin", password="x")
    written = host.ssh("cat /etc/holdfast/operator.password").stdout
    host.ssh("echo of-ops-3 >/root/new")
    assert "error" not in ask(host, "user password ops --new-password-file /root/new")
    refused = closed.play("site")
    assert refused.status != 0
    assert "holdfast_node_operator: the cluster knows users" in " ".join(refused.text.split())
    assert host.ssh("cat /etc/holdfast/operator.password").stdout == written
    closed.name({"ops": "of-ops-3", "ann": "of-ann-2"}, ["ann publish log:events"])
    done(closed.play("site"))
    assert ask(host, "whoami")["principal"] == "ops"


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_cluster_that_was_open_is_closed(closed: Closed, one_host: HostNetwork) -> None:
    host = one_host.hosts[0]
    refused = closed.play("site", holdfast_node_users=[{"name": "ann", "password": "of-ann-1"}])
    assert "holdfast_node_operator: no name" in " ".join(refused.text.split())
    refused = closed.play("site", holdfast_node_plain_without_tls=["default"])
    assert "would let passwords travel in clear to outside" in " ".join(refused.text.split())
    assert host.ssh("ls /etc/holdfast").returncode != 0, "it was to be refused before anything was changed"
    done(closed.play("site"))
    closed.name(FIRST, [])
    done(closed.play("site"))
    nobody_is_let_in_without_a_credential(host)
    assert set(users(host)) == set(FIRST)
    assert done(closed.play("site")).changed == 0
    done(closed.play("teardown", teardown_confirmed=CLUSTER, holdfast_node_remove_data=True))
