"""State of a coordinator: its transactional ids, and its checkpoint. The rules are in `state_machine.py`."""

from __future__ import annotations

import msgspec

from cluster.versions import Layouts
from node.transaction_coordinator.coordinator_commands import How, LastEnd, NodeStart
from node.transaction_coordinator.transaction_groups.group_state_machine import WriterRecord
from node.transaction_coordinator.transitions import TransactionState

LAYOUT = 1
LAYOUTS = Layouts({14: LAYOUT})

NEVER = -1


class TransactionalId(msgspec.Struct, array_like=True):
    """Row of a transactional id. Fields are only ever added at the end."""

    name: str
    producer_id: int
    epoch: int  # of the transaction under way, or of the next one
    holder: str
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    groups: list[int] = []  # partitions of the transaction under way, in the order in which they were added
    started_ms: int = NEVER  # in lived time, as `touched_ms`
    touched_ms: int = 0
    how: How = "client"  # of the end that is decided
    last: LastEnd | None = None
    fresh: bool = True  # not used since it was registered
    registered_since: bool = False  # since the end of `last`: the present pair is not for the holder of that one
    before: LastEnd | None = None  # the last end when another holder came: the earlier one may not have heard of it
    writer: str = ""  # writer of the group that it is a member of; "": none
    at: NodeStart | None = None  # start of the node whose transaction manager holds it
    former: str = ""  # the earlier holder: a late attempt of its attach takes nothing from its successor

    @property
    def pair(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    @property
    def deadline_ms(self) -> int:
        return self.started_ms + self.timeout_ms

    @property
    def last_end(self) -> str:
        """The last end as a phrase for lists and error texts; "": there was none."""
        return "" if self.last is None else how_it_ended(self.name, self.last)


class CoordinatorState(msgspec.Struct, array_like=True):
    """A coordinator's checkpoint. Fields are only ever added at the end."""

    layout: int = LAYOUT
    applied_index: int = 0
    stamped_ms: int = 0  # the time in the last entry
    lived_ms: int = 0  # time that passed from entry to entry: expiry goes by it
    serial: int = 0  # producer ids given out
    ids: list[TransactionalId] = []  # by name; filled for a checkpoint only
    writers: list[WriterRecord] = []  # of groups, likewise
    spare: list[tuple[int, int]] = []  # (producer id, epoch) of members to come


def how_it_ended(name: str, last: LastEnd) -> str:
    what = "was committed" if last.committed else "was aborted"
    why = {
        "timeout": ", since its time was over",
        "operator": " by an operator",
        "node": ", since the node that its client was connected to was gone",
        "lease": ", since its client was silent for as long as its lease",
        "group": ", since its group was committed without it",
    }.get(last.how, "")
    return f"the transaction of producer {last.producer_id}, epoch {last.epoch}, of {name!r} {what}{why}"
