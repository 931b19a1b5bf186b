"""The two minutes of the README work as they stand there; only the ports are others, which are free here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.operations.typed import Typist, blocks

README = Path(__file__).parents[3] / "README.md"


class Tour:
    """The section of the README, and somebody who follows it."""

    def __init__(self, directory: Path) -> None:
        text = README.read_text(encoding="utf-8").partition("## Two minutes")[2].partition("\n## ")[0]
        self.typist = Typist(directory, "var/tour")
        (shell,) = [block.text for block in blocks(text) if block.language == "sh"]
        self.programs = [self.typist.adapted(block.text) for block in blocks(text) if block.language == "python"]
        install, *self.commands = [line for line in shell.splitlines() if line]
        assert install.startswith("make install"), install
        (self.last,) = re.findall(r"`(holdfast cluster down [^`]*)`", text)


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    one = Tour(tmp_path)
    yield one
    one.typist.type(one.last)


@pytest.mark.cluster
@pytest.mark.slow
def test_the_two_minutes_of_the_readme_work(tour: Tour) -> None:
    said = [tour.typist.type(command) for command in tour.commands]
    before, after = [text for command, text in zip(tour.commands, said, strict=True) if "consume" in command]
    for body in ("hello", "good day", "and goodbye"):
        assert body in before
        assert body in after
    assert "still here" not in before
    assert len({line.split("\t")[0] for line in before.splitlines()}) > 1, "keys of one partition show no order"
    assert "still here" in after
    ours, stock = [tour.typist.run(sys.executable, "-c", program) for program in tour.programs]
    assert "from Python" in ours
    assert "from anywhere" in stock
