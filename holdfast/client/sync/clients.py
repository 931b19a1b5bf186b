"""Clients without an event loop, and the objects that they return; the asyncio classes describe each name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import holdfast.client as aio
from holdfast.client.errors import OwnershipLostError, TimeoutExpiredError
from holdfast.client.events import ReceivedEvent
from holdfast.client.produce import send_api
from holdfast.client.produce.delivery import DeliveryResult
from holdfast.client.sync.blocking_proxy import (
    Attribute,
    Block,
    SyncClient,
    Twin,
    blocking,
    ending,
    giving,
    iterating,
    like,
    reading,
)
from holdfast.client.transact import transaction
from holdfast.client.transact.transaction_manager import LastTransaction

P = ParamSpec("P")
S = TypeVar("S", bound=send_api.Sending)
T = TypeVar("T", bound=transaction.BaseTransaction)


class Delivery(Twin[aio.Delivery]):
    """The outcome of events that were sent; a thread can wait for it."""

    count: Attribute[int] = reading(aio.Delivery.count)
    failed: Attribute[int] = reading(aio.Delivery.failed)
    is_done: Attribute[bool] = reading(aio.Delivery.is_done)
    event: Attribute[aio.Event | None] = reading(aio.Delivery.event)
    error: Attribute[aio.HoldfastError | None] = reading(aio.Delivery.error)
    partition: Attribute[str | None] = reading(aio.Delivery.partition)
    offset: Attribute[int | None] = reading(aio.Delivery.offset)
    offset_text: Attribute[str | None] = reading(aio.Delivery.offset_text)
    sequence_number: Attribute[int | None] = reading(aio.Delivery.sequence_number)

    def result(self, timeout_s: float | None = None) -> DeliveryResult:
        """Wait for the outcome. Raises if some event was not stored, or may not be."""

        async def wait() -> DeliveryResult:
            return await self._inner

        if self._inner.is_done:  # also when the client is closed by now
            return self._inner.result()
        try:
            return self._thread.run(wait, timeout_s)
        except TimeoutError:
            what = "the event was" if self.count == 1 else f"the {self.count} events were"
            raise TimeoutExpiredError(f"{what} not confirmed within {timeout_s:g} s") from None


class _Sending(Twin[S]):
    """Sends events: a producer, a transaction of it, or a member of a transaction group."""

    send = giving(Delivery, blocking(send_api.Sending.send))
    send_nowait = giving(Delivery, blocking(send_api.Sending.send_nowait))
    send_many = giving(Delivery, blocking(send_api.Sending.send_many))
    send_batch = blocking(send_api.Sending.send_batch)
    send_and_confirm = blocking(send_api.Sending.send_and_confirm)


class _BaseTransaction(_Sending[T], Block[T]):
    """A transaction of a producer, or a member of a group."""

    is_open: Attribute[bool] = reading(transaction.BaseTransaction.is_open)
    producer_id: Attribute[int | None] = reading(transaction.BaseTransaction.producer_id)
    epoch: Attribute[int | None] = reading(transaction.BaseTransaction.epoch)
    txn_id: Attribute[bytes] = reading("txn_id")


class Transaction(_BaseTransaction[aio.Transaction]):
    """See `holdfast.client.Transaction`."""

    begin = blocking(aio.Transaction.begin)
    commit = blocking(aio.Transaction.commit)
    abort = blocking(aio.Transaction.abort)

    def commit_offsets(self, consumer: ConsumerClient) -> None:
        """See `holdfast.client.Transaction`. The consumer's thread reads the positions and notes the commit."""
        thread = consumer._thread
        try:
            asked = thread.call(consumer._inner.handed_out)
        except OwnershipLostError as error:
            self._thread.call(partial(self._inner.fail, error))
            raise
        given = [replace(one, heard=partial(thread.post, one.heard)) for one in asked]
        self._thread.run(lambda: self._inner._add(given))


class GroupMember(_BaseTransaction[aio.GroupMember]):
    """See `holdfast.client.GroupMember`. The thread of its client keeps the lease as long as the process lives."""

    begin = blocking(aio.GroupMember.begin)
    prepared: Attribute[str | None] = reading(aio.GroupMember.prepared)
    prepare = blocking(aio.GroupMember.prepare)
    abort = blocking(aio.GroupMember.abort)


