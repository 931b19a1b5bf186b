"""The Event Hubs module of Testcontainers for Java: a user's test with nothing but names of images replaced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.containers import Containers, image_archive, lacking
from tests.integration.clients.event_hubs import azurite_image
from tests.integration.clients.stock.java_clients import MISSING, build

ABSENT = [*MISSING, *(name for name in ("node", "npm") if shutil.which(name) is None)]
LACKING = lacking() or (f"not there: {', '.join(ABSENT)}" if ABSENT else "")

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(LACKING), reason=LACKING),
]


# The sandbox itself may be a container, where the module would look for containers at its gateway. Nobody cleans up
# behind a program that is killed, since the helper for that is an image of a registry; what is left is in our storage.
SETTINGS = {"TESTCONTAINERS_HOST_OVERRIDE": "localhost", "TESTCONTAINERS_RYUK_DISABLED": "true"}


def test_the_module_starts_our_image_and_the_sdk_finds_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    program = build(Path(__file__).parent / "testcontainers")
    with Containers.made() as containers:
        emulator, azurite = containers.load(image_archive(tmp_path_factory)), azurite_image.load(containers)
        with containers.docker_host() as address:
            done = containers.inside(
                "java", "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.log.com.azure=warn",
                "-cp", program, "holdfast.clients.Containers", emulator, azurite, DOCKER_HOST=address, **SETTINGS,
            )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines() == ["partitions [0, 1]", "event first 0", "event second 1"]
        assert containers.podman("ps", "--all", "--quiet") == ""
