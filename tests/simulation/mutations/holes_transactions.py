"""Mutations of transactions: of coordinators, of partitions that take part, of those who write. What they are for:
catalogue.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock
from weakref import WeakSet

import msgspec

from cluster.rpc.grpc_calls import read_client
from holdfast.amqp import Rejected
from node.client_transactions.transaction import HeldTransaction
from node.client_transactions.transactional_producer import TransactionalProducer
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.outgoing.partition_cursor import PartitionCursor
from node.partition.api import Failed
from node.partition.transactions.transaction_queries import WriteMarker
from node.partition.transactions.transaction_state import OpenTransaction, TransactionTable
from node.replica_manager import NodeSightings
from node.transaction_coordinator import coordinator_replica
from node.transaction_coordinator.coordinator_commands import AddPartitions, EndTransaction, NodeStart
from node.transaction_coordinator.coordinator_queries import NoteAndEnd
from node.transaction_coordinator.coordinator_replica import CoordinatorReplica
from node.transaction_coordinator.dead_nodes import GoneNodes
from node.transaction_coordinator.marker_sender import MarkerSender
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transitions import DECIDED, TransactionState

# ---------------------------------------------------------------- coordinators


@contextlib.contextmanager
def markers_before_the_decision() -> Iterator[None]:
    """Partitions are told of a commit while it is still being proposed."""
    propose = CoordinatorReplica._propose

    async def early(self: CoordinatorReplica, command: Any) -> Any:
        one = self._machine.get(getattr(command, "transactional_id", ""))
        if (
            isinstance(command, EndTransaction)
            and command.commit
            and one is not None
            and one.state is TransactionState.ONGOING
        ):
            marker = WriteMarker(command.producer_id, command.epoch, True, self.group.term)
            _told.update(asyncio.ensure_future(self._markers._ask(group, marker)) for group in one.groups)
        return await propose(self, command)

    with mock.patch.object(CoordinatorReplica, "_propose", early):
        yield


_told: WeakSet[asyncio.Future[Any]] = WeakSet()


@contextlib.contextmanager
def complete_after_the_first_marker() -> Iterator[None]:
    async def send_all(self: MarkerSender, name: str, groups: tuple[int, ...], question: WriteMarker) -> None:
        await asyncio.wait(
            [asyncio.ensure_future(self._send_one(group, question)) for group in groups],
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._complete(name, (question.producer_id, question.epoch))

    with mock.patch.object(MarkerSender, "_send_all", send_all):
        yield


@contextlib.contextmanager
def markers_are_sent_once() -> Iterator[None]:
    """Whether they arrive or not."""

    async def send_one(self: MarkerSender, group: int, question: WriteMarker) -> None:
        await self._ask(group, question)

    with mock.patch.object(MarkerSender, "_send_one", send_one):
        yield


@contextlib.contextmanager
def outcomes_are_not_confirmed() -> Iterator[None]:
    """A coordinator that does not lead any more answers what it knows."""

    async def believed(_: object) -> bool:
        return True

    with mock.patch.object(coordinator_replica, "confirm_leadership", believed):
        yield


@contextlib.contextmanager
def undecided_is_aborted() -> Iterator[None]:
    """What is not decided is told as aborted."""
    outcome = CoordinatorMachine.outcome

    def told(self: CoordinatorMachine, producer_id: int, epoch: int) -> bool:
        return bool(outcome(self, producer_id, epoch))

    with mock.patch.object(CoordinatorMachine, "outcome", told):
        yield


@contextlib.contextmanager
def the_epoch_stays_after_an_end() -> Iterator[None]:
    complete = CoordinatorMachine._complete

    def stay(self: CoordinatorMachine, command: Any) -> Any:
        one = self._ids.get(command.transactional_id)
        pair = None if one is None else one.pair
        result = complete(self, command)
        if one is not None and pair is not None:
            one.producer_id, one.epoch = pair
        return result

    with mock.patch.object(CoordinatorMachine, "_complete", stay):
        yield


def a_new_holder_has_the_epoch_of_the_old_one() -> AbstractContextManager[Any]:
    return mock.patch.object(CoordinatorMachine, "_next_epoch", return_value=None)


@contextlib.contextmanager
def epochs_begin_again() -> Iterator[None]:
    """Where they are used up, and under the same producer id."""
    next_epoch = CoordinatorMachine._next_epoch

    def again(self: CoordinatorMachine, one: Any) -> None:
        producer_id = one.producer_id
        next_epoch(self, one)
        one.producer_id = producer_id

    with mock.patch.object(CoordinatorMachine, "_next_epoch", again):
        yield


@contextlib.contextmanager
def decisions_are_overruled() -> Iterator[None]:
    end = CoordinatorMachine._end

    def overrule(self: CoordinatorMachine, command: Any) -> Any:
        one = self._ids.get(command.transactional_id)
        if one is not None and one.pair == (command.producer_id, command.epoch) and one.state in DECIDED:
            one.state = TransactionState.ONGOING
        return end(self, command)

    with mock.patch.object(CoordinatorMachine, "_end", overrule):
        yield


@contextlib.contextmanager
def decisions_are_not_in_checkpoints() -> Iterator[None]:
    """A coordinator that starts again knows of no transaction that is under way."""
    restore = CoordinatorMachine.restore

    def forget(self: CoordinatorMachine, data: bytes | None) -> None:
        restore(self, data)
        for one in self._under_way.values():
            one.state, one.groups = TransactionState.EMPTY, []
        self._under_way.clear()

    with mock.patch.object(CoordinatorMachine, "restore", forget):
        yield


@contextlib.contextmanager
def nobody_is_gone() -> Iterator[None]:
    """Transactions of a dead node wait until their time is over."""

    async def among(*_: object) -> set[NodeStart]:
        return set()

    with mock.patch.object(GoneNodes, "among", among):
        yield


def later_starts_are_no_news() -> AbstractContextManager[Any]:
    """A node that is started again has those open for good that the start before had."""
    return mock.patch.object(NodeSightings, "is_succeeded", return_value=False)


# ---------------------------------------------------------------- partitions


def readers_pass_what_is_open() -> AbstractContextManager[Any]:
    """The last stable offset is the end of the log."""
    return mock.patch.object(TransactionTable, "stable_offset", lambda _, next_offset: next_offset)


def _restoring(**lost: Any) -> AbstractContextManager[Any]:
    row = TransactionTable.row
    return mock.patch.object(TransactionTable, "row", lambda self: msgspec.structs.replace(row(self), **lost))


def aborted_not_in_checkpoints() -> AbstractContextManager[Any]:
    return _restoring(aborted=b"")


def open_not_in_checkpoints() -> AbstractContextManager[Any]:
    return _restoring(open=[])


def ended_not_in_checkpoints() -> AbstractContextManager[Any]:
    return _restoring(ended=[])


@contextlib.contextmanager
def begun_without_events_not_in_checkpoints() -> Iterator[None]:
    """A checkpoint between a begin and the first event loses the begin."""
    row = TransactionTable.row

    def written(self: TransactionTable) -> Any:
        whole = row(self)
        return msgspec.structs.replace(whole, open=[one for one in whole.open if one.first_offset >= 0])

    with mock.patch.object(TransactionTable, "row", written):
        yield


@contextlib.contextmanager
def a_late_begin_opens() -> Iterator[None]:
    begin = TransactionTable.begin

    def anyhow(self: TransactionTable, *arguments: Any) -> Any:
        ended, self._ended = self._ended, {}
        result = begin(self, *arguments)
        self._ended = ended
        return result

    with mock.patch.object(TransactionTable, "begin", anyhow):
        yield


@contextlib.contextmanager
def markers_end_whatever_is_open() -> Iterator[None]:
    """One that comes again ends the next transaction."""
    end = TransactionTable.end

    def any_epoch(self: TransactionTable, marker: Any, next_offset: int) -> Any:
        found = self._open.get(marker.producer_id)
        if found is not None and found.producer.epoch > marker.epoch:
            del self._open[marker.producer_id]
            self._last_stable.ended(found.key)
        return end(self, marker, next_offset)

    with mock.patch.object(TransactionTable, "end", any_epoch):
        yield


@contextlib.contextmanager
def events_find_the_next_transaction() -> Iterator[None]:
    def get(self: TransactionTable, producer_id: int, epoch: int) -> OpenTransaction | None:
        return self._open.get(producer_id)

    with mock.patch.object(TransactionTable, "get", get):
        yield


def takeovers_doom_nothing() -> AbstractContextManager[Any]:
    return mock.patch.object(TransactionTable, "doom", return_value=None)


def claims_do_not_wait_for_decisions() -> AbstractContextManager[Any]:
    return mock.patch.object(TransactionTable, "prepared_for", return_value=None)


@contextlib.contextmanager
def positions_are_staged_without_a_word() -> Iterator[None]:
    """A refused position is not heeded: the transaction commits."""
    stage = HeldTransaction._stage

    async def unheeding(self: HeldTransaction, group: int, wanted: Any) -> None:
        before = self.rollback_only
        await stage(self, group, wanted)
        self.rollback_only = before

    with mock.patch.object(HeldTransaction, "_stage", unheeding):
        yield


# ---------------------------------------------------------------- writers


def lost_events_are_committed() -> AbstractContextManager[Any]:
    """What could not be written does not make the transaction roll back."""
    return mock.patch.object(HeldTransaction, "must_roll_back", return_value=None)


@contextlib.contextmanager
def coordinators_are_not_told_of_partitions() -> Iterator[None]:
    """Only of the first."""
    add = HeldTransaction._add

    async def first(self: HeldTransaction, group: int) -> Failed | None:
        return await add(self, group) if len(self._joined) == 1 else None

    with mock.patch.object(HeldTransaction, "_add", first):
        yield


@contextlib.contextmanager
def ends_stand_before_their_notes() -> Iterator[None]:
    """What is asked for at once is proposed the wrong way round."""

    async def turned_round(self: CoordinatorReplica, question: NoteAndEnd) -> Any:
        name, pair = question.transactional_id, (question.producer_id, question.epoch)
        end = asyncio.ensure_future(self._end(EndTransaction(name, *pair, question.commit)))
        await asyncio.sleep(0)
        self._tell(AddPartitions(name, *pair, question.groups, self._now_ms()))
        return await end

    with mock.patch.object(CoordinatorReplica, "_note_and_end", turned_round):
        yield


@contextlib.contextmanager
def ends_are_asked_for_without_notes() -> Iterator[None]:
    """Of all partitions but one."""
    at_once = TransactionalProducer._at_once

    async def unnoted(self: TransactionalProducer, question: Any, pair: Any, groups: Any) -> Any:
        return await at_once(self, question, pair, groups[:1])

    with mock.patch.object(TransactionalProducer, "_at_once", unnoted):
        yield


# ---------------------------------------------------------------- links


@contextlib.contextmanager
def commits_do_not_wait_for_answers() -> Iterator[None]:
    """A commit is asked for at once, whatever becomes of the messages before it."""
    none = property(lambda self: 0, lambda self, count: None)
    with mock.patch.object(ClientTransaction, "_unanswered", none, create=True):
        yield


@contextlib.contextmanager
def refused_events_are_committed_around() -> Iterator[None]:
    """A refused message makes nothing roll back, unless it is the first of its partition."""
    not_stored = ClientTransaction._not_stored

    def passed_over(self: ClientTransaction, deliveries: Any, why: Failed) -> None:
        if deliveries.begins:
            not_stored(self, deliveries, why)
        else:
            self._answer(deliveries, Rejected(errors.append_refused(why, deliveries.log)))

    with mock.patch.object(ClientTransaction, "_not_stored", passed_over):
        yield


@contextlib.contextmanager
def what_a_filter_holds_is_forgotten() -> Iterator[None]:
    """When the reader is replaced."""
    with mock.patch.object(PartitionCursor, "_drop_held", lambda self: self._held.clear()):
        yield


@contextlib.contextmanager
def gateways_read_what_is_open() -> Iterator[None]:
    encode_open = read_client.encode_open

    def uncommitted(start: Any, types: Any, group: int, window_bytes: int, owner: Any, _: bool) -> Any:
        return encode_open(start, types, group, window_bytes, owner, True)

    with mock.patch.object(read_client, "encode_open", uncommitted):
        yield
