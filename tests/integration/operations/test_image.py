"""The container image, as its page says: refused without a decision, one node that keeps its events, three of them.

Containers run in a network namespace of the test's own and with storage of its own, so that nothing is left behind.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import EVENTS, PASSWORD, ROOT, Containers, image_archive, lacking

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]


@pytest.fixture
def containers() -> Iterator[Containers]:
    with Containers.made() as made:
        yield made


def test_the_image_runs_as_its_page_says(
    containers: Containers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    image = containers.load(image_archive(tmp_path_factory))
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
