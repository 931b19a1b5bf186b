"""The components of a distribution (software bill of materials), as CycloneDX 1.6 in JSON.

The versions are those of the lock files: what tests run with, and what a bundle installs. Rule: a component that is not
locked is an error, never left out.
"""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NAMESPACE = uuid.UUID("5b5a3f6e-7d3c-4f0e-9a53-6d0b1f1c7a10")
"""Documents with the same contents have the same serial number."""


@dataclass
class LockedPackage:
    name: str
    version: str
    needed_by: set[str] = field(default_factory=set)


def normal(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_locks(*paths: Path) -> dict[str, LockedPackage]:
    """Packages of lock files as pip-compile writes them, with the names behind `via`."""
    found: dict[str, LockedPackage] = {}
    for path in paths:
        package = None
        for line in path.read_text(encoding="utf-8").splitlines():
            if (match := re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line)) is not None:
                package = found.setdefault(normal(match[1]), LockedPackage(normal(match[1]), match[2]))
            elif package is not None and (via := re.fullmatch(r" +#(?: via)? +([A-Za-z0-9][A-Za-z0-9._-]*)", line)):
                package.needed_by.add(normal(via[1]))
    return found


def describe(
    name: str,
    version: str,
    licence: str,
    ours: Mapping[str, Iterable[str]],
    locked: Mapping[str, LockedPackage],
    built_s: int,
) -> dict[str, Any]:
    """Describe the distribution `name`.

    Args:
        ours: its requirements, and those of other distributions of the same build that it needs.
        locked: all packages with their versions.
        built_s: the time of the build, in seconds since 1970.
    """
    needs: dict[str, list[str]] = {}
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in needs:
            continue
        if one in ours:
            needs[one] = sorted({_required(item) for item in ours[one]})
        elif one in locked:
            needs[one] = sorted(other for other, package in locked.items() if one in package.needed_by)
        else:
            raise ValueError(f"{one} is needed, and in no lock file: write its version into requirements.lock")
        waiting += needs[one]
    refs = {one: f"pkg:pypi/{one}@{version if one in ours else locked[one].version}" for one in needs}

    def component(one: str) -> dict[str, Any]:
        own = one in ours
        found: dict[str, Any] = {
            "type": "application" if one == name else "library",
            "bom-ref": refs[one],
            "name": one,
            "version": version if own else locked[one].version,
            "purl": refs[one],
        }
        if licences := ([{"expression": licence}] if own else _licences(one, locked[one].version)):
            found["licenses"] = licences
        return found

    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(built_s, datetime.UTC).isoformat(),
            "component": component(name),
        },
        "components": [component(one) for one in sorted(needs.keys() - {name})],
        "dependencies": [
            {"ref": refs[one], "dependsOn": [refs[child] for child in needs[one]]} for one in sorted(needs)
        ],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(document, sort_keys=True))
    return {"serialNumber": f"urn:uuid:{serial}", **document}


def _required(requirement: str) -> str:
    match = NAME.match(requirement)
    assert match is not None, requirement
    return normal(match[0])


def _licences(name: str, version: str) -> list[dict[str, Any]]:
    """Licences as an installed package names them; none if it is not installed here in that version."""
    try:
        said = metadata(name)
    except PackageNotFoundError:
        return []
    if said["Version"] != version:
        return []
    if "License-Expression" in said:
        return [{"expression": said["License-Expression"]}]
    named = [line.rpartition(" :: ")[2] for line in said.get_all("Classifier", []) if line.startswith("License ::")]
    return [{"license": {"name": one}} for one in named]
