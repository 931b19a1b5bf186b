"""TLS of AMQP listeners by variables: what the role writes and refuses, and the life of a cluster of one
host that takes clients by TLS alone."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node import config as node_config
from node.config import Config
from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.hosts.spaces import PYTHON
from tests.ansible.playbooks import CLUSTER, COLLECTION, ansible_directory
from tests.ansible.security.closed import Closed, ask
from tests.ansible.steps import done, running
from tests.authority import Authority
from tests.integration.clusters.cluster import wait_until
from tests.ports import free_ports

needs_ansible = pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it")

TO_SHOW = {"holdfast_node_tls_cert_file": "node.pem", "holdfast_node_tls_key_file": "node.key"}
AUTHORITIES = {"holdfast_node_tls_ca_file": "ca.pem", "holdfast_node_tls_client_ca_file": "ca.pem"}
LOOPBACK = "127.0.0.1"


def listener(name: str, port: str = "one_port", **more: Any) -> dict[str, Any]:
    """One that strangers reach."""
    port = "{{ " + port + " }}"
    return {"name": name, "bind": f"0.0.0.0:{port}", "advertise": f"{LOOPBACK}:{port}", **more}


PLAIN = [listener("default")]
TLS = [listener("default", tls="on")]
ACCEPTED: dict[str, dict[str, Any]] = {
    "closed": {
        "holdfast_node_listeners": PLAIN,
        "holdfast_node_operator": "ops",
        "holdfast_node_operator_password": "of-ops-1",
    },
    "plain": {"holdfast_node_listeners": PLAIN},
    "tls": {"holdfast_node_listeners": TLS, **TO_SHOW, **AUTHORITIES},
    "by-a-truth-of-yaml": {
        "holdfast_node_listeners": [listener("default", tls=True), listener("outside", port="another_port", tls=False)],
        **TO_SHOW,
        **AUTHORITIES,
    },
    "started": {  # the plays' listener is plain, so that they need no authority
        "holdfast_node_listeners": [
            listener("default", port="another_port", tls="start", client_certificate="optional"),
            listener("outside", tls="on", client_certificate="required"),
        ],
        **TO_SHOW,
        "holdfast_node_tls_client_ca_file": "ca.pem",
    },
    "passwords-inside": {  # of the two that strangers reach, one has TLS and one is named
        "holdfast_node_listeners": [*TLS, listener("named", port="another_port")],
        "holdfast_node_plain_without_tls": ["named"],
        **TO_SHOW,
        **AUTHORITIES,
    },
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nobody-named": (
        {"holdfast_node_listeners": PLAIN},
        "name an operator, with holdfast_node_operator_password, or write holdfast_node_anonymous: always",
    ),
    "no-files": (
        {"holdfast_node_listeners": TLS, **AUTHORITIES},
        "a listener has tls, but on the control host (none) or (none) is no file",
    ),
    "no-key": (
        {"holdfast_node_listeners": TLS, **TO_SHOW, **AUTHORITIES, "holdfast_node_tls_key_file": "/nowhere/node.key"},
        "node.pem or /nowhere/node.key is no file",
    ),
    "no-files-to-start": (
        {"holdfast_node_listeners": [listener("default", tls="start")]},
        "holdfast_node_tls_cert_file, holdfast_node_tls_key_file: a listener has tls",
    ),
    "no-client-authority": (
        {
            "holdfast_node_listeners": [listener("default", tls="on", client_certificate="optional")],
            **TO_SHOW,
            "holdfast_node_tls_ca_file": "ca.pem",
        },
        "default asks clients for certificates, but holdfast_node_tls_client_ca_file, (none), is no file",
    ),
    "certificates-without-tls": (
        {"holdfast_node_listeners": [listener("default", client_certificate="optional")], **AUTHORITIES},
        "default asks clients for certificates, but it has no tls",
    ),
    "no-authority": (
        {"holdfast_node_listeners": TLS, **TO_SHOW},
        "the first listener, default, but holdfast_node_tls_ca_file, (none), by which they check its certificate",
    ),
    "plays-without-a-certificate": (
        {"holdfast_node_listeners": [listener("default", tls="on", client_certificate="required")]}
        | TO_SHOW
        | AUTHORITIES,
        "the first listener, default, but it requires certificates, which they have not",
    ),
    "no-such-tls": (
        {"holdfast_node_listeners": [listener("default", tls="often")]},
        "value of tls must be one of: off, start, on",
    ),
    "no-such-wish": (
        {"holdfast_node_listeners": [listener("default", tls="on", client_certificate="perhaps")]},
        "value of client_certificate must be one of: none, optional, required",
    ),
    "passwords-in-clear": (  # before TLS is started
        {
            "holdfast_node_listeners": [listener("default", tls="start"), listener("named", port="another_port")],
            "holdfast_node_plain_without_tls": ["named"],
            **TO_SHOW,
        },
        "would let passwords travel in clear to default, too",
    ),
    "unlike-its-twin": (
        {"holdfast_node_listeners": TLS, **TO_SHOW, **AUTHORITIES, "holdfast_node_group": "twins"},
        "each with the same tls, since redirects name the address of the same listener; they are default (tls on)",
    ),
}
AS_BY_DEFAULT = ("closed", "nobody-named")
"""Hosts whose inventory does not say that a cluster is open."""


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of what the role said of each host of an inventory that has them all."""
    if (programs := ansible_directory()) is None:
        pytest.skip("no Ansible here: make test brings it")
    directory = tmp_path_factory.mktemp("looked")
    authority = Authority(directory)
    authority.issue("node", [LOOPBACK])
    version = f"{sys.version_info.major}.{sys.version_info.minor} {platform.machine()}\n"
    (directory / "PYTHON").write_text(version)
    bundle = directory / "holdfast-bundle-1.2.3.tar.gz"
    with tarfile.open(bundle, "w:gz") as archive:
        archive.add(directory / "PYTHON", "./PYTHON")
    cases = ACCEPTED | {name: variables for name, (variables, _) in REFUSED.items()}
    cases["twin"] = {"holdfast_node_listeners": PLAIN, "holdfast_node_group": "twins", "holdfast_node_id": 2}
    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, variables in cases.items():
        files = {
            key: str(directory / value)
            for key, value in variables.items()
            if key in TO_SHOW | AUTHORITIES and not value.startswith("/")
        }
        opened = {} if name in AS_BY_DEFAULT else {"holdfast_node_anonymous": "always"}
        hosts[name] = {"holdfast_node_group": f"of-{name}", **opened, **variables, **files}
        groups.setdefault(hosts[name]["holdfast_node_group"], {"hosts": {}})["hosts"][name] = {}
    ports = ("one_port", "another_port", "holdfast_node_rpc_port", "holdfast_node_monitoring_port")
    common = {
        **dict(zip(ports, free_ports(len(ports)), strict=True)),
        "into": str(directory),
        "common_supervised_by": "systemd",
        "ansible_python_interpreter": sys.executable,
        "holdfast_node_address": LOOPBACK,
        "holdfast_node_bundle": str(bundle),
        "holdfast_node_id": 1,
        "holdfast_node_min_disk_mib": 0,
        "holdfast_node_python": sys.executable,
        "holdfast_node_prefix": str(directory / "prefix"),
    }
    inventory, playbook = directory / "hosts.json", Path(__file__).with_name("preflight_of_many.yml")
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": common, "children": groups}}))
    done = subprocess.run(
        [str(programs / "ansible-playbook"), "-i", str(inventory), str(playbook)],
        capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(COLLECTION / "ansible.cfg"), "ANSIBLE_HOME": str(directory / "home"),
             "ANSIBLE_ANY_ERRORS_FATAL": "false"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def said(looked: Path, name: str) -> str:
    """Why the host was refused; empty when it was not."""
    path = looked / f"{name}.refused"
    return " ".join(str(json.loads(path.read_text())).split()) if path.exists() else ""


def configuration(looked: Path, name: str) -> Config:
    """What a node that was configured so has read."""
    assert said(looked, name) == ""
    return node_config.load(looked / f"{name}.node.toml")


@needs_ansible
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(looked: Path, name: str) -> None:
    assert REFUSED[name][1] in said(looked, name)
    assert not (looked / f"{name}.node.toml").exists()


@needs_ansible
def test_a_node_takes_what_the_role_writes(looked: Path) -> None:
    for name in ACCEPTED:
        assert configuration(looked, name).listener
    assert [one.tls for one in configuration(looked, "plain").listener] == ["off"]
    assert configuration(looked, "plain").security.anonymous == "always"
    assert configuration(looked, "closed").security.anonymous == "never"
    assert configuration(looked, "closed").security.first_user_file
    own = configuration(looked, "tls").listener[0]
    assert (own.tls, own.cert_file, own.key_file, own.client_ca_file) == (
        "on", "/etc/holdfast/listener.pem", "/etc/holdfast/listener.key", "",
    )  # fmt: skip
    assert [one.tls for one in configuration(looked, "by-a-truth-of-yaml").listener] == ["on", "off"]
    asked = configuration(looked, "started").listener
    assert [(one.tls, one.client_certificate) for one in asked] == [("start", "optional"), ("on", "required")]
    assert {one.client_ca_file for one in asked} == {"/etc/holdfast/listener-clients-ca.pem"}
    assert configuration(looked, "passwords-inside").security.plain_without_tls


@needs_ansible
def test_clients_on_the_host_are_told_how_to_reach_it(looked: Path) -> None:
    for name, secure in (("plain", False), ("tls", True), ("by-a-truth-of-yaml", True), ("started", False)):
        text = (looked / f"{name}.client.toml").read_text()
        assert configuration(looked, name).listener[0].advertise in text
        assert ('ca = "/etc/holdfast/listener-ca.pem"' in text) == secure


PASSWORDS = {"ops": "of-ops-1", "ann": "of-ann-1"}
SHOWN = """
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[3])
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as plain:
    with context.wrap_socket(plain, server_hostname=sys.argv[1]) as secure:
        print(ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True)), end="")
"""


class OverTls:
    """The certificate of a host that takes clients by TLS alone, and who signs it, on the control host."""

    def __init__(self, closed: Closed, network: HostNetwork) -> None:
        self._closed, self._network = closed, network
        self.host = network.hosts[0]
        self.directory = closed.control.directory / "tls"
        self.authority = Authority(self.directory)
        where = f"{self.host.inside}:5672"
        only = {"name": "default", "bind": where, "advertise": where, "tls": "on"}
        closed.control.hosts[self.host.name]["holdfast_node_listeners"] = [only]
        for variable, name in (*TO_SHOW.items(), *AUTHORITIES.items()):
            file = name.replace("node", "{{ inventory_hostname }}")
            closed.control.variables[variable] = "{{ inventory_dir }}/tls/" + file

    def renew(self) -> None:
        """Another key and certificate in place of those that are there; the key is encrypted, and said nowhere."""
        files = self.authority.issue("listener", [self.host.inside], file=self.host.name)
        key = Path(files.key)
        self._closed.secrets |= set(key.read_text().splitlines()[1:-1])
        self._closed.control.encrypt(key)

    @property
    def own(self) -> str:
        return (self.directory / f"{self.host.name}.pem").read_text()

    def shown(self) -> str:
        """What a client is shown that trusts the authority and asks for the host by its address."""
        told = self._network.in_control(PYTHON, "-c", SHOWN, self.host.inside, "5672", self.authority.ca)
        assert told.returncode == 0, told.stderr
        return told.stdout


@whole_of_provisioning
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_cluster_takes_clients_by_tls_alone(
    closed: Closed, one_host: HostNetwork, make_bundle: Callable[..., Path]
) -> None:
    secure, host = OverTls(closed, one_host), one_host.hosts[0]
    closed.name(PASSWORDS, ["ann publish log:events"])
    secure.renew()
    done(closed.play("site"))
    nobody_is_let_in_without_tls_or_a_credential(host)
    assert secure.shown() == secure.own
    for name in ("listener.pem", "listener.key"):
        assert host.ssh(f"stat -c '%a %U %G' /etc/holdfast/{name}").stdout.strip() == "640 root holdfast"
    assert ask(host, "whoami")["principal"] == "ops"
    assert ask(host, "node health --nodes 1")["healthy"]
    assert done(closed.play("site")).changed == 0
    assert done(closed.play("site", "--check")).changed == 0
    done(closed.play("verify"))
    a_renewed_certificate_is_taken_without_a_restart(closed, secure)
    done(closed.play("site", holdfast_node_min_free_mib=128))  # a restart, asked for and waited for by TLS
    closed.control.variables["holdfast_node_min_free_mib"] = 128
    bundle = str(make_bundle("+next"))
    done(closed.play("rolling-upgrade", holdfast_node_bundle=bundle))
    assert done(closed.play("site", holdfast_node_bundle=bundle)).changed == 0
    done(closed.play("teardown", teardown_confirmed=CLUSTER, holdfast_node_remove_data=True))
    assert host.ssh("ls /etc/holdfast").stdout == ""


def nobody_is_let_in_without_tls_or_a_credential(host: NetworkHost) -> None:
    by = {"plain": "--user ops --password-file /etc/holdfast/operator.password --config /dev/null"}
    by["anonymous"] = "--config /etc/holdfast/client.toml"
    told = {}
    for name, options in by.items():
        asked = host.ssh(f"holdfast log list --json --timeout-s 10 {options} --server {host.inside}:5672")
        assert asked.returncode != 0
        told[name] = json.loads(asked.stderr)["error"]
    assert "asks for a login" in told["anonymous"]
    assert "asks for a login" not in told["plain"]


def a_renewed_certificate_is_taken_without_a_restart(closed: Closed, secure: OverTls) -> None:
    before, first = running(secure.host), secure.own
    secure.renew()
    assert secure.own != first
    assert done(closed.play("site")).changed == 1
    wait_until(lambda: secure.shown() == secure.own, "the new certificate at a new connection")
    assert running(secure.host) == before
    assert ask(secure.host, "whoami")["principal"] == "ops"
    assert done(closed.play("site")).changed == 0
