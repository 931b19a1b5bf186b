"""Python's own text as a tree, for tests that judge the code by how it is written."""

from __future__ import annotations

import ast
from pathlib import Path

ATTEMPTS = 5


def parsed(path: str | Path) -> ast.Module:
    """CPython before 3.11.8 and 3.12.2 counts in one place for all who parse, and at times takes two at once (another
    thread, a collection of garbage) for a mistake of its own."""
    text = Path(path).read_text(encoding="utf-8")
    for _ in range(ATTEMPTS - 1):
        try:
            return ast.parse(text)
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
    return ast.parse(text)
