"""Connections that a worker process keeps between the tasks of one batch: a thread, a producer, and the group's state.

Problem: as with reading: workers are forked, and run many short tasks.
Rules never broken: a connection is used in the process that made it, and for one batch of one run: so a batch learns
anew which partitions there are, and a failure leaves nothing that the next attempt would stumble over.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Final

from holdfast.client import ProducerClient, ProducerOptions, TransactionGroup
from holdfast.client.loop_thread import LoopThread
from holdfast.client.transact.group_member import GroupNames
from holdfast.spark.connections import network
from holdfast.spark.sink.options import SinkOptions

KEPT: Final = 2
"""Batches whose connections a worker keeps: it runs one task at a time, of this batch or late of the one before."""


class SinkConnection:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._opened: dict[GroupNames, bool] = {}
        self.thread = LoopThread(f"holdfast sink of {options.log}")
        given = ProducerOptions(
            delivery_timeout_s=options.timeout_s,
            transaction_timeout_s=options.group_timeout_s,
            network=network(options),
        )
        try:
            self.producer = self.thread.call(lambda: ProducerClient(options.servers, options.log, given))
            self.thread.run(self.producer.start)
        except BaseException:
            self.thread.close()
            raise

    def is_done(self, names: GroupNames, query: str, *, once: bool) -> bool:
        """True if the batch was committed before; if not, it is open now. The first task of a process asks."""
        if names not in self._opened:
            self._opened[names] = self.thread.run(lambda: self._open(names, query, once))
        return self._opened[names]

    async def _open(self, names: GroupNames, query: str, once: bool) -> bool:
        options = self._options
        async with group_of(options, names) as group:
            opened = await group.open(query=query, group_timeout_s=options.group_timeout_s, once=once)
            return opened == "already done"

    def close(self) -> None:
        try:
            self.thread.run(self.producer.abandon)
        finally:
            self.thread.close()


def group_of(options: SinkOptions, names: GroupNames) -> TransactionGroup:
    return TransactionGroup(
        options.servers,
        writer=names.writer,
        batch=names.batch,
        run=names.run,
        timeout_s=options.timeout_s,
        options=network(options),
    )


_connections: OrderedDict[tuple[int, str], SinkConnection] = OrderedDict()


def connection_of(run: str, options: SinkOptions) -> SinkConnection:
    """Connection that this process has for the run."""
    name = (os.getpid(), run)
    found = _connections.get(name)
    if found is None:
        for other in [other for other in _connections if other[0] != name[0]]:
            del _connections[other]  # the parent's: its thread is not in this process
        while len(_connections) >= KEPT:
            _connections.popitem(last=False)[1].close()
        found = _connections[name] = SinkConnection(options)
    _connections.move_to_end(name)
    return found


def forget(run: str) -> None:
    """Forget the connection of a run, after something went wrong with it."""
    found = _connections.pop((os.getpid(), run), None)
    if found is not None:
        found.close()
