"""Groups and their state machines as they are, seen from outside: every step is told to the judge of the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cluster.raft import (
    DiskBatch,
    MultiRaft,
    Outcome,
    RaftGroup,
    RaftMessage,
    StateMachine,
    UnknownEntry,
)
from cluster.versions import NEWEST
from tests.simulation.checker import GroupJudge, Violation

if TYPE_CHECKING:
    from tests.simulation.world.nodes import SimNode


class Watched:
    """A state machine whose every step is told to the judge of its group."""

    def __init__(self, machine: StateMachine, judge: GroupJudge, node: int) -> None:
        self._machine = machine
        self._judge = judge
        self._node = node
        self._index = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def apply(self, index: int, term: int, data: bytes, batch: DiskBatch) -> object:
        self._judge.applies(self._node, index, term, data)
        try:
            result = self._machine.apply(index, term, data, batch)
        except UnknownEntry:
            raise  # the node is asked whether that may be
        except Exception as error:
            raise Violation(f"group {self._judge.group_id}: apply of entry {index} raised {error!r}") from error
        self._index = index
        self._judge.answers(self._node, index, result)
        return result

    def checkpoint(self, version: int) -> bytes:
        self._judge.checkpoint(self._node, self._index, state_of(self._machine))  # in one layout, whoever writes it
        return self._machine.checkpoint(version)

    def restore(self, index: int, data: bytes | None) -> None:
        self._machine.restore(index, data)
        self._index = self._judge.last_command(index)
        if data is not None:
            self._judge.checkpoint(self._node, self._index, state_of(self._machine))


class WatchedMultiRaft(MultiRaft):
    """Groups as they are, seen from outside: their machines, and what becomes of proposals."""

    node: SimNode

    def open_group(self, group_id: int, members: Any, machine: StateMachine, **options: Any) -> RaftGroup:
        node = self.node
        judge = node.schedule.judge(group_id, members)
        watched = Watched(node.changed_machine(machine), judge, node.id)
        group = super().open_group(group_id, members, watched, **options)
        take = group.propose

        def propose(data: bytes, done: Callable[[Outcome], None]) -> int:
            told, life = judge.proposed(node.id), node.life

            def answered(outcome: Outcome) -> None:
                if node.life != life:  # the node has ended in the middle of this turn
                    return
                told(type(outcome).__name__, outcome.index, outcome.term)
                done(outcome)

            try:
                index = take(data, answered)
            except BaseException:
                judge.refused()
                raise
            node.schedule.trace(f"{node.id} proposes {len(data)} bytes to group {group_id} at {index}/t{group.term}")
            return index

        group.propose = propose  # type: ignore[method-assign]
        node.observer.opened(group)
        return group


def state_of(machine: Any) -> bytes:
    """All of a state, the same whatever program has it."""
    whole = _whole_state(machine)
    return bytes(machine.checkpoint(NEWEST) if whole is None else whole())


def _whole_state(machine: Any) -> Callable[[], bytes] | None:
    """Of a machine of a later release (`mixed`), which writes more than one layout."""
    inner = getattr(machine, "_machine", machine)
    return getattr(inner, "whole_state", None)


def term_at(group: RaftGroup, index: int) -> int | None:
    if index > group.last_index:
        return -1
    return group.log_store.term_at(index) if index >= group.first_index else None


def describe(message: RaftMessage) -> str:
    body = message.WhichOneof("body") or "?"
    fields = getattr(message, body)
    shown = ", ".join(f"{field.name}={value}" for field, value in fields.ListFields() if field.name != "entries")
    return f"g{message.group} t{message.term} {body}({shown})"
