"""Messages of which nobody knows whether they are in the log, of a peer that did not say that it understands that.

Problem: AMQP's `modified` with delivery-failed says "perhaps". Many clients take it for "done", or never look: an event
is lost without a word. A peer that lists `modified` among the outcomes of its source has said that it reads it; to any
other only what is certain may be told. Rules never broken: the answer is held until a leader has said what became of
the entry (`node/partition/entries/unknown_outcome.py`), as long as a partition without a leader is waited for; what
stays in doubt is never answered, and the link ends with an error, which every client shows its user.

Rejected: `released` for what is in doubt (the client sends it again, as something that certainly was not stored), and
`rejected` (the client never does).
"""

from __future__ import annotations

import asyncio

from node.listener.broker import Broker
from node.partition.api import Failed
from node.partition.entries.queries import AskFate, Fate

RETRY_DELAY_S = 0.05
"""Between questions while nobody can tell yet: twenty a second, until the election is over."""


async def find_out(broker: Broker, log: str, partition: str, why: Failed, wait_s: float) -> bool | None:
    """Whether the records are in the log. None: nobody can tell, or not in time."""
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
