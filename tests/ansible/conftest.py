"""Hosts, a bundle and a control host, or the reason why there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ansible.hosts.network import HostNetwork, missing
from tests.ansible.playbooks import ROOT, ControlHost, ansible_directory
from tests.ansible.security.closed import Closed

whole_of_provisioning = pytest.mark.skipif(
    not os.environ.get("HOLDFAST_PROVISION"),
    reason="takes long and is asked for with make provision-test; test_short_life.py is the core of it",
)


def why_not() -> str:
    if ansible_directory() is None:
        return "Ansible is not at hand here: make test and make provision-test bring it"
    return missing()


@pytest.fixture(scope="session")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds a bundle of this tree, each once; the suffix tells versions apart."""
    directory = tmp_path_factory.mktemp("dist")
    made: dict[tuple[str, ...], Path] = {}

    def make(suffix: str = "", *options: str) -> Path:
        key = suffix, *options
        if key not in made:
            done = subprocess.run(
                ["scripts/make-bundle.sh", *options, sys.prefix, str(directory), suffix],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            made[key] = Path(done.stdout.split()[-1])
        return made[key]

    return make


def hosts_up(tmp_path_factory: pytest.TempPathFactory, count: int) -> Iterator[HostNetwork]:
    """So many bare hosts, up, until the next step of the iteration."""
    if why_not():
        pytest.skip(why_not())
    network = HostNetwork(tmp_path_factory.mktemp("hosts"), count)
    try:
        network.start()
        yield network
    finally:
        network.close()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetwork]:
    """Three bare hosts, up."""
    yield from hosts_up(tmp_path_factory, 3)


@pytest.fixture(scope="module")
def one_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetwork]:
    yield from hosts_up(tmp_path_factory, 1)


@pytest.fixture
def control(network: HostNetwork, tmp_path: Path, make_bundle: Callable[..., Path]) -> ControlHost:
    return ControlHost(network, tmp_path, make_bundle())


@pytest.fixture
def closed(one_host: HostNetwork, tmp_path: Path, make_bundle: Callable[..., Path]) -> Closed:
    return Closed(one_host, tmp_path, make_bundle())
