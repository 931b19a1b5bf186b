"""Callers that a node lets in or refuses, as it tells the other nodes, which put the answers together.

The problem: a refusal is known only to the node that refused. A node that comes back with an older copy of its data may
meet one peer, which refuses it, and end for good before any other has seen it: to those it is merely down. The rule: a
node counts as refused if any node that answers has refused it, unless one of them lets it in now. A peer that the node
has not come to since (it was cut off from it, while the others let it in) remembers a refusal that no longer says
anything; and a stranger that calls under the id of a node that is well takes nothing from that one.

Rejected: refusals with their age, so that the latest word wins. It would tell more only of a node that came back, was
not seen by the one that had refused it before, and is down again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Callers(NamedTuple):
    """Callers of one node."""

    accepted: frozenset[int] = frozenset()
    """Nodes whose streams stand, the node itself among them."""
    refused: frozenset[int] = frozenset()
    """Nodes that were not let in with the data that they came with, and have not come with their own since."""


def refused_by_any(told: Iterable[Callers]) -> frozenset[int]:
    accepted: set[int] = set()
    refused: set[int] = set()
    for callers in told:
        accepted |= callers.accepted
        refused |= callers.refused
    return frozenset(refused - accepted)
