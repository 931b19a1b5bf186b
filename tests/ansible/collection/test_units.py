"""The systemd units, judged by systemd itself without starting anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ansible.playbooks import COLLECTION, ansible_directory

EXPOSURE_MOST = 2.0
"""Of 10, by systemd's own count; services that are not hardened have 9.6."""
SERVICES = ("holdfast-node", "holdfast-zookeeper", "holdfast-toxiproxy")

pytestmark = [
    pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it"),
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze: Debian's package systemd"),
]


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = ansible_directory()
    assert directory is not None
    into = tmp_path_factory.mktemp("units")
    variables = {
        "into": into, "ansible_python_interpreter": sys.executable, "holdfast_node_id": 1, "zookeeper_id": 1,
        "holdfast_node_bundle": "holdfast-bundle-1.tar.gz",
    }  # fmt: skip
    options = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    playbook = Path(__file__).with_name("render_units.yml")
    done = subprocess.run(
        [str(directory / "ansible-playbook"), "-i", "localhost,", str(playbook), *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(COLLECTION / "ansible.cfg")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return into


@pytest.mark.parametrize("service", SERVICES)
def test_systemd_understands_all_of_a_unit(units: Path, service: str) -> None:
    complaints = verify(units / f"{service}.service")
    assert [said for said in complaints if "is not executable: No such file" not in said] == []


def test_systemd_would_have_said_if_it_did_not(units: Path, tmp_path: Path) -> None:
    spoilt = tmp_path / "holdfast-node.service"
    spoilt.write_text((units / "holdfast-node.service").read_text().replace("ProtectHome=", "ProtectHouse="))
    assert any("ProtectHouse" in said for said in verify(spoilt))


@pytest.mark.parametrize("service", SERVICES)
def test_a_unit_is_hardened(units: Path, service: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=true", str(units / f"{service}.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    verdict = done.stdout.strip().splitlines()[-1]
    assert "Overall exposure level" in verdict, done.stdout + done.stderr
    assert float(verdict.split(": ")[1].split()[0]) <= EXPOSURE_MOST, done.stdout


def verify(unit: Path) -> list[str]:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).splitlines()
