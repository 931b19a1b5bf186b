"""Real ZooKeeper servers for tests: Debian's package, a directory and a free port of the test's own.

A server ends with the test process, whatever happens to it. Where Java or the package is missing the tests that need it
are skipped, with the command that installs them.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from tests.integration.cluster import EXEC_AND_DIE_WITH_PARENT, wait_until
from tests.ports import free_ports

JAR = Path("/usr/share/java/zookeeper.jar")
NETTY = ("netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar")
CLASSES = ":".join(str(JAR.with_name(name)) for name in (JAR.name, *NETTY))
"""The package's manifest names too few of netty's parts for TLS."""

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM_OPTIONS = ("-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.admin.enableServer=false")
TICK_MS = 200
"""Sessions last 2 to 20 ticks: short ones, so that tests can wait for their end."""


def missing() -> str:
    """Why there is no ZooKeeper here; empty when there is."""
    if shutil.which("java") is None or not JAR.exists():
        return "no ZooKeeper: scripts/system-packages.sh zookeeper installs it"
    return ""


class ZooKeeper:
    def __init__(self, directory: Path, *, tls: Tls | None = None) -> None:
        self.directory = directory
        self.port, self.secure_port = free_ports(2)
        self.tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir(parents=True)
        lines = [
            f"tickTime={TICK_MS}",
            f"dataDir={directory / 'data'}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={self.port}",
            "4lw.commands.whitelist=ruok,srvr",
            "maxClientCnxns=200",
        ]
        if tls is not None:
            lines += [
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"secureClientPort={self.secure_port}",
                f"ssl.keyStore.location={tls.server}",
                f"ssl.trustStore.location={tls.ca}",
            ]
        self._config = directory / "zoo.cfg"
        self._config.write_text("\n".join(lines) + "\n")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = ["-c", EXEC_AND_DIE_WITH_PARENT, "java", *JVM_OPTIONS, "-cp", CLASSES, MAIN, str(self._config)]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log)
        wait_until(self.answers, "ZooKeeper to answer")

    def answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(b"srvr")
            connection.settimeout(2)
            return b"Mode:" in connection.recv(4096)
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """As behind a network that swallows everything."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def client(self, **more: Any) -> Iterator[Any]:
        client = KazooClient(self.address, timeout=3, **more)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()




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
