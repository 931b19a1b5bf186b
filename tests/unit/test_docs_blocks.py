"""Programs on the pages can be compiled, and what they import exists. The tutorial and the README are run elsewhere
(`test_tour.py`, `test_tutorial.py`)."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import re
import textwrap
from pathlib import Path

import pytest

import holdfast.client

ROOT = Path(__file__).parents[2]
ELSEWHERE = frozenset({"pyspark", "azure", "kafka", "pika"})
"""Packages of other people that a page may name and a checkout need not have."""

BLOCKS = [
    pytest.param(text, id=f"{path.relative_to(ROOT).as_posix()}-{number}")
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if "Written by scripts/docs" not in path.read_text(encoding="utf-8")
    for number, text in enumerate(
        re.findall(r"^ *```python\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
]


def tree_of(block: str) -> ast.Module:
    """The program, which may await and return at its outermost level."""
    inside = textwrap.indent(textwrap.dedent(block), "    ")
    source = f"async def block():\n{inside}"
    compile(source, "<block>", "exec")
    return ast.parse(source)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_program_compiles_and_imports_what_exists(block: str) -> None:
    if "pyspark" in block:
        pytest.importorskip("pyspark", reason="there is no pyspark here: `make test` installs it")
    for item in ast.walk(tree_of(block)):
        if isinstance(item, ast.Import):
            for alias in item.names:
                if alias.name.split(".")[0] not in ELSEWHERE:
                    importlib.import_module(alias.name)
        elif isinstance(item, ast.ImportFrom) and (item.module or "").split(".")[0] not in ELSEWHERE:
            module = importlib.import_module(item.module or "")
            missing = [
                alias.name
                for alias in item.names
                if not hasattr(module, alias.name) and importlib.util.find_spec(f"{item.module}.{alias.name}") is None
            ]
            assert not missing


@pytest.mark.parametrize("block", BLOCKS)
def test_a_class_that_a_program_uses_is_imported_or_of_the_client(block: str) -> None:
    tree = tree_of(block)
    known = {*holdfast.client.__all__, *dir(builtins)}
    for item in ast.walk(tree):
        match item:
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                known |= {alias.asname or alias.name for alias in names}
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                known.add(name)
    used = {item.id for item in ast.walk(tree) if isinstance(item, ast.Name) and item.id[0].isupper()}
    assert used <= known


def test_there_are_programs() -> None:
    assert len(BLOCKS) > 15
