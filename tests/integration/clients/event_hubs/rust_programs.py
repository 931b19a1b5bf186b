"""Programs on the Rust SDK of Event Hubs, built by cargo outside the work tree.

    python -m tests.integration.clients.event_hubs.rust_programs [--optional]   builds them, which takes minutes

Tests take what is built, and never build it themselves. Of two programs one is on the newest SDK; the other is on the
SDK's Blob store and the version that this was published for. No program can have both.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "rust"
PROGRAMS = {"sdk": "event-hubs-client", "store": "event-hubs-blob-store"}
"""Folders, and the names of what cargo makes of them."""

CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
COMMAND = "python -m tests.integration.clients.event_hubs.rust_programs"


def program(folder: str) -> Path:
    """Where the program of a folder is, once it is built from what is in the work tree."""
    files = sorted(path for path in (HERE / folder).rglob("*") if path.suffix in (".rs", ".toml"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
    return CACHES / f"rust-{digest}" / PROGRAMS[folder]


def missing() -> str:
    """Why there are no programs; empty if there are."""
    absent = [folder for folder in PROGRAMS if not program(folder).exists()]
    return f"the Rust programs {', '.join(absent)} (build them by: {COMMAND})" if absent else ""


def build(folder: str) -> None:
    """Build a program after its manifest. Raises CalledProcessError."""
    target = CACHES / "rust-target"
    command = ["cargo", "build", "--quiet", "--target-dir", str(target)]
    subprocess.run(command, cwd=HERE / folder, check=True)
    built = program(folder)
    built.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target / "debug" / PROGRAMS[folder], built)


def main() -> int:
    optional = "--optional" in sys.argv
    if not missing():
        return 0
    if shutil.which("cargo") is None:
        print("cargo is missing: tests of the Rust SDK are skipped" if optional else "install cargo 1.88 or newer")
        return 0 if optional else 1
    print("building the programs on the Rust SDK")
    try:
        for folder in PROGRAMS:
            build(folder)
    except subprocess.CalledProcessError as problem:
        print(f"cargo failed ({problem}): tests of the Rust SDK are skipped")
        return 0 if optional else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
