"""The tutorial works as it stands there; only the ports are others, which are free here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.operations.typed import PageBlock, Typist, blocks

TUTORIAL = Path(__file__).parents[3] / "docs" / "start" / "tutorial.md"
DOWN = "holdfast cluster down --dir var/tutorial"


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[Typist]:
    one = Typist(tmp_path, "var/tutorial")
    yield one
    if (tmp_path / "var").exists():
        one.type(DOWN)


def follow(typist: Typist, page: list[PageBlock]) -> Iterator[tuple[str, str]]:
    """Type each command, and save each program under the name in its first line; commands, and what they said."""
    for block in page:
        if block.language == "python":
            name = block.text.splitlines()[0].removeprefix("# ")
            (typist.directory / name).write_text(typist.adapted(block.text), encoding="utf-8")
            continue
        assert block.language == "sh"
        for command in block.text.splitlines():
            if not command.startswith("make install"):
                yield command, typist.type(command)


@pytest.mark.cluster
@pytest.mark.slow
def test_the_tutorial_works(typist: Typist) -> None:
    page = list(blocks(TUTORIAL.read_text(encoding="utf-8")))
    assert page[0].text.startswith("make install")
    said: dict[str, list[str]] = {}
    for command, answer in follow(typist, page):
        said.setdefault(command, []).append(answer)
    assert all("all 101 orders are on the disks" in answer for answer in said["python produce.py"])
    assert [answer.strip() for answer in said["python worker.py"]] == [
        "packed 101 orders",
        "packed 0 orders",
        "packed 101 orders",
    ]
    assert [answer.strip() for answer in said["python invoices.py"]] == ["wrote 202 invoices", "wrote 0 invoices"]
    everything, filtered = (answers[0].splitlines() for command, answers in said.items() if "consume orders" in command)
    assert len(everything) == 101
    assert len(filtered) == 4
    assert len(said["python read.py"][0].splitlines()) == 20
    (invoices,) = (answers[0].splitlines() for command, answers in said.items() if "consume invoices" in command)
    assert len(invoices) == len({*invoices}) * 2 == 202
    assert DOWN in said
