"""A class name stands for one thing in the whole project, so that a search for it finds that thing alone.

What the tests share counts, too. Private classes, generated code, and classes among the tests of one file are that
file's own affair. A synchronous client has the name of the asyncio one, and so have the classes that it gives. A
program's tests and ours each call their cluster `Cluster`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import holdfast.client
import holdfast.testing
from tests.parsing import parsed

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (
    "cluster", "node", "holdfast", "pipeline", "pyspark_holdfast", "chaos", "benchmarks", "examples", "scripts",
    "ansible",
)  # fmt: skip

SYNC = "holdfast/client/sync/"
TESTING = "holdfast/testing/"


def sources() -> list[str]:
    """Every file of the product, and those that tests share."""
    return [
        path.relative_to(ROOT).as_posix()
        for top in (*PRODUCT, "tests")
        for path in sorted(ROOT.joinpath(top).rglob("*.py"))
        if "_pb2" not in path.name and not path.name.startswith("test_")
    ]


def shared(files: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Names of classes that are defined more than once, with the places."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in files.items():
        for item in ast.walk(tree):
            if not isinstance(item, ast.ClassDef) or item.name.startswith("_"):
                continue
            twin = path.startswith(SYNC) and item.name in holdfast.client.__all__
            if not (twin or (path.startswith(TESTING) and item.name in holdfast.testing.__all__)):
                places[item.name].append(f"{path}:{item.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_class_name_stands_for_one_thing() -> None:
    twice = shared({path: parsed(ROOT / path) for path in sources()})
    assert not twice


def test_a_second_class_of_a_name_is_found() -> None:
    plain, private = ast.parse("class Sender: ..."), ast.parse("class _Sender: ...")
    assert shared({"node/a.py": plain, "chaos/b.py": plain, "node/c.py": private}) == {
        "Sender": ["node/a.py:1", "chaos/b.py:1"]
    }
    assert shared({"node/a.py": private, "chaos/b.py": private}) == {}
    nested = ast.parse("def f():\n    class Sender: ...")
    assert shared({"node/a.py": plain, "node/b.py": nested}).keys() == {"Sender"}


def test_a_synchronous_twin_has_the_name_of_the_asyncio_class_and_nothing_else_has() -> None:
    public, other = ast.parse("class Delivery: ..."), ast.parse("class Sender: ...")
    asyncio, sync = "holdfast/client/delivery.py", "holdfast/client/sync/clients.py"
    assert shared({asyncio: public, sync: public}) == {}
    assert shared({asyncio: public, sync: public, "node/delivery.py": public}).keys() == {"Delivery"}
    assert shared({asyncio: other, sync: other}).keys() == {"Sender"}