class ProducerClient(_Sending[aio.ProducerClient], SyncClient[aio.ProducerClient]):
    """See `holdfast.client.ProducerClient`."""

    @like(aio.ProducerClient.__init__)
    def __init__(self, servers: Any, log: str, *args: Any, **named: Any) -> None:
        super().__init__(f"producer for {log}", lambda: aio.ProducerClient(servers, log, *args, **named))
        self.log, self.options, self.stats = log, self._inner.options, self._inner.stats

    start = blocking(aio.ProducerClient.start)
    close = ending(aio.ProducerClient.close)
    abandon = ending(aio.ProducerClient.abandon)
    partitions: Attribute[list[str]] = reading(aio.ProducerClient.partitions)
    partition_of = blocking(aio.ProducerClient.partition_of)
    outstanding: Attribute[int] = reading(aio.ProducerClient.outstanding)
    flush = blocking(aio.ProducerClient.flush)
    create_batch = blocking(aio.ProducerClient.create_batch)
    get_partition_publishing_properties = blocking(aio.ProducerClient.get_partition_publishing_properties)
    transaction = giving(Transaction, blocking(aio.ProducerClient.transaction))
    member = giving(GroupMember, blocking(aio.ProducerClient.member))
    last_transaction: Attribute[LastTransaction | None] = reading(aio.ProducerClient.last_transaction)

    @property
    def on_confirmed(self) -> Callable[[str, int], None] | None:
        """See `holdfast.client.ProducerClient`."""
        return self._inner.on_confirmed

    @on_confirmed.setter
    def on_confirmed(self, callback: Callable[[str, int], None] | None) -> None:
        self._inner.on_confirmed = callback


def _of_twins(
    method: Callable[Concatenate[Any, Any, P], Any],
) -> Callable[Concatenate[Any, ProducerClient, P], GroupMember]:
    """Use an asyncio method unchanged for twins, since it only uses public names of its group and the producer."""
    return cast(Any, method)


class TransactionGroup(SyncClient[aio.TransactionGroup]):
    """See `holdfast.client.TransactionGroup`."""

    @like(aio.TransactionGroup.__init__)
    def __init__(self, servers: Any, *, writer: str, **named: Any) -> None:
        super().__init__(f"group of {writer}", lambda: aio.TransactionGroup(servers, writer=writer, **named))
        self.names = self._inner.names

    is_new_writer: Attribute[bool | None] = reading("is_new_writer")
    last_committed: Attribute[int | None] = reading("last_committed")
    close = ending(aio.TransactionGroup.close)
    open = blocking(aio.TransactionGroup.open)
    member = _of_twins(aio.TransactionGroup.member)
    abort = blocking(aio.TransactionGroup.abort)
    describe = blocking(aio.TransactionGroup.describe)

    @like(aio.TransactionGroup.commit)
    def commit(self, winners: Iterable[str]) -> None:
        named = list(winners)  # on the program's thread, since the iterable may call members and the group
        self._thread.run(lambda: self._inner.commit(named))


class ConsumerClient(SyncClient[aio.ConsumerClient]):
    """See `holdfast.client.ConsumerClient`."""

    @like(aio.ConsumerClient.__init__)
    def __init__(self, servers: Any, log: str, **named: Any) -> None:
        super().__init__(f"consumer of {log}", lambda: aio.ConsumerClient(servers, log, **named))
        self.log, self.options = log, self._inner.options

    start = blocking(aio.ConsumerClient.start)
    close = ending(aio.ConsumerClient.close)
    positions: Attribute[dict[str, str]] = reading(aio.ConsumerClient.positions)
    assignment: Attribute[dict[str, int]] = reading(aio.ConsumerClient.assignment)
    epochs: Attribute[dict[str, int]] = reading(aio.ConsumerClient.epochs)
    commit = blocking(aio.ConsumerClient.commit)
    connected: Attribute[bool] = reading(aio.ConsumerClient.connected)
    links_opened: Attribute[int] = reading(aio.ConsumerClient.links_opened)
    paused: Attribute[set[str]] = reading(aio.ConsumerClient.paused)
    pause = blocking(aio.ConsumerClient.pause)
    resume = blocking(aio.ConsumerClient.resume)
    lag = blocking(aio.ConsumerClient.lag)
    receive = blocking(aio.ConsumerClient.receive)
    at_end: Attribute[bool] = reading(aio.ConsumerClient.at_end)

    def batches(self) -> Iterator[list[ReceivedEvent]]:
        """Yield events as they arrive, in lists of one partition each."""
        while events := self.receive():
            yield events

    def __iter__(self) -> Iterator[ReceivedEvent]:
        """Yield events; each counts as handed out when the loop has it, so a commit in the loop skips no event."""
        while (lent := self._thread.run(self._inner._lend)) is not None:
            yield from lent


