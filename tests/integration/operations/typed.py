"""Somebody who pastes what a page says, on ports that are free here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.ports import consecutive_ports

PORTS = ("5672", "5673", "5674")
BOUND_S = 240.0


@dataclass(frozen=True)
class PageBlock:
    """One block of code of a page."""

    language: str
    text: str


def blocks(text: str) -> Iterator[PageBlock]:
    """The blocks of a page, from top to bottom."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield PageBlock(language, block)


class Typist:
    """Runs commands and programs of a page in a directory of their own, and raises when one fails."""

    def __init__(self, directory: Path, cluster: str) -> None:
        """`cluster` is the directory of the page's cluster, whose nodes commands are to find."""
        self.directory = directory
        self._ports = dict(zip(PORTS, map(str, consecutive_ports(len(PORTS))), strict=True))
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOLDFAST_CONFIG": str(directory / "holdfast.toml"),
            "HOLDFAST_SERVER": cluster,  # all its nodes, as the usual ports are of those of the page
        }
        (directory / "holdfast.toml").touch()

    def adapted(self, text: str) -> str:
        """The text with ports that are free here."""
        for theirs, ours in self._ports.items():
            text = text.replace(theirs, ours)
        return text.replace("cluster up", f"cluster up --rpc-port {consecutive_ports(len(PORTS))[0]}")

    def run(self, *what: str) -> str:
        """Run a program; what it said. It did not fail."""
        done = subprocess.run(
            what, cwd=self.directory, env=self._environment, capture_output=True, text=True, timeout=BOUND_S
        )
        assert done.returncode == 0, f"$ {what[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout

    def type(self, command: str) -> str:
        """Type a command into a shell; what it said."""
        return self.run("bash", "-c", self.adapted(command))
