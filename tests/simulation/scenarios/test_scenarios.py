"""Every scenario script comes out as it is written, and every hole of the audit has a script or a test of its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.parsing import parsed
from tests.simulation.mutations.catalogue import BY_SCRIPTS
from tests.simulation.scenarios import test_holes
from tests.simulation.scenarios.language import COMMANDS, DIRECTORY, WrongStep, play

SCRIPTS = sorted(DIRECTORY.rglob("*.txt"))
HOLES = [f"a{number}" for number in range(1, 19)] + [f"l{number}" for number in range(1, 17)]
"""Of the audit of pysyncobj 0.3.17: A for safety, L for liveness and operation."""
FIGURES = ["fig-06", "fig-07", "fig-08-d", "fig-08-e", "fig-09", "fig-10", "fig-12"]
"""Of the Raft paper, those that show a sequence of events."""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_comes_out_as_written(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert play(text) == text, f"if this is right: python -m tests.simulation.scenarios.language --rewrite {path}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_says_what_it_is_about(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert re.search(r"^\d (->|applies|answers|leads|refuses)", text, re.MULTILINE), "nothing happens in it"


@pytest.mark.parametrize("hole", HOLES)
def test_every_hole_of_the_audit_is_shown_to_be_closed(hole: str) -> None:
    functions = {node.name for node in ast.walk(parsed(test_holes.__file__)) if isinstance(node, ast.FunctionDef)}
    by_script = any(path.name.startswith(f"{hole}-") for path in SCRIPTS)
    by_test = any(name.startswith(f"test_{hole}_") for name in functions)
    assert by_script or by_test


@pytest.mark.parametrize("figure", FIGURES)
def test_the_figures_of_the_paper_have_scripts(figure: str) -> None:
    assert any(path.name.startswith(f"{figure}-") for path in SCRIPTS)


@pytest.mark.parametrize("name", sorted(BY_SCRIPTS))
def test_a_reopened_hole_changes_its_script(name: str) -> None:
    mutation = BY_SCRIPTS[name]
    (path,) = [path for path in SCRIPTS if path.stem == mutation.script]
    text = path.read_text(encoding="utf-8")
    with mutation.apply():
        try:
            played = play(text)
        except AssertionError:  # an expectation of the script, or an assertion of the code
            return
    assert played != text, f"{path.name} does not notice {name}"


def test_what_a_script_may_say_is_documented() -> None:
    assert all((run.__doc__ or "").startswith(name) for name, run in COMMANDS.items())
    with pytest.raises(WrongStep, match="no command"):
        play("nodes 3\nsing\n")
    with pytest.raises(AssertionError, match="expected leader 2"):
        play("nodes 3\n\nelect 1\n\nexpect leader 2\n")
