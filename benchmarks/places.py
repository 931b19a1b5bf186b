"""Where benchmarks keep what they need for a while, and where they write what they found."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
DATA = Path("var") / "bench"  # on the disk of the checkout: /tmp is memory on many machines, and a sync free of charge


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    DATA.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=DATA)).resolve()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
