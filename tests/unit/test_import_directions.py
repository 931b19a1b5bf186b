"""The tree tells the architecture only while imports run one way; this test guards the directions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"cluster", "node", "holdfast", "benchmarks", "chaos", "tests"}

# package -> our packages it may import (itself always). The most specific package that holds a file decides.
ALLOWED: dict[str, set[str]] = {
    "cluster.raft": set(),
    "cluster.discovery": set(),
    "cluster.metadata": {"cluster.raft"},
    "cluster.rpc": {"cluster.raft"},
    "holdfast.amqp": set(),
    "holdfast.client": {"holdfast.amqp"},
    "holdfast.cli": {"holdfast.client", "holdfast.amqp"},
    "node.storage": {"cluster.raft"},
    "node.partition": {"cluster.raft", "node.storage"},
    "node.filters": {"holdfast.amqp"},
    "node.listener": {"holdfast.amqp", "node.filters", "node.partition", "node.admin.errors"},
    "node": {"cluster", "holdfast.amqp"},
    "benchmarks": {"holdfast.amqp"},
    "benchmarks.client": {"benchmarks", "holdfast.client"},  # a client of ours is what it measures
    "chaos": set(),
}


def modules_imported(path: Path) -> set[str]:
    found: set[str] = set()
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, f"{path}: relative import; write the absolute name"
            assert item.module is not None
            found |= {f"{item.module}.{alias.name}" for alias in item.names}
    return {name for name in found if name.split(".")[0] in OURS}


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    wrong = []
    for path in sorted(ROOT.joinpath(*package.split(".")).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if any(within(module, other) and len(other) > len(package) for other in ALLOWED):
            continue  # a more specific rule decides
        wrong += [
            f"{path.relative_to(ROOT)} imports {name}"
            for name in modules_imported(path)
            if not any(within(name, allowed) for allowed in ALLOWED[package] | {package})
        ]
    assert not wrong, "\n".join(wrong)
