"""The store in a process of its own, on a disk on order, one small program after the other."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from chaos.disk import FaultyDisk

ROOT = Path(__file__).resolve().parents[3]
WITHIN_S = 120

PRELUDE = """
import hashlib, os, sys, threading, time
from pathlib import Path
from dataclasses import replace
from node.storage import DiskOptions, StorageError
from node.storage import Store as PlainStore
from node.storage.wal import write_path
from tests.unit.storage.support import SMALL, WHO, fill, rows
home = Path(os.environ["HOLDFAST_DISK_ROOT"]) / "data"
struck = Path(os.environ["HOLDFAST_DISK_SIDE"]) / "struck"
write_path.SYNCED_FROM_BYTES = 0  # little goes past the page cache, too, if anything does
def Store(path, who, options=DiskOptions()):
    return PlainStore(path, who, replace(options, direct=os.environ.get("HOLDFAST_TEST_DIRECT", "never")))
def tell(*words): print(*words, flush=True)
def when_told(word="ready"):
    tell(word)
    sys.stdin.readline()
def outcome(call, *args):
    try: call(*args)
    except StorageError as error: return type(error).__name__
    return "done"
def entries(disk): return sorted(key[-1] for key in rows(disk) if key[:1] == b"e")
"""


class Program:
    """Until it ends or says that it waits; then the test goes on."""

    def __init__(self, disk: FaultyDisk, text: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(text)],
            env={**os.environ, **disk.environment()},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said == word, said + self._process.communicate(timeout=WITHIN_S)[1]

    def go_on(self) -> None:
        assert self._process.stdin is not None
        print("go on", file=self._process.stdin, flush=True)

    def end(self, status: int | None = 0) -> str:
        """What it said from now on; `None`: however it ends."""
        try:
            said, complaint = self._process.communicate(timeout=WITHIN_S)
        finally:
            self._process.kill()  # one that has ended is left alone
        assert status is None or self._process.returncode == status, complaint
        return said


def run(disk: FaultyDisk, text: str, status: int | None = 0) -> str:
    return Program(disk, text).end(status)
