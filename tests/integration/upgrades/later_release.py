"""A release after this one: a copy of the tree that knows one version more, for tests of upgrades."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from cluster.versions import NEWEST

ROOT = Path(__file__).resolve().parents[3]


def later_release(directory: Path) -> Path:
    """Make the tree; returns it, for PYTHONPATH."""
    for package in ("cluster", "node", "holdfast"):
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    versions = directory / "cluster" / "versions.py"
    text, changed = re.subn(r"(?m)^NEWEST = \d+$", f"NEWEST = {NEWEST + 1}", versions.read_text(encoding="utf-8"))
    assert changed == 1
    versions.write_text(text, encoding="utf-8")
    return directory
