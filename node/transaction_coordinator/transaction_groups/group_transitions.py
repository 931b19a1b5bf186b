"""The states of a group and of a member, and their transitions.

A group that is not there is CLOSED: its batch was committed, or it was aborted and may be opened again. A member that
is ABORTED or COMMITTED may still be waiting for its markers; its transaction
(`node.transaction_coordinator.transitions`) knows.
"""

from __future__ import annotations

from enum import IntEnum

from node.transaction_coordinator.transitions import IllegalTransition


class GroupState(IntEnum):
    CLOSED = 0
    OPEN = 1
    DECIDING = 2  # decided: its winners commit, whatever happens from now on


class MemberFate(IntEnum):
    """State of a member."""

    JOINED = 0  # it writes, under a lease
    PREPARED = 1  # it has written everything, and waits for the group's decision
    COMMITTED = 2
    ABORTED = 3


_GROUP: frozenset[tuple[GroupState, GroupState]] = frozenset(
    {
        (GroupState.CLOSED, GroupState.OPEN),
        (GroupState.OPEN, GroupState.DECIDING),
        (GroupState.OPEN, GroupState.CLOSED),  # aborted
        (GroupState.DECIDING, GroupState.CLOSED),  # committed, and every marker is where it belongs
    }
)

_FATE: frozenset[tuple[MemberFate, MemberFate]] = frozenset(
    {
        (MemberFate.JOINED, MemberFate.PREPARED),
        (MemberFate.JOINED, MemberFate.ABORTED),
        (MemberFate.PREPARED, MemberFate.ABORTED),
        (MemberFate.PREPARED, MemberFate.COMMITTED),
    }
)


def check_group(before: GroupState, after: GroupState) -> GroupState:
    """Return `after`. Raises IllegalTransition."""
    if (before, after) not in _GROUP:
        raise IllegalTransition(f"a group that is {before.name} cannot be {after.name}")
    return after


def check_fate(before: MemberFate, after: MemberFate) -> MemberFate:
    """Return `after`. Raises IllegalTransition."""
    if (before, after) not in _FATE:
        raise IllegalTransition(f"a member that is {before.name} cannot be {after.name}")
    return after
