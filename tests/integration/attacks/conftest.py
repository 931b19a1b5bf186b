"""A node of its own for attacks: what they leave behind must not be other tests' trouble."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.local_cluster import child_processes
from tests.integration.clusters.cluster import Cluster, ClusterSettings
from tests.ports import free_ports


class AttackTarget:
    def __init__(self, directory: Path) -> None:
        self.http_port, self.proxied_port = free_ports(2)
        proxied = f'[[listener]]\nname = "proxied"\nbind = "127.0.0.1:{self.proxied_port}"\nproxies = ["127.0.0.1"]'
        monitoring = f'{proxied}\n[monitoring]\nbind = "127.0.0.1:{self.http_port}"'
        self.cluster = Cluster(directory / "target", ClusterSettings(nodes=1, more=monitoring))
        self.cluster.start()
        for log in ("honest", "target", "log"):
            self.cluster.create(log)
            self.cluster.wait_led(log)
        self.port = int(self.cluster.address(1).rpartition(":")[2])
        self.rpc_port = int(self.cluster.nodes[1].rpc.rpartition(":")[2])

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=120) as page:
            return str(page.read().decode())

    def metric(self, name: str) -> float:
        lines = self.page("/metrics").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))

    def memory_mib(self) -> int:
        """The most that it ever had."""
        process = self.cluster.nodes[1].process
        assert process is not None
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024

    def beside(self, module: str, *arguments: object) -> subprocess.Popen[Any]:
        """A program that does harm."""
        words = [sys.executable, "-m", module, *map(str, arguments)]
        return child_processes.spawn(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture(scope="package")
def _target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackTarget]:
    target = AttackTarget(tmp_path_factory.mktemp("attacked"))
    yield target
    target.cluster.close()


@pytest.fixture
def target(_target: AttackTarget) -> Iterator[AttackTarget]:
    yield _target
    complaints = _target.cluster.complaints()
    assert not complaints, "\n".join(complaints)
    assert "ok" in _target.page("/health/live")
