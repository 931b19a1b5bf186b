"""State of a coordinator about the writers of transaction groups. The rules are in `group_state_machine.py`."""

from __future__ import annotations

import msgspec

from node.transaction_coordinator.coordinator_commands import How
from node.transaction_coordinator.transaction_groups.group_transitions import GroupState, MemberFate

NONE_CLOSED = -1


class MemberRecord(msgspec.Struct, array_like=True):
    """Row of a member. Fields are only ever added at the end."""

    id: str
    producer_id: int
    epoch: int
    part: str
    attempt: str
    holder: str
    lease_ms: int
    joined_ms: int  # in lived time
    fate: MemberFate = MemberFate.JOINED
    how: How = "client"  # it was aborted

    @property
    def what(self) -> str:
        return f"{self.id} (part {self.part!r}, attempt {self.attempt!r})"


class GroupRecord(msgspec.Struct, array_like=True):
    batch: int
    run: str
    query: str
    timeout_ms: int
    opened_ms: int  # in lived time
    state: GroupState = GroupState.OPEN
    members: list[MemberRecord] = []  # in the order in which they joined
    pending: int = 0  # when decided: members that lack markers

    @property
    def deadline_ms(self) -> int:
        return self.opened_ms + self.timeout_ms


class AbortedGroup(msgspec.Struct, frozen=True, array_like=True):
    batch: int
    run: str
    how: How


class WriterRecord(msgspec.Struct, array_like=True):
    """Row of a writer. `run`: the newest."""

    name: str
    run: str
    closed: int = NONE_CLOSED
    query: str = ""  # of the batch that was closed last
    earlier_runs: list[str] = []
    group: GroupRecord | None = None
    aborted: AbortedGroup | None = None  # the last group that was aborted
    touched_ms: int = 0
    once: bool = False  # its name was drawn for one batch
