"""Build the distributions of this tree, each as sdist and wheel, with a list of its components (SBOM).

    python scripts/dist/make_dist.py [--suffix SUFFIX] [--wheels] DIRECTORY

`pyproject.toml` is what a checkout installs, everything in one. Here it is cut into what users install: `holdfast` has no
top-level package but its own and the one that Spark looks for; a node's packages are for hosts that run nodes, and so
have a distribution apart. Rules: each is built from files that git knows, and the wheel from the sdist; versions,
dependencies and metadata are those of `pyproject.toml`; distributions of one build need each other in that very version.

Needs `build` and `setuptools` in the environment (`make install`), and no package index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sbom

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Distribution:
    """One that users install by its name."""

    name: str
    description: str
    packages: tuple[str, ...]  # top-level ones
    readme: Path
    of_extra: str = ""  # its dependencies are those of this extra; empty: those of the project itself
    more: tuple[str, ...] = ()  # further folders of its sdist
    scripts: tuple[tuple[str, str], ...] = ()

    @property
    def is_base(self) -> bool:
        return not self.of_extra


DISTRIBUTIONS = (
    Distribution(
        "holdfast",
        "A distributed, replicated event log that speaks AMQP 1.0: Python client, command line, Spark data source",
        ("holdfast", "pyspark_holdfast"),
        ROOT / "README.md",
    ),
    Distribution(
        "holdfast-node",
        "A node of Holdfast, a distributed, replicated event log that speaks AMQP 1.0",
        ("node", "cluster"),
        HERE / "holdfast-node.md",
        of_extra="node",
        more=("proto",),
        scripts=(("holdfast-node", "node.__main__:main"),),
    ),
    Distribution(
        "holdfast-pipeline",
        "Jobs on Spark over logs of Holdfast: capture, replay, bars, audit",
        ("pipeline",),
        HERE / "holdfast-pipeline.md",
        of_extra="spark",
    ),
)

PUBLIC_EXTRAS = ("zookeeper", "spark")
"""Extras of `pyproject.toml` that users have, too; the others are for work on the tree."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the distributions of this tree.")
    parser.add_argument("--suffix", default="", help="Append this to the version, such as +site.2.")
    parser.add_argument("--wheels", action="store_true", help="Build wheels only, without sdists and component lists.")
    parser.add_argument("directory", type=Path, help="Write them here.")
    arguments = parser.parse_args()
    out: Path = arguments.directory.resolve()
    out.mkdir(parents=True, exist_ok=True)
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = whole["project"]["version"] + arguments.suffix
    # Times in archives and lists are those of the commit, so that it does not matter when they are built.
    commit_s = int(_git("log", "-1", "--format=%ct"))
    for distribution in DISTRIBUTIONS:
        with tempfile.TemporaryDirectory(prefix="holdfast-dist-") as directory:
            stage = Path(directory) / distribution.name
            _stage(distribution, stage, whole, version)
            made = _build(stage, out, wheel_only=arguments.wheels, commit_s=commit_s)
        if not arguments.wheels:
            path = out / f"{distribution.name}-{version}.cdx.json"
            path.write_text(_components(distribution, whole["project"], version, commit_s), encoding="utf-8")
            made.append(path)
        for path in made:
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _stage(distribution: Distribution, stage: Path, whole: dict[str, Any], version: str) -> None:
    """Copy what belongs to a distribution, and write its own `pyproject.toml`."""
    for name in _git("ls-files", "-z", "--", *distribution.packages, *distribution.more).split("\0"):
        if name and not name.endswith(".gitignore"):
            target = stage / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    shutil.copy2(ROOT / "LICENSE", stage)
    shutil.copy2(distribution.readme, stage / "README.md")
    if distribution.more:
        (stage / "MANIFEST.in").write_text("".join(f"graft {folder}\n" for folder in distribution.more))
    (stage / "pyproject.toml").write_text(pyproject(distribution, whole, version), encoding="utf-8")


def pyproject(distribution: Distribution, whole: dict[str, Any], version: str) -> str:
    """The `pyproject.toml` of one distribution. `whole` is the tree's."""
    project, tools = whole["project"], whole["tool"]["setuptools"]
    tables: dict[str, dict[str, Any]] = {"build-system": whole["build-system"]}
    tables["project"] = {
        "name": distribution.name,
        "version": version,
        "description": distribution.description,
        **{key: project[key] for key in ("requires-python", "license", "authors", "keywords", "classifiers")},
        "license-files": ["LICENSE"],
        "readme": "README.md",
        "dependencies": requirements(distribution, project, version),
    }
    scripts = dict(distribution.scripts)
    if distribution.is_base:
        scripts |= project["scripts"]
        extras = {name: project["optional-dependencies"][name] for name in PUBLIC_EXTRAS}
        extras["node"] = [f"holdfast-node=={version}"]
        tables["project.optional-dependencies"] = extras
        for group, points in project["entry-points"].items():
            tables[f"project.entry-points.{group}"] = points
    if scripts:
        tables["project.scripts"] = scripts
    tables["tool.setuptools.packages.find"] = {
        "include": [pattern for package in distribution.packages for pattern in (package, f"{package}.*")]
    }
    tables["tool.setuptools.package-data"] = {
        key: files
        for key, files in tools["package-data"].items()
        if key == "*" or key.split(".")[0] in distribution.packages
    }
    return "\n".join(_table(name, table) for name, table in tables.items())


def requirements(distribution: Distribution, project: dict[str, Any], version: str) -> list[str]:
    """Dependencies of a distribution; all but the base need the base of the same build."""
    if distribution.is_base:
        return list(project["dependencies"])
    return [f"holdfast=={version}", *project["optional-dependencies"][distribution.of_extra]]


def _table(name: str, table: dict[str, Any]) -> str:
    return "".join([f"[{name}]\n", *(f"{json.dumps(key)} = {_value(value)}\n" for key, value in table.items())])


def _value(value: Any) -> str:
    """A value in TOML; strings of JSON are strings there, too."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return "[" + ", ".join(_value(one) for one in value) + "]"
        case dict():
            return "{ " + ", ".join(f"{json.dumps(key)} = {_value(one)}" for key, one in value.items()) + " }"
        case _:
            raise TypeError(f"make_dist.py cannot write {value!r} into a pyproject.toml: teach it this type")


def _build(stage: Path, out: Path, *, wheel_only: bool, commit_s: int) -> list[Path]:
    """Build into a directory of its own first: `out` gets whole files only."""
    fresh = stage.parent / "built"
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(fresh)]
    done = subprocess.run(
        [*words, *(["--wheel"] if wheel_only else []), str(stage)],
        cwd=stage.parent,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(commit_s)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{stage.name} was not built:\n{done.stdout}")
    return [Path(shutil.move(path, out / path.name)) for path in sorted(fresh.iterdir())]


def _components(distribution: Distribution, project: dict[str, Any], version: str, commit_s: int) -> str:
    locked = sbom.read_locks(ROOT / "requirements.lock", ROOT / "ansible" / "spark.lock")
    ours = {
        one.name: requirements(one, project, version) for one in DISTRIBUTIONS if one.is_base or one == distribution
    }
    document = sbom.describe(distribution.name, version, project["license"], ours, locked, commit_s)
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    main()
