"""Real ZooKeeper servers for tests: Debian's package, a directory and a free port of the test's own.

A server ends with the test process, whatever happens to it. Where Java or the package is missing the tests that need it
are skipped, with the command that installs them. What a server is, stands in `chaos/cluster/zookeeper.py`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from chaos.cluster import zookeeper
from chaos.cluster.zookeeper import missing
from tests.ports import free_ports

__all__ = ["LoopbackEnsemble", "LoopbackZooKeeper", "Tls", "missing"]


class LoopbackZooKeeper(zookeeper.ZooKeeper):
    def __init__(self, directory: Path, *, tls: Tls | None = None) -> None:
        port, self.secure_port = free_ports(2)
        more = [] if tls is None else [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={self.secure_port}",
            f"ssl.keyStore.location={tls.server}",
            f"ssl.trustStore.location={tls.ca}",
        ]  # fmt: skip
        super().__init__(directory, port, more)


class LoopbackEnsemble(zookeeper.Ensemble):
    def __init__(self, directory: Path, count: int = 3) -> None:
        super().__init__(directory, count, port=lambda: free_ports(1)[0])


class Tls:
    """A certificate authority, a server and a client."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.ca, self._ca_key = directory / "ca.pem", directory / "ca.key"
        self.server, self.client, self.client_key = (
            directory / "server.pem", directory / "client.crt", directory / "client.key",
        )  # fmt: skip
        openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout"]
        _run([*openssl, str(self._ca_key), "-out", str(self.ca), "-subj", "/CN=test ca"])
        server_key, server_crt = directory / "server.key", directory / "server.crt"
        self._sign("127.0.0.1", server_key, server_crt)
        self._sign("client", self.client_key, self.client)
        self.server.write_text(server_key.read_text() + server_crt.read_text())

    def _sign(self, name: str, key: Path, certificate: Path) -> None:
        _run([
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
            "-CA", str(self.ca), "-CAkey", str(self._ca_key), "-keyout", str(key), "-out", str(certificate),
        ])  # fmt: skip


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
