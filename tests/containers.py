"""Containers of our image, which is made once in a run of the tests.

They run in a network namespace and with storage of their own, so that nothing is left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.local_cluster import child_processes
from tests.integration.clusters.cluster import wait_until

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("mmdebstrap", "buildah", "podman", "podman-compose", "runc", "ip", "nsenter")
BUILD_BOUND_S = 900.0
COMMAND_BOUND_S = 180.0
READY_BOUND_S = 180.0
PASSWORD = "correct horse"
EVENTS = [f"event {number}" for number in range(100)]

# The limits are ours, since a sandbox may not raise them to podman's. What watches a command that ran in a container
# stays for a while, to be asked how it ended: for 5 seconds instead of 300.
CONFIGURATION = """
[network]
network_backend = "netavark"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
exit_command_delay = 5
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=10000:10000"]
"""


def lacking() -> str:
    """Why there are no containers here; empty if there are."""
    if os.geteuid() != 0:
        return "a container image is laid out as root"
    absent = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    return f"not there: {', '.join(absent)} (scripts/system-packages.sh container)" if absent else ""


def image_archive(scratch: pytest.TempPathFactory) -> Path:
    """The image as `make image` writes it. The test processes of a run share it."""
    base = scratch.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "image"
    out.mkdir(exist_ok=True)
    with (out / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (made := out / "made").exists():
            done = subprocess.run(
                [str(ROOT / "scripts" / "make-image.sh"), sys.prefix, str(out)],
                cwd=ROOT, capture_output=True, text=True, timeout=BUILD_BOUND_S, check=False,
            )  # fmt: skip
            assert not done.returncode, done.stderr
            made.write_text(done.stdout.strip().splitlines()[-1])
        path = Path(made.read_text())
    assert path.parent == out
    return path


class Containers:
    """Podman in a network namespace and with storage of its own."""

    def __init__(self) -> None:
        self.directory = directory = Path(tempfile.mkdtemp(prefix="hf-image-", dir="/tmp"))  # podman wants short paths
        self.namespace = f"hf-image-{uuid.uuid4().hex[:8]}"
        self._within = ("nsenter", f"--net=/var/run/netns/{self.namespace}")
        self.program = directory / "podman"
        configuration, self._password = directory / "containers.conf", directory / "password"
        configuration.write_text(CONFIGURATION)
        self._password.write_text(PASSWORD)
        self.program.write_text(
            f"#!/bin/sh\nexport CONTAINERS_CONF={configuration}\n"
            f'exec podman --root {directory}/storage --runroot {directory}/run "$@"\n'
        )
        self.program.chmod(0o755)
        for words in (("netns", "add", self.namespace), ("-n", self.namespace, "link", "set", "lo", "up")):
            subprocess.run(["ip", *words], check=True, timeout=COMMAND_BOUND_S)

    @classmethod
    @contextlib.contextmanager
    def made(cls) -> Iterator[Containers]:
        """Make them for the time of a test, and for one test at a time: Podman keeps its networks at one place for all
        the storages of root, and one test would take away those of another."""
        with (Path(tempfile.gettempdir()) / "holdfast-containers.lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            containers = cls()
            try:
                yield containers
            finally:
                containers.end()

    def inside(
        self, *words: str, text: str = "", cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the namespace."""
        return subprocess.run(
            [*self._within, *words], input=text, cwd=cwd,
            env=os.environ | environment, capture_output=True, text=True, timeout=COMMAND_BOUND_S, check=False,
        )  # fmt: skip

    def podman(self, *words: str, status: int = 0) -> str:
        """Run podman, which has to end with that status; return both its outputs."""
        done = self.inside(str(self.program), *words)
        assert done.returncode == status, f"podman {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def load(self, archive: Path) -> str:
        """Load our image; return its name."""
        loaded = self.podman("load", "--input", str(archive))
        (image,) = set(re.findall(r"localhost/(holdfast:\S+)", loaded))
        return image

    @contextlib.contextmanager
    def docker_host(self) -> Iterator[str]:
        """Serve the Docker API on a socket; yield its address."""
        path = self.directory / "docker.sock"
        words = [str(self.program), "system", "service", "--time", "0", f"unix://{path}"]
        with (self.directory / "service.log").open("wb") as log:
            serving = child_processes.spawn([*self._within, *words], stdout=log, stderr=log)
            try:
                wait_until(lambda: path.exists() or serving.poll() is not None, "podman serves", READY_BOUND_S)
                assert serving.poll() is None, (self.directory / "service.log").read_text()
                yield f"unix://{path}"
            finally:
                serving.terminate()
                serving.wait(COMMAND_BOUND_S)

    def holdfast(self, port: int, *words: str, text: str = "") -> str:
        """Run a command of the tree against a node, as its administrator."""
        login = ("--server", f"127.0.0.1:{port}", "--user", "operator", "--password-file", str(self._password))
        done = self.inside(sys.executable, "-m", "holdfast.cli", *words, *login, text=text)
        assert not done.returncode, f"holdfast {' '.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def publish(self, port: int, log: str) -> None:
        self.holdfast(port, "produce", log, text="".join(f"{event}\n" for event in EVENTS))

    def read(self, port: int, log: str) -> list[str]:
        return self.holdfast(port, "consume", log, "--from", "earliest", "--until-end").splitlines()

    def wait_until_healthy(self, name: str) -> None:
        """Wait until the image's own health check says that a node is ready."""
        deadline = time.monotonic() + READY_BOUND_S
        while self.inside(str(self.program), "healthcheck", "run", name).returncode:
            assert time.monotonic() < deadline, self.podman("logs", name)
            time.sleep(0.2)

    def _processes(self) -> list[str]:
        """Command lines of processes that use our storage."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if f"{self.directory}/storage" in (line := path.read_text(errors="replace").replace("\0", " ")):
                    found.append(line)
        return found

    def end(self) -> None:
        """Remove all containers, volumes and the namespace."""
        try:
            self.podman("rm", "--all", "--force", "--time", "0")
            wait_until(lambda: not self._processes(), "processes of the containers end", COMMAND_BOUND_S)
            self.podman("system", "reset", "--force")
        finally:
            subprocess.run(["ip", "netns", "delete", self.namespace], check=True, timeout=COMMAND_BOUND_S)
            shutil.rmtree(self.directory)
