"""These tests run on uvloop, as a node does; each has a node of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cluster.rpc import options
from tests.unit.listener.support.single import SingleNode


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def patient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a cluster live in one process here: gRPC takes one for dead if that stands still for 0.7 s."""
    monkeypatch.setattr(options, "KEEPALIVE_TIMEOUT_MS", 30_000)


@pytest.fixture
async def node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[SingleNode]:
    """One node with a log `trades` of one partition and a log `wide` of four. No test may have met a bug."""
    single = await SingleNode(tmp_path / "data", group_full="refuse").start()
    await single.create("trades", 1)
    await single.create("wide", 4)
    yield single
    await single.stop()
    assert not [record.getMessage() for record in caplog.records if "a bug" in record.getMessage()]
