"""Where clients of other languages come from."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "rhea"
INSTALL_WITHIN_S = 240


@pytest.fixture(scope="module")
def rhea_home() -> Path:
    """Where rhea is installed, after its lock file and no other."""
    lock = (HERE / "package-lock.json").read_bytes()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
    home = caches / f"rhea-{hashlib.sha256(lock).hexdigest()[:16]}"
    caches.mkdir(parents=True, exist_ok=True)
    with (caches / "lock").open("w") as guard:  # several test processes share it
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=caches) as scratch:
                for name in ("package.json", "package-lock.json"):
                    shutil.copy(HERE / name, scratch)
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
