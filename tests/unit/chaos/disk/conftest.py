"""A disk on order, and small programs that run on it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.disk import FaultyDisk
from tests.disks import disk_on_order

Run = Callable[..., str]

PRELUDE = """
import os, signal, sys, threading
root = os.environ["HOLDFAST_DISK_ROOT"]
def at(name): return os.path.join(root, name)
def made(name, data=b""):
    file = os.open(at(name), os.O_RDWR | os.O_CREAT, 0o644)
    if data: os.write(file, data)
    return file
def sync_names(name="."):
    directory = os.open(at(name), os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
def outcome(call, *args):
    try: call(*args)
    except OSError as error: return error.errno
    return 0
"""


@pytest.fixture
def make_disk(tmp_path: Path) -> Callable[..., FaultyDisk]:
    return lambda **more: disk_on_order(tmp_path, **more)


@pytest.fixture
def disk(make_disk: Callable[..., FaultyDisk]) -> FaultyDisk:
    return make_disk()


def begin(disk: FaultyDisk, program: str) -> subprocess.Popen[str]:
    """A small program; what it may use stands in PRELUDE."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", PRELUDE + textwrap.dedent(program)],
        env={**os.environ, **disk.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def run(disk: FaultyDisk) -> Run:
    """Runs a program to its end, and returns what it said."""

    def run_one(program: str, status: int = 0) -> str:
        process = begin(disk, program)
        said = process.communicate(timeout=240)[0]
        assert process.returncode == status
        return said

    return run_one
