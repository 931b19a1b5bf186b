"""A large cluster on this machine: only if there is memory for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.local_cluster import lifecycle
from holdfast.cli.shared.errors import CliError

MIB = 1024 * 1024


def create(directory: Path, nodes: int) -> int:
    return len(lifecycle.create(directory, nodes, None, 0, "dev", "fsync", usual_ports=False).plan.nodes)


def test_a_machine_without_memory_for_so_many_nodes_says_how_many_it_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_available_bytes", lambda: 2000 * MIB)
    with pytest.raises(CliError, match="31 nodes need 4960 MiB of memory, and 2000 MiB are free here") as refused:
        create(tmp_path, 31)
    assert "take 12 at most" in str(refused.value.advice)
    assert create(tmp_path / "twelve", 12) == 12


@pytest.mark.parametrize(("free", "nodes"), [(0, 7), (None, 31), (31 * lifecycle.NODE_BYTES, 31)])
def test_few_nodes_are_never_refused_and_many_not_without_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int | None, nodes: int
) -> None:
    monkeypatch.setattr(lifecycle, "_available_bytes", lambda: free)
    assert create(tmp_path, nodes) == nodes
