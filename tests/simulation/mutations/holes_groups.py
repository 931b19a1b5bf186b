"""Holes in transaction groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from node.client_transactions.transaction import HeldTransaction
from node.transaction_coordinator.state import TransactionalId
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transaction_groups.group_state import NONE_CLOSED, MemberRecord, WriterRecord
from node.transaction_coordinator.transaction_groups.group_state_machine import Writers


@contextlib.contextmanager
def last_batches_are_not_in_checkpoints() -> Iterator[None]:
    restore = Writers.restore

    def forget(self: Writers, rows: list[WriterRecord]) -> None:
        for one in rows:
            one.closed = NONE_CLOSED
        restore(self, rows)

    with mock.patch.object(Writers, "restore", forget):
        yield


@contextlib.contextmanager
def losers_live_on() -> Iterator[None]:
    """The decision ends the winners only."""
    end = Writers._end

    def winners_only(self: Writers, member: MemberRecord, *, commit: bool, how: Any) -> bool:
        return how != "group" and end(self, member, commit=commit, how=how)

    with mock.patch.object(Writers, "_end", winners_only):
        yield


@contextlib.contextmanager
def prepared_is_committed() -> Iterator[None]:
    """A member that is prepared does not wait for its group."""
    prepare = Writers._prepare

    def at_once(self: Writers, command: Any) -> Any:
        result = prepare(self, command)
        if self.member(command.member) is not None:
            self._transactions.end_member(command.member, commit=True, how="client")
        return result

    with mock.patch.object(Writers, "_prepare", at_once):
        yield


@contextlib.contextmanager
def runs_that_were_succeeded_go_on() -> Iterator[None]:
    begin = Writers._begin_run

    def forget(self: Writers, writer: WriterRecord, run: str) -> None:
        begin(self, writer, run)
        writer.earlier_runs = []

    with mock.patch.object(Writers, "_begin_run", forget):
        yield


@contextlib.contextmanager
def pairs_of_members_are_used_again() -> Iterator[None]:
    drop = CoordinatorMachine._drop

    def same(self: CoordinatorMachine, one: TransactionalId) -> None:
        drop(self, one)
        self.state.spare[:] = [
            pair if pair[0] != one.producer_id else (one.producer_id, one.epoch) for pair in self.state.spare
        ]

    with mock.patch.object(CoordinatorMachine, "_drop", same):
        yield


def lost_events_are_prepared() -> contextlib.AbstractContextManager[Any]:
    """What could not be written does not make the member roll back."""
    return mock.patch.object(HeldTransaction, "must_roll_back", return_value=None)
