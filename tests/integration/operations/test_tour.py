"""The two minutes of the README work as they stand there; only the ports are others, which are free here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import consecutive_ports

README = Path(__file__).parents[3] / "README.md"
PORTS = ("5672", "5673", "5674")
BOUND_S = 240.0


class Visitor:
    """Somebody who pastes what the page says."""

    def __init__(self, directory: Path) -> None:
        tour = README.read_text(encoding="utf-8").partition("## Two minutes")[2].partition("\n## ")[0]
        ours = consecutive_ports(len(PORTS))
        for theirs, port in zip(PORTS, ours, strict=True):
            tour = tour.replace(theirs, str(port))
        tour = tour.replace("cluster up", f"cluster up --rpc-port {consecutive_ports(len(PORTS))[0]}")
        (shell,) = re.findall(r"```sh\n(.*?)```", tour, re.DOTALL)
        self.programs = re.findall(r"```python\n(.*?)```", tour, re.DOTALL)
        install, *self.commands = [line for line in shell.splitlines() if line]
        assert install.startswith("make install"), install
        (self.last,) = re.findall(r"`(holdfast cluster down [^`]*)`", tour)
        self._directory = directory
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOLDFAST_CONFIG": str(directory / "holdfast.toml"),
            "HOLDFAST_SERVER": "var/tour",  # all its nodes, as the usual ports are of those of the page
        }
        (directory / "holdfast.toml").touch()

    def paste(self, *what: str) -> str:
        """What it said; it did not fail."""
        done = subprocess.run(
            what, cwd=self._directory, env=self._environment, capture_output=True, text=True, timeout=BOUND_S
        )
        assert done.returncode == 0, f"$ {what[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout

    def type(self, command: str) -> str:
        return self.paste("bash", "-c", command)


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    one = Visitor(tmp_path)
    yield one
    one.type(one.last)


@pytest.mark.cluster
@pytest.mark.slow
def test_the_two_minutes_of_the_readme_work(visitor: Visitor) -> None:
    said = [visitor.type(command) for command in visitor.commands]
    before, after = [text for command, text in zip(visitor.commands, said, strict=True) if "consume" in command]
    for body in ("hello", "good day", "and goodbye"):
        assert body in before
        assert body in after
    assert "still here" not in before
    assert len({line.split("\t")[0] for line in before.splitlines()}) > 1, "keys of one partition show no order"
    assert "still here" in after
    ours, stock = [visitor.paste(sys.executable, "-c", program) for program in visitor.programs]
    assert "from Python" in ours
    assert "from anywhere" in stock
