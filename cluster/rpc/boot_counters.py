"""Which start of a node's data directory is the latest, as far as is known here.

The problem: an older image of a directory, or a clone of it, has the incarnation of the original, and votes as if it
remembered what it never had. The rules: every start of a directory counts one up, on its disk before it is told to
anybody, and every process draws a number of its own (its life). Who comes with a smaller count than the latest that was
let in or registered is an older copy. Who comes with the same count and another life is the same start twice. Who comes
with a greater count while the earlier process still speaks is told to wait; if the earlier one goes on speaking, there
are two, and since a directory has a lock, the newcomer works on a copy: its life is refused for as long as this process
remembers. What is known outlives this process by the registrations in the metadata.

What a count cannot tell: an image of the latest start that is put back once that process has ended. The next start
counts on from there, as after a crash. If it lacks what it had acknowledged in the present term its leader finds out
(`cluster/raft/replication/step.py`); nobody can know of the rest. Never start an image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Start(NamedTuple):
    boot: int = 0  # 0: not told, not compared
    life: int = 0


UNKNOWN = Start()


class Starts:
    def __init__(self, registered: Callable[[int], tuple[int, int]] = lambda _: UNKNOWN) -> None:
        """`registered`: (boot, life) of a node, as the metadata have it."""
        self._registered = registered
        self._welcomed: dict[int, tuple[int, Start]] = {}  # by node: incarnation and start
        self._copies: set[tuple[int, int]] = set()  # node and life

    def latest(self, node: int, incarnation: int) -> Start:
        """Of that directory; UNKNOWN if none was heard of."""
        registered = Start(*self._registered(node))
        welcomed_as, welcomed = self._welcomed.get(node, (0, UNKNOWN))
        return welcomed if welcomed_as == incarnation and welcomed.boot >= registered.boot else registered

    def welcomed(self, node: int, incarnation: int, start: Start) -> None:
        self._welcomed[node] = (incarnation, start)

    def is_a_copy(self, node: int, start: Start) -> None:
        """Another process on the same data was heard beside it."""
        self._copies.add((node, start.life))

    def fault(self, node: int, incarnation: int, start: Start) -> str | None:
        """Why this is not the latest start of the directory; None: it may be."""
        if not start.boot:
            return None
        latest = self.latest(node, incarnation)
        if (node, start.life) in self._copies:
            return "another process on the same data was heard while this one was there: one of them works on a copy"
        if start.boot < latest.boot:
            return f"this is start {start.boot} of its data, and start {latest.boot} was here: it is an older copy"
        if start.boot == latest.boot and start.life != latest.life:
            return f"another process has made the same start ({start.boot}) of its data: one of them works on a copy"
        return None
