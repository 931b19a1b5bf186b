"""Build of the preload library: at its first use, and again when its source has changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "preload"
BUILD = SOURCES.parents[2] / "build"
FLAGS = ("-D_GNU_SOURCE", "-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wno-attribute-alias")
LIBRARIES = ("-ldl", "-pthread")


class NoCompiler(Exception):
    """The library cannot be compiled on this machine."""


def build() -> Path:
    """Compile the library if necessary and return its path. Raises NoCompiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        raise NoCompiler("the disk on order is for 64-bit Linux")
    if compiler is None:
        raise NoCompiler("the disk on order needs a C compiler (cc, or what CC names): apt-get install gcc libc6-dev")
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(repr((FLAGS, LIBRARIES)).encode())
    for source in sources:
        digest.update(source.read_bytes())
    library = BUILD / f"disk-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        BUILD.mkdir(exist_ok=True)
        fresh = library.with_suffix(f".{os.getpid()}")  # others may build it at the same time
        code = [str(source) for source in sources if source.suffix == ".c"]
        done = subprocess.run(
            [compiler, *FLAGS, "-o", str(fresh), *code, *LIBRARIES], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise NoCompiler(f"{compiler} does not compile the disk on order: {done.stderr.strip()}")
        fresh.replace(library)
    return library
