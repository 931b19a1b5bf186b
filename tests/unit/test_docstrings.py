"""First lines of docstrings stand alone: a tooltip shows nothing else of them.

A line that begins with a word such as "Of" or "Whether" needs the code around it to be understood.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parsing import parsed

ROOT = Path(__file__).resolve().parents[2]
MOST = {
    "cluster": 0,
    "node": 0,
    "holdfast": 0,
    "pipeline": 0,
    "pyspark_holdfast": 0,
    "chaos": 0,
    "benchmarks": 0,
    "ansible": 0,
    "scripts": 0,
    "examples": 0,
}
"""How many lines still begin so. The numbers may only become smaller."""

HANGING = frozenset(
    [
        "all",
        "also",
        "and",
        "as",
        "at",
        "because",
        "behind",
        "beside",
        "besides",
        "between",
        "both",
        "but",
        "by",
        "else",
        "for",
        "from",
        "how",
        "if",
        "in",
        "it",
        "its",
        "not",
        "of",
        "on",
        "only",
        "or",
        "same",
        "since",
        "so",
        "that",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "under",
        "until",
        "what",
        "when",
        "where",
        "whether",
        "which",
        "while",
        "who",
        "whose",
        "with",
        "without",
        "nobody",
        "no",
    ]
)


def hanging(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring whose first line does not stand alone."""
    for item in ast.walk(tree):
        if isinstance(item, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = (ast.get_docstring(item) or "").strip().lower()
            first = text.split()[0].strip("`\"'(,.:;") if text else ""
            if first in HANGING or text.startswith("the same"):
                yield item.body[0].lineno, text.splitlines()[0]


@pytest.mark.parametrize("top", MOST)
def test_first_lines_stand_alone(top: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(ROOT.joinpath(top).rglob("*.py"))
        if "_pb2" not in path.name
        for line, text in hanging(parsed(path))
    ]
    assert len(found) <= MOST[top], "\n".join(found)


def test_a_line_that_hangs_is_found() -> None:
    tree = ast.parse(
        '"""Of one link."""\ndef f():\n    """Return the offset."""\ndef g():\n    """The same in bytes."""'
    )
    assert [line for line, _ in hanging(tree)] == [1, 5]
