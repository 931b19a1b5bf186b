"""Proposals of this node that have no outcome yet.

The problem: a node can lead, lose its tail, and lead again, so several of its proposals may wait at one
index, and some at indexes its log no longer has. The rules: each gets exactly one outcome; `Committed` when
it is the entry applied; `Discarded` only when an applied entry proves that it can be in nobody's future;
`Unknown` when waiting longer would help nobody.

Rejected: deciding by what the own log holds. Another member may still hold a proposal that was truncated
here, and win.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from cluster.raft.proposal_outcomes import (
    Committed,
    Discarded,
    Outcome,
    Unknown,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Proposal:
    index: int
    term: int
    size: int
    done: Callable[[Outcome], None]


class Proposals:
    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: dict[int, list[_Proposal]] = {}
        self._applied_term = 0
        self.bytes = 0
        self.give_up_at = inf

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: int, term: int, size: int, done: Callable[[Outcome], None]) -> None:
        self._waiting.setdefault(index, []).append(_Proposal(index, term, size, done))
        self.bytes += size

    def has_older(self, than_term: int) -> bool:
        return any(proposal.term < than_term for waiting in self._waiting.values() for proposal in waiting)

    def give_up_later(self, at: float) -> None:
        """Note that leadership is lost; a proposal without outcome by then gets `Unknown`."""
        if self._waiting:
            self.give_up_at = at

    def give_up(self, terms_before: int) -> None:
        self.give_up_at = inf
        self._end_older(terms_before, Unknown)

    def applied(self, index: int, term: int, result: object) -> None:
        """Decide what entry (index, term) proves in or out: terms never decrease along a log, so an older
        proposal at or after `index` is in nobody's future."""
        for proposal in self._waiting.pop(index, ()):
            if proposal.term == term:
                self._answer(proposal, Committed(index, term, result))
            else:
                self._answer(proposal, Discarded(index, proposal.term))
        if self._waiting and term > self._applied_term:
            self._end_older(term, Discarded, from_index=index)
        self._applied_term = term

    def jumped_over(self, index: int) -> None:
        """Answer proposals whose entries a snapshot has replaced: what became of them is not known (L8)."""
        for at in sorted(at for at in self._waiting if at <= index):
            for proposal in self._waiting.pop(at):
                self._answer(proposal, Unknown(proposal.index, proposal.term))

    def _end_older(self, than_term: int, outcome: type[Discarded | Unknown], from_index: int = 0) -> None:
        for index in sorted(index for index in self._waiting if index >= from_index):
            ended = [proposal for proposal in self._waiting[index] if proposal.term < than_term]
            kept = [proposal for proposal in self._waiting.pop(index) if proposal.term >= than_term]
            if kept:
                self._waiting[index] = kept
            for proposal in ended:
                self._answer(proposal, outcome(proposal.index, proposal.term))

    def _answer(self, proposal: _Proposal, outcome: Outcome) -> None:
        self.bytes -= proposal.size
        try:
            proposal.done(outcome)
        except Exception:  # one caller's defect must not stop replication for all others
            log.exception("%s: the callback of entry %d failed", self._name, proposal.index)
