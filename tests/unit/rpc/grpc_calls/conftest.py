"""A call ends as its test says, and not because the machine stood still for a moment: both ends live in one process,
and one that gets no processor for 0.7 s between a ping and its answer takes the other end for dead."""

from __future__ import annotations

import pytest

from tests.unit.rpc.support import notice_no_silence


@pytest.fixture(autouse=True)
def a_patient_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("silence"):
        notice_no_silence(monkeypatch)
