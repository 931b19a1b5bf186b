"""The end of a durable source by its name: a receiver attaches with a null source, and closes the link.

That is how a JMS client unsubscribes: it names the link, and no address. So the source is looked for in every partition
of the logs that the peer may consume. It ends as one does whose receiver closes its link: for good. A detach that does
not close ends nothing.

Rules never broken: a source that is read is left alone, and the peer told so, once the end of a link that has just been
closed would be known; "there is none" is said only when every partition was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast.amqp import SenderLink, Source
from holdfast.amqp.errors import DETACH_FORCED, INVALID_FIELD, NOT_FOUND, RESOURCE_LOCKED, Error
from node.listener.attach.link_plan import LinkPlan
from node.listener.broker_interface import Broker
from node.listener.endpoint import Endpoint, EndpointHost
from node.listener.errors import Refused
from node.listener.outgoing.consumer_groups.ownership_claims import CONTINUE_WAIT_S
from node.partition.api import Failed
from node.partition.consumer_groups.group_queries import GroupList, ListGroups
from node.partition.consumer_groups.group_state import Delete, End, terminus_key
from node.security.authorisation import Need

QUESTIONS_AT_ONCE = 16
"""Partitions that are asked at a time: there may be thousands."""

RETRY_DELAY_S = 0.1
ATTEMPTS = 100
"""Attempts to end the source in a partition, which may have no leader for a while."""


class Searcher(EndpointHost, Protocol):
    """The connection that looks for a source."""


async def find_source(host: Searcher, link: SenderLink) -> dict[str, list[str]]:
    """The partitions that know the durable source of the link's name, by log. Raises Refused."""
    if not host.container:
        raise Refused(Error(INVALID_FIELD, "a durable source is known by container-id and link name: name a container"))
    key, broker = terminus_key(f"{host.container}/{link.name}"), host.broker
    listed = await broker.admin("log.list", {})
    logs = [log["name"] for log in listed["logs"] if host.visitor.may(Need("consume", "log", log["name"]))]
    views = [(log, view) for log in logs if (view := broker.describe(log)) is not None]
    places = [(log, partition) for log, view in views for partition in view.partitions]
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + CONTINUE_WAIT_S
    limit, found, silent = asyncio.Semaphore(QUESTIONS_AT_ONCE), dict[str, list[str]](), list[str]()

    async def ask(log: str, partition: str) -> None:
        async with limit:
            answer = await _question(broker, log, partition, key)
            while (
                isinstance(answer, GroupList) and any(row.active for row in answer.groups) and loop.time() < deadline_s
            ):
                await asyncio.sleep(RETRY_DELAY_S)  # the end of its receiver's link may not be known yet
                answer = await _question(broker, log, partition, key)
        if not isinstance(answer, GroupList):
            silent.append(f"{log}/{partition}")
        elif any(row.active for row in answer.groups):
            raise Refused(
                Error(
                    RESOURCE_LOCKED, f"durable source {link.name!r} of {log!r} is being read: close its receiver first"
                )
            )
        elif answer.groups:
            found.setdefault(log, []).append(partition)

    async with asyncio.timeout(host.config.leader_wait_s):
        await asyncio.gather(*(ask(log, partition) for log, partition in places))
    if silent and not found:
        text = f"nobody answers for {len(silent)} partitions, the first is {silent[0]}: attach again later"
        raise Refused(Error(DETACH_FORCED, text))
    if not found:
        text = f"container {host.container!r} has no durable source of the name {link.name!r}: nothing is to be ended"
        raise Refused(Error(NOT_FOUND, text))
    return found


async def _question(broker: Broker, log: str, partition: str, key: str) -> Any:
    try:
        return await broker.handle(log, partition).ask(ListGroups(key))
    except KeyError:  # the log was deleted meanwhile, and the source with it
        return GroupList([], 0, 0)


class Unsubscribing(Endpoint):
    """The link of a receiver that has found its durable source; what is left to it is to close."""

    def __init__(
        self, host: EndpointHost, link: SenderLink, plan: LinkPlan, found: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(host, link, plan)
        self._found = found

    def open(self) -> None:
        address = next(iter(self._found))
        source = Source(address=address, durable=2, expiry_policy="never", distribution_mode="copy")
        self.link.accept(source=source)

    def gone(self) -> None:
        super().gone()
        if self.ended is End.CLOSED:
            for log, partitions in self._found.items():
                self.host.errand(self._end(log, partitions))

    async def _end(self, log: str, partitions: Sequence[str]) -> None:
        key = terminus_key(f"{self.host.container}/{self.link.name}")
        await asyncio.gather(*(self._end_in(log, partition, key) for partition in partitions))

    async def _end_in(self, log: str, partition: str, key: str) -> None:
        for _ in range(ATTEMPTS):
            try:
                answer = await self.plan.broker.handle(log, partition).ask(Delete(key))
            except KeyError:
                return
            if not isinstance(answer, Failed) or not answer.retriable:
                return
            await asyncio.sleep(RETRY_DELAY_S)
        self.host.note("durable source %s stays in partition %s of %s: nobody answers", self.link.name, partition, log)
