"""Hosts whose first process is systemd, as on a real machine; see `network` for the rest.

systemd wants a /dev and a tree of control groups that it may change. The rule: it changes nothing of this machine: its
/dev is its own, /proc/sys is read only, and its control groups are below one that is named after the host and removed
afterwards. Processes, mounts and networks end with the test however it ends; an empty group that an interrupted test
left is removed by the next.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from tests.ansible.hosts.network import SSHD, HostNetwork, NetworkHost, missing
from tests.ansible.hosts.spaces import PYTHON
from tests.integration.clusters.cluster import wait_until

SYSTEMD = Path("/lib/systemd/systemd")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
GROUP_PREFIX = "holdfast-test"
HOMES = ("/root/", "/home/", "/run/user/")
"""What hardened services may not read."""

SSHD_UNIT = f"""[Unit]
Description=sshd of a test host
[Service]
ExecStart={SSHD} -D -e -f /etc/ssh/sshd_config.test
RuntimeDirectory=sshd
KillMode=process
[Install]
WantedBy=multi-user.target
"""


def groups_mounted() -> Path | None:
    """Where this machine's tree of control groups (version 2) is."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, source = line.partition(" - ")
        if source.startswith("cgroup2 "):
            return Path(fields.split()[4])
    return None


def missing_systemd() -> str:
    if not SYSTEMD.exists():
        return "there is no systemd: Debian's package systemd"
    if groups_mounted() is None:
        return "there are no control groups of version 2 here"
    if not python_for_services():
        return f"there is no Python {VERSION} with venv outside of home directories, where services may read it"
    return missing()


def python_for_services() -> str:
    """A Python of the version of the tests', for which bundles are made."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for candidate in (PYTHON, "/usr/bin/python3", f"/usr/bin/python{VERSION}"):
        if not candidate.startswith(HOMES) and Path(candidate).exists():
            done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
            if done.stdout.strip() == VERSION:
                return candidate
    return ""


class SystemdHost(NetworkHost):
    def __init__(self, network: HostNetwork, number: int) -> None:
        self._group = f"{GROUP_PREFIX}-{os.getpid()}-{id(self)}"
        super().__init__(network, number)

    def _prepare(self, key: dict[str, bytes] | None = None) -> None:
        super()._prepare(key)
        wanted = self.changes / "etc/systemd/system/multi-user.target.wants"
        wanted.mkdir(parents=True)
        (self.changes / "etc/hostname").write_text(f"{self.name}\n")
        (wanted.parent / "sshd-of-test.service").write_text(SSHD_UNIT)
        (wanted / "sshd-of-test.service").symlink_to("../sshd-of-test.service")

    def boot(self) -> str:
        root = self.directory / "root"
        return f"""
            set -e
            read -r _
            {self.mounts()}
            mount --bind {root}/proc/sys {root}/proc/sys
            mount -o remount,ro,bind {root}/proc/sys
            mount -t tmpfs tmpfs {root}/dev
            for device in null zero full random urandom tty; do
                touch {root}/dev/$device
                mount --bind /dev/$device {root}/dev/$device
            done
            mkdir {root}/dev/pts {root}/dev/shm
            mount -t devpts devpts {root}/dev/pts -o newinstance,ptmxmode=0666
            ln -s pts/ptmx {root}/dev/ptmx
            # Nothing that this machine would start at boot.
            find {root}/etc/rc?.d {root}/lib/systemd/system/multi-user.target.wants -type l -delete
            find {root}/etc/systemd/system -path '*.wants/*' ! -name 'sshd-of-test*' ! -name 'holdfast-*' -delete
            mount -t sysfs -o ro sysfs {root}/sys
            mount -t cgroup2 cgroup2 {root}/sys/fs/cgroup
            mkdir {root}/sys/fs/cgroup/{self._group}
            echo 0 >{root}/sys/fs/cgroup/{self._group}/cgroup.procs
            umount {root}/sys/fs/cgroup
            exec unshare --cgroup sh -c 'mount -t cgroup2 cgroup2 {root}/sys/fs/cgroup
                exec env -i container=holdfast-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
                    chroot {root} {SYSTEMD} --unit=multi-user.target'
        """

    def start(self) -> None:
        sweep()
        super().start()

    def kill(self) -> None:
        super().kill()
        wait_until(lambda: removed(self._group), "the end of its control groups")


def removed(name: str) -> bool:
    """A tree of control groups, which can go when no process is left in it."""
    mounted = groups_mounted()
    if mounted is not None and (mounted / name).exists():
        for directory, _, _ in os.walk(mounted / name, topdown=False):
            with contextlib.suppress(OSError):  # a process is left in it: the group is then, too
                os.rmdir(directory)
        return not (mounted / name).exists()
    return True


def sweep() -> None:
    """Groups of tests that were interrupted."""
    mounted = groups_mounted()
    for path in mounted.glob(f"{GROUP_PREFIX}-*") if mounted is not None else []:
        if not Path("/proc", path.name.split("-")[2]).exists():
            removed(path.name)
