"""Refusals: the text that a refused caller gets, and the lines in this node's log.

Problem: the operator of a node that is refused needs the whole reason; a stranger learns from it the protocol's
version, the cluster's name and the nodes' ids, and so what to say next.
Rules never broken: all is told only to a caller whose certificate is the node's that it says it is. Everybody else
hears one sentence with a reference, whatever the reason, and this node's log has the reason under that reference. It is
drawn and not computed, since a digest of the reason could be guessed at. One reason has one line, as a misconfigured
node comes again for ever; lines are bounded, as a stranger can think of another reason each time.
Rejected: telling all to callers on loopback. Every process of every user of the host is one.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable

log = logging.getLogger("holdfast.rpc")

WHY = "the log of the node that was dialled says why, under "
"""Text that a stranger gets; a reference follows it."""

TOO_MANY = "(too many are refused now; the next attempt has one)"

REFERENCE_BYTES = 4
REMEMBERED = 100
"""Reasons whose line is in the log, for the callers that come again."""

LINES, LINES_WITHIN_S = 20, 10.0
"""Nodes of a cluster that are misconfigured have a handful; beyond it nobody reads them."""

REASON_CHARACTERS = 1000
"""Reasons quote what the caller says, which may be long."""


class Refusals:
    """Refusals of one node, with the references that it gave out."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._references: dict[str, str] = {}
        self._began_s = now_s()
        self._lines = 0

    def told(self, reason: str, peer: str, *, proven: bool = False) -> str:
        """Return the text for the caller at `peer`; `proven`: it is a node of this cluster, by its certificate."""
        reason = reason[:REASON_CHARACTERS]
        reference = self._references.get(reason) or self._noted(reason, peer)
        return reason if proven else f"{WHY}{reference}"

    def _noted(self, reason: str, peer: str) -> str:
        now_s = self._now_s()
        if now_s - self._began_s > LINES_WITHIN_S:
            if self._lines > LINES:
                log.error("refused: %d callers more, whose reasons are not told here", self._lines - LINES)
            self._began_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines > LINES:
            return TOO_MANY
        if len(self._references) >= REMEMBERED:
            self._references.clear()
        reference = self._references[reason] = secrets.token_hex(REFERENCE_BYTES)
        log.error("refused (%s): %s: %s", reference, peer, reason)
        return reference
