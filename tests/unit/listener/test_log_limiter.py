"""What peers do to the log is bounded."""

from __future__ import annotations

import logging

import pytest

from node.listener.log_limiter import LINES, PERIOD_S, LogLimiter


def test_a_flood_of_connections_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.listener")
    now_s = [0.0]
    notes = LogLimiter(lambda: now_s[0])
    for number in range(LINES + 300):
        notes.write("connection %d ended", number)
    assert [record.getMessage() for record in caplog.records] == [f"connection {n} ended" for n in range(LINES)]

    caplog.clear()
    now_s[0] = PERIOD_S
    notes.write("connection %d ended", 999)
    told, last = (record.getMessage() for record in caplog.records)
    assert told.startswith("300 more lines")
    assert last == "connection 999 ended"
