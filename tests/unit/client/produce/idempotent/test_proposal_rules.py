"""Every rule of idempotent publishing has a test of its name: IP-1 to IP-21 here, the service's cases IS-1 to IS-10 at
the listener."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[3]


def test_every_rule_has_a_test() -> None:
    assert _numbers("client/produce/idempotent", "test_*.py", r"def test_ip_(\d+)_") == set(range(1, 22))


def test_every_case_has_a_test() -> None:
    found = _numbers("listener/incoming", "test_idempotent*.py", r"def test_is_(\d+)_(?:and_(\d+)_)?")
    assert found == set(range(1, 11))


def _numbers(package: str, files: str, pattern: str) -> set[int]:
    """Of all that the pattern finds in the package's stories of idempotence."""
    text = "".join(path.read_text() for path in (TESTS / package).glob(files))
    return {int(number) for match in re.finditer(pattern, text) for number in match.groups() if number}
