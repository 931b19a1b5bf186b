"""Names in backticks, in docstrings and comments of the product, name something that exists.

A comment that points to a renamed module is worse than none. Checked are files (`machine.py`), methods
(`LogStore.close`) and names that can hardly be words (`log_store`, `LogStore`); plain words are not.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.parsing import parsed

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("cluster", "node", "holdfast", "pipeline", "pyspark_holdfast", "chaos", "benchmarks")

FOREIGN = {
    "LD_PRELOAD", "ReplicationEndpoint", "TimeoutNow", "Trigger.AvailableNow", "VO", "from_json", "limit_data",
    "optimization_target", "pn_disposition_t", "preexec_fn", "reset_peer",
}  # fmt: skip
"""Words of other programs, libraries and papers."""


def sources() -> list[Path]:
    found = [path for top in PRODUCT for path in sorted(ROOT.joinpath(top).rglob("*.py"))]
    return [path for path in found if "_pb2" not in path.name and "node_modules" not in path.parts]


@functools.cache
def names() -> set[str]:
    """Whatever the product or its tests call something."""
    found: set[str] = set()
    for path in [*sources(), *(set(ROOT.joinpath("tests").rglob("*.py")) - {Path(__file__)})]:
        found |= set(path.relative_to(ROOT).with_suffix("").parts)
        for item in ast.walk(parsed(path)):
            match item:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                    found.add(name)
                case ast.Constant(value=str() as text) if text.isidentifier():
                    found.add(text)
                case ast.alias(name=name):
                    found |= set(name.split("."))
    return found


@functools.cache
def classes() -> set[str]:
    """Classes of the product, and whatever it imports by a name of its own."""
    found: set[str] = set()
    for path in sources():
        for item in ast.walk(parsed(path)):
            if isinstance(item, ast.ClassDef):
                found.add(item.name)
            elif isinstance(item, ast.ImportFrom):
                found |= {alias.name for alias in item.names}
    return found


@functools.cache
def files() -> set[str]:
    return {path.name for top in (*PRODUCT, "tests") for path in ROOT.joinpath(top).rglob("*.py")}


def dead(text: str) -> list[str]:
    """The names in backticks that name nothing."""
    found = []
    for word in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w./]+\.py", word):
            known = word.rpartition("/")[2] in files() and ("/" not in word or _is_path(word))
        elif re.fullmatch(r"[A-Z]\w+\.\w+", word):
            owner, _, member = word.partition(".")
            known = (owner in classes() and member in names()) or word in FOREIGN
        elif re.fullmatch(r"[a-z]+(_[a-z]+)+|[A-Z]\w+", word):
            known = word in names() or word in FOREIGN
        else:
            continue
        if not known:
            found.append(word)
    return found


def _is_path(word: str) -> bool:
    return any(path.as_posix().endswith("/" + word) for path in sources())


@pytest.mark.parametrize("top", PRODUCT)
def test_what_a_comment_names_exists(top: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: `{word}`"
        for path in sources()
        if path.is_relative_to(ROOT / top)
        for word in dead(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_a_name_that_is_gone_is_found() -> None:
    gone = ["the_fate_of.py", "HostOfGroups.open_group", "steps_of_zookeeper", "BookOfAll"]
    there = ["machine.py", "partition/state_machine.py", "LogStore.flush", "log_store", "LogStore"]
    assert dead(" ".join(f"`{word}`" for word in (*gone, *there))) == gone
