"""Counters of a listener, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    connections_open: int = 0
    connections_total: int = 0
    connections_refused: int = 0
    links_open: int = 0
    links_total: int = 0
    events_in: int = 0
    bytes_in: int = 0
    events_turned_down: int = 0  # of events_in: rejected, released or unknown
    events_out: int = 0
    bytes_out: int = 0
