"""What is installed with a checkout (`make install`) is what its commands need."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOGETHER = ("requirements.lock", "ansible/spark.lock", "scripts/docs/requirements.lock")
"""Locks that are installed into one environment."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def locked(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith((" ", "#")))


@pytest.mark.parametrize("extra", ["node", "zookeeper", "chaos", "dev"])
def test_the_lock_has_what_an_extra_asks_for(extra: str) -> None:
    """Those of `spark` are large, and in a lock of their own (ansible/spark.lock)."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {found[0] for one in extras[extra] if (found := NAME.match(one)) is not None} - {"holdfast"}
    assert names <= set(locked("requirements.lock"))


def test_the_lock_of_the_site_has_what_its_extra_asks_for() -> None:
    (wanted,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["docs"]
    assert NAME.match(wanted)[0] in locked("scripts/docs/requirements.lock")  # type: ignore[index]


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(TOGETHER, 2)))
def test_the_locks_agree(first: str, second: str) -> None:
    one, other = locked(first), locked(second)
    assert {name: (one[name], other[name]) for name in one.keys() & other.keys() if one[name] != other[name]} == {}
