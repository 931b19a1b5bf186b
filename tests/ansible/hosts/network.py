"""Hosts on this machine that are as separate as a test of provisioning needs them.

Each has a network namespace with addresses of its own, a process namespace, a name, and a root that begins as this
machine's and keeps its own changes (overlayfs). sshd is their only way in. Two networks: `inside`, for the hosts and
the control host, and `outside`, for clients, who reach nothing else.

    control ---- inside 10.77.0.0/24 ---- n1, n2, n3 ---- outside 10.78.0.0/24 ---- client

The rule: the machine's own network is not touched, and nothing outlives the test, however it ends (`spaces`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.ansible.hosts.spaces import PYTHON, Space, Switch, run
from tests.integration.clusters.cluster import wait_until

INSIDE, OUTSIDE = "10.77.0", "10.78.0"
CONTROL = 100
SSHD = "/usr/sbin/sshd"
ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")
BULKY = ("opt", "root", "usr", "var/lib")
"""What is deleted of a host's disk when the test ends; the rest, logs and configuration above all, is small and stays
as long as pytest keeps it."""


PROBE = """
set -e
mkdir changes work root
mount -t overlay overlay -o lowerdir=/,upperdir=changes,workdir=work root
ip link add segment type bridge
ip link add one type veth peer name two
"""
"""What hosts are made of, in namespaces that end with it."""


@cache
def missing() -> str:
    """Why there can be no hosts here; empty when there can."""
    if os.geteuid() != 0:
        return "hosts are network namespaces: that needs root"
    for program in (SSHD, "ip", "ssh", "ssh-keygen", "unshare", "nsenter", "logrotate"):
        if shutil.which(program) is None:
            return f"there is no {program}: scripts/system-packages.sh provision installs it"
    if not ZOOKEEPER_JAR.exists():
        return f"there is no {ZOOKEEPER_JAR}: scripts/system-packages.sh provision installs it"
    with tempfile.TemporaryDirectory() as directory:
        command = ["unshare", "--net", "--pid", "--fork", "--uts", "--mount", "sh", "-c", PROBE]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"this machine makes no network namespaces with roots of their own: {done.stderr.strip()}"
    return ""


class NetworkHost:
    def __init__(self, network: HostNetwork, number: int) -> None:
        self.number = number
        self.name = f"n{number}"
        self.inside, self.outside = f"{INSIDE}.{number}", f"{OUTSIDE}.{number}"
        self.directory = network.directory / self.name
        self.changes = self.directory / "changes"
        self._network = network
        self.space: Space | None = None
        for part in (self.changes, self.directory / "work", self.directory / "root"):
            part.mkdir(parents=True)
        self._prepare()

    def _prepare(self, key: dict[str, bytes] | None = None) -> None:
        """What is on a host before anybody provisions it: its key, who may enter, and who may read its Python."""
        ssh = self.changes / "etc" / "ssh"
        ssh.mkdir(parents=True)
        if key is None:
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / "host_key"))
        else:
            for name, content in key.items():
                (ssh / name).write_bytes(content)
            (ssh / "host_key").chmod(0o600)
        (ssh / "authorized_keys.test").write_text(self._network.key.with_suffix(".pub").read_text())
        (ssh / "sshd_config.test").write_text(
            f"ListenAddress {self.inside}\nHostKey /etc/ssh/host_key\nPermitRootLogin prohibit-password\n"
            "AuthorizedKeysFile /etc/ssh/authorized_keys.test\nPasswordAuthentication no\nUsePAM no\nPidFile none\n"
            "Subsystem sftp internal-sftp\nMaxStartups 100\n"
        )
        (self.changes / "host_init.py").write_bytes(Path(__file__).with_name("host_init.py").read_bytes())

    @property
    def host_key(self) -> str:
        kind, key, *_ = (self.changes / "etc/ssh/host_key.pub").read_text().split()
        return f"{self.inside} {kind} {key}"

    def mounts(self) -> str:
        root = self.directory / "root"
        layers = f"lowerdir=/,upperdir={self.changes},workdir={self.directory / 'work'}"
        return f"""
            mount -t overlay overlay -o {layers} {root}
            mount -t proc proc {root}/proc
            mount -t tmpfs tmpfs {root}/run
            mount -t tmpfs tmpfs {root}/tmp
            chmod 1777 {root}/tmp
            chmod o+x {root}/root
        """

    def boot(self) -> str:
        root = self.directory / "root"
        return f"""
            set -e
            read -r _
            {self.mounts()}
            mount --rbind /dev {root}/dev
            exec chroot {root} {PYTHON} /host_init.py {self.name}
        """

    def start(self) -> None:
        with (self.directory / "console").open("ab") as console:
            self.space = Space(self.boot(), console)
        self._network.plug(self.space, self.name, self.inside, self.outside)
        self.space.release()
        wait_until(self._answers, f"sshd of {self.name}")

    def _answers(self) -> bool:
        assert self.space is not None
        assert self.space.alive, (self.directory / "console").read_text()
        code = f"import socket; socket.create_connection(({self.inside!r}, 22), 1).close()"
        return self._network.in_control(PYTHON, "-c", code).returncode == 0

    def kill(self) -> None:
        """As by pulling its plug: every process is gone at once. Its disk stays."""
        if self.space is not None:
            self.space.end()
            self.space = None

    def rebuild(self) -> None:
        """A new disk, with the same key: every change is lost."""
        assert self.space is None, "kill it first"
        key = {name: (self.changes / "etc/ssh" / name).read_bytes() for name in ("host_key", "host_key.pub")}
        shutil.rmtree(self.changes)
        shutil.rmtree(self.directory / "work")
        for part in (self.changes, self.directory / "work"):
            part.mkdir()
        self._prepare(key)
        self.start()

    def discard(self) -> None:
        """Most of its disk."""
        for part in BULKY:
            shutil.rmtree(self.changes / part, ignore_errors=True)

    def ssh(self, command: str) -> subprocess.CompletedProcess[str]:
        return self._network.in_control("ssh", *self._network.ssh_options, f"root@{self.inside}", command)

    def written(self) -> set[str]:
        """Every file that differs from a bare host's, apart from what a login leaves."""
        left = ("/root/.ansible", "/var/log/wtmp", "/var/log/lastlog", "/run", "/tmp")
        found = {"/" + str(path.relative_to(self.changes)) for path in self.changes.rglob("*") if not path.is_dir()}
        return {path for path in found if not path.startswith(left) and "__pycache__" not in path}


