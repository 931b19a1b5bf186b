"""Memory of the latest start of each peer's data directory, and of processes that came beside one.

The rule: what is remembered is on this node's disk before the peer is let in (`remember`, given by the owner of the
network), so that it outlives this process; `cluster/stale_copy_detection.py` says what it is compared for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cluster.rpc.rpc_pb2 import Hello
from cluster.stale_copy_detection import NEVER_STARTED, DirectoryStart, KnownStart, copy_fault


class PeerBootCounters(Protocol):
    def latest(self, node: int, incarnation: int) -> KnownStart:
        """Latest start of that directory that this node has heard of."""

    async def remember(self, node: int, incarnation: int, start: KnownStart) -> None:
        """Remember a start: `latest` tells it at once; it is on disk when this returns."""


class ProcessMemory:
    """Start memory of a network without a disk."""

    def __init__(self) -> None:
        self._starts: dict[tuple[int, int], KnownStart] = {}

    def latest(self, node: int, incarnation: int) -> KnownStart:
        return self._starts.get((node, incarnation), NEVER_STARTED)

    async def remember(self, node: int, incarnation: int, start: KnownStart) -> None:
        self._starts[node, incarnation] = start


def start_of(hello: Hello) -> DirectoryStart:
    return DirectoryStart(hello.boot, tuple(hello.marks))


def nothing_registered(_: int) -> KnownStart:
    return NEVER_STARTED


class Starts:
    """Judges the starts that Hellos tell of."""

    def __init__(
        self, memory: PeerBootCounters, registered: Callable[[int], int], registered_start: Callable[[int], KnownStart]
    ) -> None:
        """`registered`, `registered_start`: the incarnation of a node, and the latest start of that, which the metadata
        have."""
        self._memory = memory
        self._registered = registered
        self._registered_start = registered_start
        self._heard: dict[int, KnownStart] = {}  # by node: whose stream stands
        self._beside: dict[int, set[int]] = {}  # by node: marks of processes that came while another one spoke on

    def fault(self, node: int, incarnation: int, start: DirectoryStart) -> str | None:
        """Reason why this is not the latest start of the directory; None: it may be."""
        if not start.boot or not incarnation:
            return None
        if self._beside.get(node, set()) & set(start.marks):
            return "another process on the same data went on speaking beside it: it works on a copy"
        return copy_fault(start, self._memory.latest(node, incarnation)) or (
            copy_fault(start, self._registered_start(node)) if self._registered(node) == incarnation else None
        )

    async def welcome(self, node: int, incarnation: int, start: DirectoryStart) -> None:
        if start.boot and incarnation:
            await self._memory.remember(node, incarnation, start.known)

    # -- two processes at once

    def is_beside(self, node: int, start: DirectoryStart) -> bool:
        """True if another process of the node still speaks: an earlier one whose end was not noticed yet, or the
        original."""
        heard = self._heard.get(node, NEVER_STARTED)
        return bool(heard.boot and start.boot) and heard != start.known

    def heard(self, node: int, start: DirectoryStart) -> None:
        self._heard[node] = start.known

    def silent(self, node: int) -> None:
        self._heard.pop(node, None)

    def went_on_beside(self, node: int, mark: int) -> None:
        """The earlier process spoke long after the one with this mark had come. A directory has a lock: so the newcomer
        works on a copy."""
        self._beside.setdefault(node, set()).add(mark)