class RangeClient(SyncClient[aio.RangeClient]):
    """See `holdfast.client.RangeClient`."""

    @like(aio.RangeClient.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__("ranges", lambda: aio.RangeClient(*args, **named))

    close = ending(aio.RangeClient.close)
    extents = blocking(aio.RangeClient.extents)
    offset_at = blocking(aio.RangeClient.offset_at)
    identity = blocking(aio.RangeClient.identity)
    read = iterating(aio.RangeClient.read)
    check = blocking(aio.RangeClient.check)


class AdminClient(SyncClient[aio.AdminClient]):
    """See `holdfast.client.AdminClient`."""

    @like(aio.AdminClient.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__("administration", lambda: aio.AdminClient(*args, **named))

    close = ending(aio.AdminClient.close)
    create_log = blocking(aio.AdminClient.create_log)
    list_logs = blocking(aio.AdminClient.list_logs)
    describe_log = blocking(aio.AdminClient.describe_log)
    alter_log = blocking(aio.AdminClient.alter_log)
    delete_log = blocking(aio.AdminClient.delete_log)
    dump_log = blocking(aio.AdminClient.dump_log)
    list_producers = blocking(aio.AdminClient.list_producers)
    describe_producer = blocking(aio.AdminClient.describe_producer)
    list_groups = blocking(aio.AdminClient.list_groups)
    describe_group = blocking(aio.AdminClient.describe_group)
    commit_group = blocking(aio.AdminClient.commit_group)
    reset_group = blocking(aio.AdminClient.reset_group)
    delete_group = blocking(aio.AdminClient.delete_group)
    list_transactions = blocking(aio.AdminClient.list_transactions)
    describe_transaction = blocking(aio.AdminClient.describe_transaction)
    abort_transaction = blocking(aio.AdminClient.abort_transaction)
    hanging_transactions = blocking(aio.AdminClient.hanging_transactions)
    list_transaction_groups = blocking(aio.AdminClient.list_transaction_groups)
    describe_transaction_group = blocking(aio.AdminClient.describe_transaction_group)
    abort_transaction_group = blocking(aio.AdminClient.abort_transaction_group)
    forget_transaction_group = blocking(aio.AdminClient.forget_transaction_group)
    add_user = blocking(aio.AdminClient.add_user)
    set_password = blocking(aio.AdminClient.set_password)
    set_roles = blocking(aio.AdminClient.set_roles)
    remove_user = blocking(aio.AdminClient.remove_user)
    list_users = blocking(aio.AdminClient.list_users)
    add_grant = blocking(aio.AdminClient.add_grant)
    remove_grant = blocking(aio.AdminClient.remove_grant)
    list_grants = blocking(aio.AdminClient.list_grants)
    add_rule = blocking(aio.AdminClient.add_rule)
    rotate_rule = blocking(aio.AdminClient.rotate_rule)
    remove_rule = blocking(aio.AdminClient.remove_rule)
    rule_keys = blocking(aio.AdminClient.rule_keys)
    list_rules = blocking(aio.AdminClient.list_rules)
    whoami = blocking(aio.AdminClient.whoami)
    describe_node = blocking(aio.AdminClient.describe_node)
    readmit_node = blocking(aio.AdminClient.readmit_node)
    reassign_partition = blocking(aio.AdminClient.reassign_partition)
    list_moves = blocking(aio.AdminClient.list_moves)
    cancel_moves = blocking(aio.AdminClient.cancel_moves)
    add_node = blocking(aio.AdminClient.add_node)
    remove_node = blocking(aio.AdminClient.remove_node)
    cancel_node = blocking(aio.AdminClient.cancel_node)
    announced_nodes = blocking(aio.AdminClient.announced_nodes)
    finalize_upgrade = blocking(aio.AdminClient.finalize_upgrade)
    plan_balance = blocking(aio.AdminClient.plan_balance)
    apply_balance = blocking(aio.AdminClient.apply_balance)
    balance_settings = blocking(aio.AdminClient.balance_settings)
    list_nodes = blocking(aio.AdminClient.list_nodes)
    node_status = blocking(aio.AdminClient.node_status)
    drain_node = blocking(aio.AdminClient.drain_node)
    resume_node = blocking(aio.AdminClient.resume_node)
    repair_group = blocking(aio.AdminClient.repair_group)
    cluster_status = blocking(aio.AdminClient.cluster_status)
    log_info = blocking(aio.AdminClient.log_info)
