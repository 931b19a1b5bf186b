"""What is installed with a checkout (`make install`) is what its commands need."""

from __future__ import annotations

import importlib
import itertools
import re
import tomllib
from pathlib import Path
from types import ModuleType

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


@pytest.fixture
def sbom(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that lists components, which is no module of a package."""
    monkeypatch.syspath_prepend(ROOT / "scripts" / "dist")
    return importlib.import_module("sbom")


LOCK = """\
Under_Score==1.0
    # via ours
middle==2.0
    # via
    #   ours (pyproject.toml)
    #   under-score
leaf==3.0
    # via middle
other==4.0
    # via somebody
"""


def test_the_list_of_components_has_what_is_needed_and_nothing_else(sbom: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text(LOCK)
    locked = sbom.read_locks(tmp_path / "a.lock")
    ours = {"ours": ["base==0.1", "under.score>=1"], "base": ["middle[fast]>=2"]}
    told = sbom.describe("ours", "0.1", "Apache-2.0", ours, locked, 0)
    assert [one["purl"] for one in told["components"]] == [
        "pkg:pypi/base@0.1", "pkg:pypi/leaf@3.0", "pkg:pypi/middle@2.0", "pkg:pypi/under-score@1.0",
    ]  # fmt: skip
    edges = {one["ref"]: one["dependsOn"] for one in told["dependencies"]}
    assert edges["pkg:pypi/ours@0.1"] == ["pkg:pypi/base@0.1", "pkg:pypi/under-score@1.0"]
    assert edges["pkg:pypi/under-score@1.0"] == ["pkg:pypi/middle@2.0"]
    assert edges["pkg:pypi/leaf@3.0"] == []
    assert sbom.describe("ours", "0.1", "Apache-2.0", ours, locked, 0) == told, "the same contents, the same document"


def test_a_component_that_is_not_locked_is_no_component(sbom: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text(LOCK)
    locked = sbom.read_locks(tmp_path / "a.lock")
    with pytest.raises(ValueError, match="lost is needed, and in no lock file"):
        sbom.describe("ours", "0.1", "Apache-2.0", {"ours": ["lost"]}, locked, 0)
