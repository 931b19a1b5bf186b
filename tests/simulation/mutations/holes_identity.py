"""Mutations of how older copies of a node's data are told from the original. What they are for: catalogue.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from cluster.raft.elections.election import Election
from cluster.rpc import peer_boot_counters
from cluster.stale_copy_detection import DirectoryStart, KnownStart, copy_fault
from node.startup.stored_boot_counters import StoredStarts


@contextlib.contextmanager
def starts_not_compared() -> Iterator[None]:
    """Whoever has the incarnation is let in."""
    with mock.patch.object(peer_boot_counters, "copy_fault", return_value=None):
        yield


@contextlib.contextmanager
def starts_without_marks() -> Iterator[None]:
    """A copy that is started often enough overtakes the original."""

    def counted(start: DirectoryStart, known: KnownStart) -> str | None:
        return copy_fault(DirectoryStart(start.boot), KnownStart(known.boot))

    with mock.patch.object(peer_boot_counters, "copy_fault", counted):
        yield


@contextlib.contextmanager
def starts_not_synced() -> Iterator[None]:
    """A peer lets a start in, and may forget it with its power."""

    async def written(starts: StoredStarts, node: int, incarnation: int, start: KnownStart) -> None:
        row = (incarnation, start)
        starts._durable[node] = row
        await remember(starts, node, incarnation, start)

    remember = StoredStarts.remember
    with mock.patch.object(StoredStarts, "remember", written):
        yield


@contextlib.contextmanager
def starts_remembered_in_memory_only() -> Iterator[None]:
    """A peer knows of a start as long as its process lives."""

    async def told(starts: StoredStarts, node: int, incarnation: int, start: KnownStart) -> None:
        starts._rows[node] = starts._durable[node] = (incarnation, start)

    with mock.patch.object(StoredStarts, "remember", told):
        yield


@contextlib.contextmanager
def lonely_members_lead_at_once() -> Iterator[None]:
    """A group without other members is led by a process that no other node has let in."""

    def waits_for_nobody(election: Election, now: float, *, eager: bool, new: bool, let_in: bool) -> None:
        first_wait(election, now, eager=eager, new=new, let_in=True)

    first_wait = Election.first_wait
    with mock.patch.object(Election, "first_wait", waits_for_nobody):
        yield
