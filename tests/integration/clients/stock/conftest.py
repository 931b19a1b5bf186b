"""Where clients of other languages come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.clients.npm import installed


@pytest.fixture(scope="module")
def rhea_home() -> Path:
    return installed(Path(__file__).parent / "rhea")
