"""Deliberate faults of the state that partitions keep of producers, groups and transactions."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import msgspec

from node.partition.consumer_groups.group_state import Commit, GroupTable, Owned
from node.partition.idempotence.producer_init import Watches
from node.partition.idempotence.producer_state import ALL_NEW, Known, ProducerRefusal, ProducerTable
from node.partition.partition_replica import PartitionReplica
from node.partition.raft_entry import EntryHead
from node.partition.transactions.control_record import ControlType
from node.partition.transactions.transaction_state import TransactionTable

# ---------------------------------------------------------------- producers


def what_comes_again_is_stored_again() -> None:
    judge = ProducerTable.judge

    def all_new(self: ProducerTable, batch: EntryHead) -> Known | ProducerRefusal:
        verdict = judge(self, batch)
        return verdict if isinstance(verdict, ProducerRefusal) else ALL_NEW

    ProducerTable.judge = all_new  # type: ignore[method-assign]


def producers_are_forgotten_at_a_restart() -> None:
    """Write checkpoints without producers."""

    def none(self: ProducerTable) -> list[Any]:
        del self
        return []

    ProducerTable.rows = none  # type: ignore[method-assign]


def who_was_fenced_goes_on() -> None:
    """Let a fenced producer go on: do not end its link, and do not refuse its events."""
    Watches.tell = lambda self, fence: None  # type: ignore[method-assign]
    judge = ProducerTable.judge

    def take(self: ProducerTable, batch: EntryHead) -> Known | ProducerRefusal:
        verdict = judge(self, batch)
        return ALL_NEW if isinstance(verdict, ProducerRefusal) and verdict.code == "producer-stolen" else verdict

    ProducerTable.judge = take  # type: ignore[method-assign]


# ---------------------------------------------------------------- groups


def any_claim_commits() -> None:
    """Accept commits of a member whose claim was outbid."""
    commit = GroupTable._commit

    def take(self: GroupTable, command: Commit, clock_ms: int, next_offset: int) -> Any:
        row = self._rows.get(command.key)
        if row is not None and command.claim:
            command = msgspec.structs.replace(command, claim=row.claim)
        return commit(self, command, clock_ms, next_offset)

    GroupTable._commit = take  # type: ignore[method-assign]


def groups_begin_behind_where_they_stand() -> None:
    """Give a new owner a position that is one event too far."""
    claim = GroupTable._claim

    def further(self: GroupTable, *arguments: Any) -> Any:
        granted, ousted = claim(self, *arguments)
        if isinstance(granted, Owned) and granted.position is not None and granted.position >= 0:
            granted = msgspec.structs.replace(granted, position=granted.position + 1)
        return granted, ousted

    GroupTable._claim = further  # type: ignore[method-assign,assignment]


# ---------------------------------------------------------------- transactions


def open_transactions_are_visible() -> None:
    """Report the end of the log as the last stable offset."""
    TransactionTable.stable_offset = lambda self, next_offset: next_offset  # type: ignore[method-assign]


def the_last_stable_offset_is_one_too_far() -> None:
    stable = TransactionTable.stable_offset

    def further(self: TransactionTable, next_offset: int) -> int:
        return min(next_offset, stable(self, next_offset) + 1)

    TransactionTable.stable_offset = further  # type: ignore[method-assign]


def the_last_stable_offset_is_told_anyhow() -> None:
    """Report a last stable offset that is one too low, every other time; readers get the right events."""
    told = PartitionReplica.info_now
    counter = itertools.count()

    def wavering(self: PartitionReplica) -> Any:
        info = told(self)
        return dataclasses.replace(info, stable_offset=max(0, info.stable_offset - next(counter) % 2))

    PartitionReplica.info_now = wavering  # type: ignore[method-assign]


def aborted_events_are_visible() -> None:
    TransactionTable.is_aborted = lambda self, transaction, offset: False  # type: ignore[method-assign]


def markers_are_misread() -> None:
    """Take every other end of a transaction for a commit, whatever was decided."""
    end = TransactionTable.end

    def committed(self: TransactionTable, marker: Any, next_offset: int) -> Any:
        if marker.epoch % 2:
            marker = dataclasses.replace(marker, end=ControlType.COMMIT)
        return end(self, marker, next_offset)

    TransactionTable.end = committed  # type: ignore[method-assign]