class HostNetwork:
    def __init__(
        self, directory: Path, count: int, kind: Callable[[HostNetwork, int], NetworkHost] = NetworkHost
    ) -> None:
        self.directory = directory
        self.key = directory / "key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        self.known_hosts = directory / "known_hosts"
        self.hosts = [kind(self, number) for number in range(1, count + 1)]
        self.known_hosts.write_text("".join(f"{host.host_key}\n" for host in self.hosts))
        self._switch = Switch(["inside", "outside"])
        self.control, self.client = Space(), Space()
        self.plug(self.control, "control", inside=f"{INSIDE}.{CONTROL}")
        self.plug(self.client, "client", outside=f"{OUTSIDE}.{CONTROL}")
        for space in (self.control, self.client):
            space.release()

    def plug(self, space: Space, name: str, inside: str = "", outside: str = "") -> None:
        for segment, address in (("inside", inside), ("outside", outside)):
            if address:
                self._switch.plug(space, f"{name}-{segment[:3]}", segment, address)

    @property
    def ssh_options(self) -> list[str]:
        return ["-i", str(self.key), "-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "BatchMode=yes"]

    def in_control(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.control.run(*command, **more)

    def in_client(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.client.run(*command, **more)

    def start(self) -> None:
        for host in self.hosts:
            host.start()

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
        for held in (self.control, self.client, self._switch):
            held.end()
        for host in self.hosts:
            host.discard()
