"""The container image, as its page says: refused without a decision, one node that keeps its events, three of them.

Containers run in a network namespace of the test's own and with storage of its own, so that nothing is left behind.
"""

from __future__ import annotations

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

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("mmdebstrap", "buildah", "podman", "podman-compose", "runc", "ip", "nsenter")
BUILD_BOUND_S = 900.0
COMMAND_BOUND_S = 180.0
READY_BOUND_S = 180.0
PASSWORD = "correct horse"
EVENTS = [f"event {number}" for number in range(100)]

# The limits are ours, since a sandbox may not raise them to podman's.
CONFIGURATION = """
[network]
network_backend = "netavark"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=10000:10000"]
"""


def _lacking() -> str:
    if os.geteuid() != 0:
        return "a container image is laid out as root"
    lacking = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    return f"not there: {', '.join(lacking)} (scripts/system-packages.sh container)" if lacking else ""


pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(_lacking()), reason=_lacking()),
]


class Containers:
    """Podman in a network namespace and with storage of its own."""

    def __init__(self) -> None:
        self.directory = directory = Path(tempfile.mkdtemp(prefix="hf-image-", dir="/tmp"))  # podman wants short paths
        self.namespace = f"hf-image-{uuid.uuid4().hex[:8]}"
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

    def inside(
        self, *words: str, text: str = "", cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the namespace."""
        return subprocess.run(
            ["nsenter", f"--net=/var/run/netns/{self.namespace}", *words], input=text, cwd=cwd,
            env=os.environ | environment, capture_output=True, text=True, timeout=COMMAND_BOUND_S, check=False,
        )  # fmt: skip

    def podman(self, *words: str, status: int = 0) -> str:
        """Run podman, which has to end with that status; return both its outputs."""
        done = self.inside(str(self.program), *words)
        assert done.returncode == status, f"podman {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

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

    def end(self) -> None:
        """Remove all containers, volumes and the namespace."""
        try:
            self.podman("rm", "--all", "--force", "--time", "0")
            self.podman("system", "reset", "--force")
        finally:
            subprocess.run(["ip", "netns", "delete", self.namespace], check=True, timeout=COMMAND_BOUND_S)
            shutil.rmtree(self.directory)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image as `make image` writes it."""
    out = tmp_path_factory.mktemp("image")
    made = subprocess.run(
        [str(ROOT / "scripts" / "make-image.sh"), sys.prefix, str(out)],
        cwd=ROOT, capture_output=True, text=True, timeout=BUILD_BOUND_S, check=False,
    )  # fmt: skip
    assert not made.returncode, made.stderr
    path = Path(made.stdout.strip().splitlines()[-1])
    assert path.parent == out
    return path


@pytest.fixture
def containers() -> Iterator[Containers]:
    made = Containers()
    try:
        yield made
    finally:
        made.end()


def test_the_image_runs_as_its_page_says(archive: Path, containers: Containers, tmp_path: Path) -> None:
    """One test, since the image is made once for it."""
    loaded = containers.podman("load", "--input", str(archive))
    (image,) = set(re.findall(r"localhost/(holdfast:\S+)", loaded))
    _one_node(containers, image)
    containers.podman("rm", "--all", "--force", "--time", "0")
    _three_nodes(containers, image, tmp_path)


def _one_node(containers: Containers, image: str) -> None:
    podman = containers.podman
    assert "HOLDFAST_PASSWORD: none given" in podman("run", "--rm", image, status=2)
    assert "there is no such variable" in podman("run", "--rm", "--env", "HOLDFAST_PASWORD=x", image, status=2)
    podman(
        "run", "--detach", "--name", "one", "--publish", "127.0.0.1:5672:5672", "--volume", "one:/var/lib/holdfast",
        "--env", f"HOLDFAST_PASSWORD={PASSWORD}", image,
    )  # fmt: skip
    containers.wait_until_healthy("one")
    assert podman("exec", "one", "id", "-u").split()[0] == "10001"
    assert not re.search(
        r"^(deb|URIs)", podman("exec", "one", "sh", "-c", "cat /etc/apt/*.list /etc/apt/*/* || true"), re.M
    )
    containers.holdfast(5672, "log", "create", "kept")
    containers.publish(5672, "kept")
    podman("stop", "--time", "60", "one")
    assert podman("inspect", "--format", "{{.State.ExitCode}}", "one").split()[0] == "0", podman("logs", "one")
    podman("start", "one")
    containers.wait_until_healthy("one")
    assert containers.read(5672, "kept") == EVENTS
    podman("kill", "--signal", "KILL", "one")
    podman("start", "one")
    containers.wait_until_healthy("one")
    assert containers.read(5672, "kept") == EVENTS


def _three_nodes(containers: Containers, image: str, directory: Path) -> None:
    project = directory / "three"
    project.mkdir()
    shutil.copy(ROOT / "container" / "compose.yaml", project)
    compose = ("podman-compose", "--podman-path", str(containers.program))
    started = containers.inside(
        *compose, "up", "--detach", cwd=project, HOLDFAST_PASSWORD=PASSWORD, HOLDFAST_VERSION=image.partition(":")[2]
    )
    assert not started.returncode, started.stdout + started.stderr
    names = [f"three_node{number}_1" for number in (1, 2, 3)]
    for name in names:
        containers.wait_until_healthy(name)
    containers.holdfast(5673, "log", "create", "shared", "--partitions", "3", "--replicas", "3")
    containers.publish(5673, "shared")
    containers.podman("kill", "--signal", "KILL", names[0])
    assert sorted(containers.read(5674, "shared")) == sorted(EVENTS)
    containers.podman("start", names[0])
    containers.wait_until_healthy(names[0])
    assert sorted(containers.read(5672, "shared")) == sorted(EVENTS)
