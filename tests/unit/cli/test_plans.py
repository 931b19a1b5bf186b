"""What a plan says to people."""

from __future__ import annotations

import pytest

from holdfast.cli.shared.plans import _time_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "a minute"), (60, "a minute"), (61, "2 minutes"), (7140, "119 minutes"), (7141, "2.0 hours")],
)
def test_a_time_estimate_reads_well(seconds: int, text: str) -> None:
    assert _time_text(seconds) == text
