"""What must hold at every moment of a schedule, judged from outside by one who sees all nodes.

* Election safety: at most one leader per term.
* Committed entries never change: whatever index a node commits or applies, every node that ever does so sees
  the same term and data there.
* Leader completeness: whoever becomes leader holds every entry committed before.
* Honest outcomes: an entry answered with Committed is committed at that index with that term; one answered
  with Discarded is nowhere; nobody is answered twice.
* State machines agree: a running digest over applied entries is the same on all nodes at the same index, also
  after restarts.

A violation is an exception at the step that causes it, so the trace ends where the damage was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Violation(Exception):
    """An invariant does not hold."""


class Checker:
    """Judges one group."""

    def __init__(self) -> None:
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.leaders: dict[int, int] = {}
        self.digests: dict[int, bytes] = {}
        self.acknowledged: dict[int, tuple[int, bytes]] = {}
        self.discarded: set[bytes] = set()
        self.unanswered: dict[bytes, int] = {}
        self.highest = 0
        self.unknown = 0

    def leads(self, node: int, term: int, term_at: Callable[[int], int | None], base: int) -> None:
        """`node` is leader of `term`; called when it became so."""
        other = self.leaders.setdefault(term, node)
        if other != node:
            raise Violation(f"nodes {other} and {node} both lead term {term}")
        for index, (entry_term, _) in self.committed.items():
            if index > base and entry_term < term and term_at(index) != entry_term:
                raise Violation(
                    f"node {node} leads term {term} without committed entry {index} of term {entry_term}; "
                    f"it has term {term_at(index)} there"
                )

    def commits(self, node: int, index: int, term: int, data: bytes) -> None:
        known = self.committed.setdefault(index, (term, data))
        if known != (term, data):
            raise Violation(
                f"node {node} commits {data!r} of term {term} at index {index}, "
                f"where {known[1]!r} of term {known[0]} was committed"
            )
        self.highest = max(self.highest, index)

    def applies(self, node: int, index: int, term: int, data: bytes, digest: bytes) -> None:
        self.commits(node, index, term, data)
        known = self.digests.setdefault(index, digest)
        if known != digest:
            raise Violation(f"node {node} has another state than others after entry {index}")

    def proposed(self, node: int, data: bytes) -> None:
        self.unanswered[data] = node

    def answered(self, data: bytes, kind: str, index: int, term: int) -> None:
        if data not in self.unanswered:
            raise Violation(f"proposal {data!r} was answered twice, the second time with {kind}")
        del self.unanswered[data]
        if kind == "Committed":
            self.acknowledged[index] = (term, data)
            if self.committed.get(index) != (term, data):
                raise Violation(f"{data!r} was acknowledged at {index}/{term}, there is {self.committed.get(index)}")
        elif kind == "Discarded":
            self.discarded.add(data)
        else:
            self.unknown += 1

    def finish(self, logs: Iterable[tuple[int, Callable[[int], tuple[int, bytes] | None], int]]) -> None:
        """All nodes are healthy again and have applied everything: nothing acknowledged may be missing
        anywhere."""
        for node, entry_at, base in logs:
            for index, wanted in self.acknowledged.items():
                if index > base and entry_at(index) != wanted:
                    raise Violation(f"acknowledged entry {index} {wanted} is {entry_at(index)} at node {node}")
        wrong = self.discarded & {data for _, data in self.committed.values()}
        if wrong:
            raise Violation(f"answered as discarded, but committed: {sorted(wrong)}")
