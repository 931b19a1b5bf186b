"""Disks on order for tests (chaos/disk); where they cannot be made the test is skipped, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.disk import FaultyDisk, NoCompiler


def disk_on_order(home: Path, *, mirrors: bool = False) -> FaultyDisk:
    """Below `home`: the disk itself is `home/disk`."""
    try:
        return FaultyDisk(home / "disk", home / "disk-side", mirrors=mirrors)
    except NoCompiler as error:
        pytest.skip(str(error))
