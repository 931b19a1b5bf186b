"""Finding out the fate of messages with an unknown outcome, for peers that do not read `modified`.

Problem: AMQP's `modified` with delivery-failed says "perhaps". Many clients take it for "done", or never look: an event
is lost without a word. A peer that lists `modified` among the outcomes of its source has said that it reads it; any
other is told only what is certain. Rules never broken: the answer is held until a leader has told the fate of the entry
(`node/partition/entries/unknown_outcome.py`), as long as a link waits for a partition without a leader; deliveries that
stay in doubt are never answered, and the link ends with an error, which every client shows its user.

Rejected: `released` for deliveries in doubt (the client resends them, as if they certainly were not stored), and
`rejected` (the client never does).
"""

from __future__ import annotations

import asyncio

from node.listener.broker_interface import Broker
from node.partition.api import Failed
from node.partition.entries.entry_queries import AskFate, Fate

RETRY_DELAY_S = 0.05
"""Delay between questions while no leader can tell yet: twenty a second, until the election is over."""


async def find_out(broker: Broker, log: str, partition: str, why: Failed, wait_s: float) -> bool | None:
    """Ask the leader whether the records are in the log. None: no leader can tell, or not in time."""
    if why.entry is None:
        return None
    question = AskFate(*why.entry)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    while True:
        try:
            answer = await broker.handle(log, partition).ask(question)
        except KeyError:  # the log is gone
            return None
        if isinstance(answer, Fate) and not answer.pending:
            return answer.stored
        hopeless = isinstance(answer, Failed) and not answer.retriable
        if hopeless or loop.time() >= deadline_s:
            return None
        await asyncio.sleep(RETRY_DELAY_S)
