"""Directories of benchmarks, for temporary data and for results."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
DATA = Path("var") / "bench"  # on the checkout's disk: /tmp is often in memory, where a sync costs nothing


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    DATA.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=DATA)).resolve()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
