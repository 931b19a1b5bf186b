"""The address `<log>/$info`: the partitions and offsets of a log, for clients before they attach (ES-54 to ES-58).

Problem: partitions, and where they begin and end, are known for certain only to their leaders, which may be
elsewhere.
Rule never broken: one message per credit, spaced in time, each with an entry for every partition. A partition that
could not be asked is marked (`available` false), never passed off as empty. A client that takes no output, or keeps too
much unsettled, is sent nothing, and no partition is asked for it; an interval later that is looked at again.
Rejected: answering from this node's replicas. A follower's end lags behind what producers have been told. Rejected: to
ask all partitions at once. Each question is a round of messages in its group; a thousand at a time kept two busy cores
from answering anybody for longer than leaders wait for their followers, and hundreds of groups elected new ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from holdfast import protocol
from holdfast.amqp import Credit, Message, SenderLink, Source, Value, encode_message, offset_text, symbol, timestamp
from node.listener import errors
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import Endpoint, EndpointHost
from node.partition.api import PartitionDescription

RETRY_DELAY_S = 0.1
"""Delay between questions to a partition that has no leader."""

ASKED_AT_ONCE = 256
"""Partitions asked at once for one answer: some tens of milliseconds of work for the nodes. And a thousand whose
leaders do not answer, which takes two seconds to find out, leave each other time enough."""


class Info(Endpoint):
    link: SenderLink

    def __init__(self, host: EndpointHost, link: SenderLink, plan: LinkPlan) -> None:
        super().__init__(host, link, plan)
        self._timer: asyncio.TimerHandle | None = None
        self._asking = False
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)
        self._sent_at = -host.config.info_interval_s

    def open(self) -> None:
        source = Source(address=self.plan.address, distribution_mode="copy")
        self.link.accept(source=source, properties=self.which_log() or None)

    def on_credit(self, event: Credit) -> None:
        if self._asking or self._timer is not None:
            if self.link.drain and not self._asking:
                self.link.drained()  # the next info is not due yet
                self.host.flush_soon()
            return
        if self.link.credit > 0 and not self.leaving:
            delay_s = self._sent_at + self.host.config.info_interval_s - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._ask)

    def _ask(self) -> None:
        self._timer = None
        self._asking = True
        self.host.spawn(self._answer())

    async def _answer(self) -> None:
        try:
            view = self.plan.broker.describe(self.plan.log)
            if view is None:
                self.leave(errors.log_deleted(self.plan.log))
                return
            if not self._is_stuck():
                await self._send(view.partitions)
        finally:
            self._asking = False
        if self.link.drain:
            self.link.drained()
        else:
            self.on_credit(Credit(self.link))
        self.host.flush_soon()

    async def _send(self, partitions: Iterable[str]) -> None:
        entries = await asyncio.gather(*(self._entry(partition) for partition in partitions))
        body = {protocol.INFO_LOG: self.plan.log, protocol.INFO_PARTITIONS: list(entries)}
        if self.link.credit > 0 and not self.leaving and not self._is_stuck():
            self._sent_at = time.monotonic()
            message = encode_message(Message(body=Value(body)))
            self.link.send_many([message])
            self.host.delivered(0, len(message))

    def _is_stuck(self) -> bool:
        """Tell whether the node would only keep what it sends now. Then nothing is sent before the next interval."""
        host = self.host
        is_stuck = host.output_full() or (self.link.unsettled > 0 and host.room_to_keep() <= 0)
        if is_stuck:
            self._sent_at = time.monotonic()
        return is_stuck

    async def _entry(self, partition: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self.host.config.leader_wait_s):
                return describe(await self._ask_leader(partition))
        except (TimeoutError, KeyError):
            return {
                protocol.INFO_PARTITION: symbol(partition),
                protocol.INFO_EARLIEST_OFFSET: None,
                protocol.INFO_LATEST_OFFSET: None,
                protocol.INFO_AVAILABLE: False,
                protocol.INFO_LEADER: None,
            }

    async def _ask_leader(self, partition: str) -> PartitionDescription:
        while True:
            try:
                async with self._turns:
                    return await self.plan.broker.handle(self.plan.log, partition).info()
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(RETRY_DELAY_S)  # no leader now; the caller's timeout ends this

    def on_change(self) -> None:
        if not self.leaving and self.plan.broker.describe(self.plan.log) is None:
            self.leave(errors.log_deleted(self.plan.log))

    def quiesce(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def gone(self) -> None:
        super().gone()
        self.quiesce()


def describe(info: PartitionDescription) -> dict[str, Any]:
    """Entry of the list for one partition. Offsets are symbols, null when nothing is stored."""

    def offset(number: int | None) -> Any:
        return None if number is None else symbol(offset_text(number))

    return {
        protocol.INFO_PARTITION: symbol(info.partition),
        protocol.INFO_EARLIEST_OFFSET: offset(info.earliest_offset),
        protocol.INFO_LATEST_OFFSET: offset(info.latest_offset),
        protocol.INFO_LATEST_TIMESTAMP: None if info.last_timestamp_ms is None else timestamp(info.last_timestamp_ms),
        protocol.INFO_AVAILABLE: True,
        protocol.INFO_NEXT_OFFSET: symbol(offset_text(info.next_offset)),
        protocol.INFO_STABLE_OFFSET: symbol(offset_text(info.stable_offset)),
        protocol.INFO_OPEN_TRANSACTIONS: info.open_transactions,
        protocol.INFO_ABORTED_TRANSACTIONS: info.aborted_transactions,
        protocol.INFO_EVENTS: info.events,
        protocol.INFO_BYTES: info.bytes,
        protocol.INFO_LEADER: info.leader,
        protocol.INFO_REPLICAS: list(info.replicas),
    }
