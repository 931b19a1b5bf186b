"""Partitions with hardly any room for what producers have sent: most of what comes again is known by number only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from node.partition.idempotence import producer_state
from node.partition.idempotence.producer_state import FORGOTTEN, Known, Producer, ProducerRefusal
from node.partition.raft_entry import EntryHead

BOUNDS = {"MEMORY_BYTES": 200, "LEAST_EVENTS": 2, "REMEMBERED_BATCHES": 1}


@contextlib.contextmanager
def scarce_memory(schedule: Any) -> Iterator[None]:
    """Counts the batches of which some record was known by its number only."""
    compare = producer_state.compare

    def counting(producer: Producer, batch: EntryHead) -> Known | ProducerRefusal:
        verdict = compare(producer, batch)
        places = verdict.places if isinstance(verdict, Known) else verdict.known.places
        schedule.done["place forgotten"] += any(place.base_offset == FORGOTTEN for place in places)
        return verdict

    with mock.patch.multiple(producer_state, compare=counting, **BOUNDS):
        yield
