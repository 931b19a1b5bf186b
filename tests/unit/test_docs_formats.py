"""The page of formats tells the numbers that stand in the source."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from cluster.versions import NEWEST, OLDEST

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| (\d+) \| `([\w/]+)\.py` `(\w+)` \|")


def test_every_number_is_that_of_the_source() -> None:
    page = (ROOT / "docs/internals/formats.md").read_text(encoding="utf-8")
    rows = ROW.findall(page)
    assert len(rows) >= 12
    for number, module, name in rows:
        value = getattr(importlib.import_module(module.replace("/", ".")), name)
        told = int(re.findall(rb"\d+", value)[-1]) if isinstance(value, bytes) else value
        assert told == int(number), f"{module}.py: {name}"
    assert f"| {OLDEST} to {NEWEST} |" in page
