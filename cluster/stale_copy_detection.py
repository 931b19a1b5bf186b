"""Starts of a node's data directory: which one is the latest, and which ones go on from it.

The problem: an older image of a directory that was put back, or a clone of a machine, has the incarnation of the
original, and votes as if it remembered what it never had. The rules: every start of a directory that speaks to others
is counted, and draws a *mark*; both are on its disk before anybody is told. A directory keeps the marks of its latest
starts, so that one can tell whether a start goes on from another or only stands beside it. Those that have heard of a
start of a directory (the peers, each on its own disk before it lets anybody in, and the metadata group) take no other
one that does not go on from it: neither a smaller count, nor an equal one with another mark, nor a greater one in whose
past the known mark is missing. The count is that of an incarnation: a directory that is made anew begins anew.

A start that failed before it spoke has told nobody anything and counts nothing: data that were repaired after it are as
good as they were.

What this cannot tell: an image of the latest start, put back after that process has ended. It goes on from that start,
as after a crash. Of what it lacks the leader finds out what it had acknowledged in the present term
(`cluster/raft/replication/step.py`); nobody can know of the rest. The same holds for a whole cluster that goes back to
one image: everything that could tell went back with it. Rejected: a count without marks. A copy that is started again
and again comes above the original's count in the end. Rejected: times in place of counts, since clocks lie.
"""

from __future__ import annotations

from typing import NamedTuple

STARTS_REMEMBERED = 64
"""Marks that a directory keeps and tells: 256 bytes. A node that was away for more starts goes by the count."""


class KnownStart(NamedTuple):
    """Latest start of a directory that a node or the metadata group has heard of."""

    boot: int = 0  # 0: of none
    mark: int = 0


NEVER_STARTED = KnownStart()


class DirectoryStart(NamedTuple):
    """A start, as the process that made it tells of it."""

    boot: int = 0  # how many there were, this one included; 0: not told, not compared
    marks: tuple[int, ...] = ()  # of the latest ones, its own last

    @property
    def known(self) -> KnownStart:
        return KnownStart(self.boot, self.marks[-1] if self.marks else 0)

    def mark_of(self, boot: int) -> int | None:
        """Mark of an earlier start, as this directory remembers it; None if that is too long ago."""
        back = self.boot - boot
        return self.marks[-1 - back] if 0 <= back < len(self.marks) else None


def copy_fault(start: DirectoryStart, known: KnownStart) -> str | None:
    """Reason why `start` is not `known`, and does not go on from it; None: it may be the latest."""
    if not start.boot or not known.boot:
        return None
    if start.boot < known.boot:
        return f"it makes start {start.boot} of its data, and start {known.boot} was here: it is an older copy"
    if start.mark_of(known.boot) not in (known.mark, None):
        return f"another process has made start {known.boot} of the same data: one of the two works on a copy"
    return None
