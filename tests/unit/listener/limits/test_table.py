"""The table of limits in docs/reference/limits.md says what the constants are."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from node.listener.config import ListenerConfig

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "limits.md"
UNITS = {"": 1, "KiB": 1024, "MiB": 1024 * 1024, "s": 1, "ms": 0.001}
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([\d.]+) ?(\w*) \| `([\w.]+)` \| [^|]+ \|$", TEXT, re.MULTILINE)


def test_every_row_is_read() -> None:
    assert len(ROWS) == sum(line.startswith("| ") for line in TEXT.splitlines()) - 2 > 30


@pytest.mark.parametrize(("what", "number", "unit", "constant"), ROWS, ids=[row[3].rpartition(".")[2] for row in ROWS])
def test_a_limit_is_what_the_page_says(what: str, number: str, unit: str, constant: str) -> None:
    owner, _, name = constant.rpartition(".")
    holder = ListenerConfig() if owner == "ListenerConfig" else importlib.import_module(owner)
    assert getattr(holder, name) == pytest.approx(float(number) * UNITS[unit]), what
