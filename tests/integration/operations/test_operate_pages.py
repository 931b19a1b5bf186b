"""The pages for operators are true: their commands are run, from top to bottom, and their configurations are read.

The part about Ansible is tested by tests/ansible. What the pages cannot know is put in: free ports, by the variable
that they name. A command whose comment speaks of a second terminal goes on while the next ones are run; one that says
to ask again is asked again.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.shared import settings
from node.config import load
from tests.integration.operations.typed import PageBlock, blocks

PAGES = Path(__file__).parents[3] / "docs" / "operate"
RUN = ("local", "administer", "move", "monitor", "upgrade", "recover")  # in this order, on one cluster
BOUND_S = 240.0
ANSWERS = "y\n"  # to what is asked


def page(name: str) -> list[PageBlock]:
    return list(blocks((PAGES / f"{name}.md").read_text(encoding="utf-8")))


def commands(block: PageBlock) -> Iterator[str]:
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.split("#")[0].strip():
            yield line


class Terminal:
    """Where the commands are typed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        programs = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOLDFAST_CONFIG": str(directory / "holdfast.toml"),
        }
        (directory / "holdfast.toml").touch()
        self._going_on: list[subprocess.Popen[str]] = []

    def type(self, command: str) -> str:
        """What it said; it did not fail."""
        deadline_s = time.monotonic() + BOUND_S
        while (said := self._once(command)) is None:
            assert time.monotonic() < deadline_s, f"$ {command}"
        return said

    def _once(self, command: str) -> str | None:
        """None: it is to be asked again."""
        given = command.replace("--amqp-port 5672", "--amqp-port 0")
        process = subprocess.Popen(
            ["bash", "-c", given],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if "second terminal" in command:
            self._going_on.append(process)
            return ""
        said, _ = process.communicate(ANSWERS, timeout=BOUND_S)
        if process.returncode and "then ask again" in said:
            return None
        assert process.returncode == 0, f"$ {command}\n{said}"
        if "--amqp-port" in command:
            found = re.search(r"127\.0\.0\.1:\d+", said)
            assert found, said
            self._environment["HOLDFAST_SERVER"] = found[0]
        return said

    def wait(self) -> None:
        """For what went on meanwhile."""
        for process in self._going_on:
            said, _ = process.communicate(timeout=BOUND_S)
            assert process.returncode == 0, said
        self._going_on.clear()

    def close(self) -> None:
        for process in self._going_on:
            process.kill()
            process.wait()
        if (self._directory / "var").exists():
            self.type("holdfast cluster down --dir var/cluster")


@pytest.mark.early
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_of_the_pages_works(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    with contextlib.closing(terminal):
        count = 0
        for block in [block for name in RUN for block in page(name)]:
            if block.language != "sh" or any(command.startswith("ansible") for command in commands(block)):
                continue
            for command in commands(block):
                print(f"$ {command}\n{terminal.type(command)}")
                count += 1
            terminal.wait()
        assert count > 30


def test_every_configuration_on_the_pages_is_one(tmp_path: Path) -> None:
    by_list, by_zookeeper, command_line = [block.text for block in page("configure") if block.language == "toml"]
    file = tmp_path / "node.toml"
    file.write_text(by_list)
    assert load(file).cluster.name == "prod"
    document = tomllib.loads(by_list)
    assert set(document) == {"node", "cluster", "listener", "storage", "log", "monitoring"}
    rest = by_list.split("[[listener]]")
    file.write_text(f'[node]\nid = 1\ndata_dir = "{tmp_path}"\n{by_zookeeper}\n[[listener]]{rest[1]}')
    assert load(file).discovery.kind == "zookeeper"
    file.write_text(command_line)
    assert settings.load(file).zookeeper.auth_file
