"""Leases of group members, as the leader of a coordinator measures them.

The problem: a client may hang with its connection open, and committed readers wait for what it has begun. The rules:
 - only news of the client renews: the node that holds a member's link says so when it has heard from the client;
 - a renewal is no entry of the log, so a new leader knows of none, and gives each member a whole new lease;
 - while this leader itself stood still, it could hear no client: such a time counts for no member.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.transaction_coordinator.transaction_groups.group_state import MemberRecord

LONGEST_GAP_S = 1.5
"""Longest time between two looks that counts; they are meant to come twice a second. Any more was this leader's own
silence."""


class Leases:
    def __init__(self) -> None:
        self._heard_s: dict[str, float] = {}
        self._renewed: set[str] = set()
        self._looked_s: float | None = None

    def renew(self, members: Iterable[str]) -> None:
        self._renewed.update(members)

    def over(self, leased: list[MemberRecord], now_s: float) -> list[MemberRecord]:
        """Return the members whose lease has ended. Call it twice a second."""
        gap_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        lost_s = max(0.0, gap_s - LONGEST_GAP_S)
        self._looked_s = now_s
        renewed, self._renewed = self._renewed, set()
        heard_s: dict[str, float] = {}
        for one in leased:
            before_s = self._heard_s.get(one.id)
            heard_s[one.id] = now_s if before_s is None or one.id in renewed else before_s + lost_s
        self._heard_s = heard_s
        return [one for one in leased if now_s - heard_s[one.id] > one.lease_ms / 1000]

    def clear(self) -> None:
        """Forget everything: this node does not lead any more."""
        self._heard_s, self._renewed, self._looked_s = {}, set(), None
