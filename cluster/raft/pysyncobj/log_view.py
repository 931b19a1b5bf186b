"""Entries and runs of entries as pysyncobj reads them, without reading any.

The problem: the library slices the whole tail of its log wherever it needs one term (L10 in
docs/internals/pysyncobj.md). The rule: a slice costs nothing, a term costs a search in memory, and only asking for a
command reads it.

Rejected: lists of tuples from the cache. The tail is megabytes, and what the library wants of it is two
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, overload


class Log(Protocol):
    """Log that the view reads; implemented by `LogStore`."""

    def data_at(self, index: int) -> bytes: ...
    def term_at(self, index: int) -> int: ...


class LazyEntry:
    """One entry as the library sees it: (command, index, term); the command is read only when asked for."""

    __slots__ = ("_index", "_log_store")

    def __init__(self, log_store: Log, index: int) -> None:
        self._log_store = log_store
        self._index = index

    def __getitem__(self, field: int) -> Any:
        if field == 0:
            return self._log_store.data_at(self._index)
        if field == 1:
            return self._index
        if field == 2:
            return self._log_store.term_at(self._index)
        raise IndexError(field)


class LazySlice:
    """Entries start <= index < end without reading any (L10)."""

    __slots__ = ("_end", "_log_store", "_start")

    def __init__(self, log_store: Log, start: int, end: int) -> None:
        self._log_store = log_store
        self._start = start
        self._end = max(start, end)

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[LazyEntry]:
        return (LazyEntry(self._log_store, index) for index in range(self._start, self._end))

    @overload
    def __getitem__(self, item: int) -> LazyEntry: ...
    @overload
    def __getitem__(self, item: slice) -> LazySlice: ...
    def __getitem__(self, item: int | slice) -> LazyEntry | LazySlice:
        chosen = range(self._start, self._end)[item]
        if isinstance(chosen, int):
            return LazyEntry(self._log_store, chosen)
        return LazySlice(self._log_store, chosen.start, chosen.stop)
