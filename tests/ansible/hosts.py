"""Hosts on this machine that are as separate as a test of provisioning needs them.

Each has a network namespace with addresses of its own, a process namespace, a name, and a root that begins as this
machine's and keeps its own changes (overlayfs). sshd is their only way in. Two networks: `inside`, for the hosts and
the control host, and `outside`, for clients, who reach nothing else.

    control ---- inside 10.77.0.0/24 ---- n1, n2, n3 ---- outside 10.78.0.0/24 ---- client

The rule: everything lives in namespaces with the test's own names; the machine's own network is not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.integration.cluster import EXEC_AND_DIE_WITH_PARENT, wait_until

INSIDE, OUTSIDE = "10.77.0", "10.78.0"
CONTROL = 100
SSHD = "/usr/sbin/sshd"
PYTHON = str(Path(sys.executable).resolve())


def missing() -> str:
    """Why there can be no hosts here; empty when there can."""
    if os.geteuid() != 0:
        return "hosts are network namespaces: that needs root"
    for program in (SSHD, "ip", "ssh", "ssh-keygen", "unshare", "logrotate"):
        if shutil.which(program) is None:
            return f"there is no {program}: scripts/system-packages.sh provision installs it"
    return ""


def run(*command: str, quiet: bool = False) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert quiet or done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Host:
    def __init__(self, network: Network, number: int) -> None:
        self.number = number
        self.name = f"n{number}"
        self.namespace = network.namespace(self.name)
        self.inside, self.outside = f"{INSIDE}.{number}", f"{OUTSIDE}.{number}"
        self.directory = network.directory / self.name
        self.changes = self.directory / "changes"
        self._network = network
        self._process: subprocess.Popen[bytes] | None = None
        for part in (self.changes, self.directory / "work", self.directory / "root"):
            part.mkdir(parents=True)
        self._prepare()

    def _prepare(self) -> None:
        """What is on a host before anybody provisions it: its key, who may enter, and who may read its Python."""
        ssh = self.changes / "etc" / "ssh"
        ssh.mkdir(parents=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / "host_key"))
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

    def start(self) -> None:
        root = self.directory / "root"
        layers = f"lowerdir=/,upperdir={self.changes},workdir={self.directory / 'work'}"
        boot = f"""
            set -e
            mount --make-rprivate /
            mount -t overlay overlay -o {layers} {root}
            mount -t proc proc {root}/proc
            mount --rbind /dev {root}/dev
            mount -t tmpfs tmpfs {root}/run
            mount -t tmpfs tmpfs {root}/tmp
            chmod 1777 {root}/tmp
            chmod o+x {root}/root
            exec chroot {root} {PYTHON} /host_init.py {self.name}
        """
        with (self.directory / "console").open("ab") as console:
            self._process = subprocess.Popen(
                [PYTHON, "-c", EXEC_AND_DIE_WITH_PARENT, "ip", "netns", "exec", self.namespace,
                 "unshare", "--mount", "--pid", "--fork", "--uts", "--kill-child=KILL", "sh", "-c", boot],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        wait_until(self._answers, f"sshd of {self.name}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "console").read_text()
        code = f"import socket; socket.create_connection(({self.inside!r}, 22), 1).close()"
        return self._network.in_control(PYTHON, "-c", code).returncode == 0

    def kill(self) -> None:
        """As by pulling its plug: every process is gone at once. Its disk stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ssh(self, command: str) -> subprocess.CompletedProcess[str]:
        return self._network.in_control("ssh", *self._network.ssh_options, f"root@{self.inside}", command)

    def written(self) -> set[str]:
        """Every file that differs from a bare host's, apart from what a login leaves."""
        left = ("/root/.ansible", "/var/log/wtmp", "/var/log/lastlog", "/run", "/tmp")
        found = {"/" + str(path.relative_to(self.changes)) for path in self.changes.rglob("*") if not path.is_dir()}
        return {path for path in found if not path.startswith(left) and "__pycache__" not in path}


class Network:
    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self._prefix = f"hf{os.getpid()}x{abs(hash(str(directory))) % 1000}-"
        self._namespaces: list[str] = []
        self.key = directory / "key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        self.known_hosts = directory / "known_hosts"
        switch = self.namespace("switch")
        for bridge in ("inside", "outside"):
            run("ip", "-n", switch, "link", "add", bridge, "type", "bridge")
            run("ip", "-n", switch, "link", "set", bridge, "up")
        self.control, self.client = self.namespace("control"), self.namespace("client")
        self._plug(self.control, "inside", f"{INSIDE}.{CONTROL}")
        self._plug(self.client, "outside", f"{OUTSIDE}.{CONTROL}")
        self.hosts = [Host(self, number) for number in range(1, count + 1)]
        for host in self.hosts:
            self._plug(host.namespace, "inside", host.inside)
            self._plug(host.namespace, "outside", host.outside)
        self.known_hosts.write_text("".join(f"{host.host_key}\n" for host in self.hosts))

    def namespace(self, name: str) -> str:
        full = self._prefix + name
        if full not in self._namespaces:
            run("ip", "netns", "add", full)
            self._namespaces.append(full)
            run("ip", "-n", full, "link", "set", "lo", "up")
        return full

    def _plug(self, namespace: str, bridge: str, address: str) -> None:
        switch, port = self.namespace("switch"), f"{bridge[:2]}{namespace.removeprefix(self._prefix)}"
        run("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", bridge, "netns", namespace)
        run("ip", "-n", switch, "link", "set", port, "master", bridge, "up")
        run("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", bridge)
        run("ip", "-n", namespace, "link", "set", bridge, "up")

    @property
    def ssh_options(self) -> list[str]:
        return ["-i", str(self.key), "-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "BatchMode=yes"]

    def in_control(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self._inside(self.control, command, more)

    def in_client(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self._inside(self.client, command, more)

    def _inside(
        self, namespace: str, command: tuple[str, ...], more: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", namespace, *command], capture_output=True, text=True, check=False,
            env={**os.environ, **more},
        )  # fmt: skip

    def start(self) -> None:
        for host in self.hosts:
            host.start()

    def close(self) -> None:
        """Whatever state it is in: gone afterwards."""
        for host in getattr(self, "hosts", []):
            host.kill()
        for name in self._namespaces:
            run("ip", "netns", "del", name, quiet=True)
