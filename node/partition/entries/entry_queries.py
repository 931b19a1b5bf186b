"""Questions to a partition about the entries of its log, and their answers: plain data that crosses a network
unchanged.
"""

from __future__ import annotations

import msgspec


class AskFate(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Ask a later leader for the fate of the entry that a leader of `term` proposed at `index`
    (`unknown_outcome.py`)."""

    index: int
    term: int


class Fate(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Fate of an entry. `stored`: it is in the log; False: it is not, and never will be. None: it cannot be told any
    more, or (`pending`) not yet."""

    stored: bool | None
    pending: bool = False


class DumpEntries(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Ask for the entries of the log after index `after`; with an `offset`: from the one that holds this event on."""

    after: int
    limit: int
    offset: int = -1


class EntryRow(msgspec.Struct, frozen=True, array_like=True):
    """Line of a dump. `kind`: of command, or of marker; `damaged`, `unreadable`. The other fields are for record
    batches; -1: there is no value."""

    index: int
    term: int
    kind: str
    size: int
    base_offset: int = -1
    stored: int = 0  # of its records: the others were stored before
    count: int = 0
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    first_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    detail: str = ""


class EntryList(msgspec.Struct, frozen=True, array_like=True, tag=19):
    entries: list[EntryRow]
    first_index: int  # of the log
    last_index: int  # that is applied
