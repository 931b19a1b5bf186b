"""Clients from npm, installed on demand outside the work tree, after their lock files and no other."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

INSTALL_WITHIN_S = 240

NEEDS_NODE = pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None, reason="node and npm are not installed"
)


def installed(source: Path) -> Path:
    """Where the packages of a folder with a package.json and its lock are."""
    lock = (source / "package-lock.json").read_bytes()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
    home = caches / f"{source.name}-{hashlib.sha256(lock).hexdigest()[:16]}"
    caches.mkdir(parents=True, exist_ok=True)
    with (caches / "lock").open("w") as guard:  # several test processes share it
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=caches) as scratch:
                for name in ("package.json", "package-lock.json"):
                    shutil.copy(source / name, scratch)
                done = subprocess.run(
                    ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                    cwd=scratch,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_WITHIN_S,
                    check=False,
                )
                assert done.returncode == 0, f"npm ci failed:\n{done.stdout}\n{done.stderr}"
                ready = Path(scratch).with_name(home.name + ".new")
                shutil.rmtree(ready, ignore_errors=True)
                shutil.copytree(scratch, ready, symlinks=True)
                ready.rename(home)
    return home
