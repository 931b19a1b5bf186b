"""Lone events are measured on a real cluster, alone and beside bulk, and held against the goals."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.client import lone

QUIET = Console(quiet=True)


@pytest.mark.cluster
def test_each_part_has_a_figure_for_each_percentile(tmp_path: Path) -> None:
    clusters, _ = lone.contestants(tmp_path, None, rivals=False)
    lone.run(clusters, 1, 1.0, QUIET)
    found = lone.rows(clusters)
    assert [row[0] for row in found] == ["200/s", "2,000/s", "200/s beside bulk"]
    assert all(0 < float(row[2]) <= float(row[3]) <= float(row[4]) for row in found)


async def test_an_event_that_fails_is_no_figure() -> None:
    """Else a cluster that refuses everything at once would be the fastest."""

    @lone.asynccontextmanager
    async def refusing():  # type: ignore[no-untyped-def]
        async def send(answer: lone.Answer) -> None:
            answer("no")

        yield send

    with pytest.raises(RuntimeError, match="an event failed: no"):
        await lone.latencies_ns(refusing(), 1000, 0.01)
