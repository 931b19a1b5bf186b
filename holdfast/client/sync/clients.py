"""Clients without an event loop, and the objects that they return; the asyncio classes describe each name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import holdfast.client as aio
from holdfast.client.errors import OwnershipLostError, TimeoutExpiredError
from holdfast.client.events import ReceivedEvent
from holdfast.client.produce.delivery import DeliveryResult
from holdfast.client.sync import twins
from holdfast.client.sync.blocking_proxy import TWINS


class Delivery(twins.DeliveryBase):
    """The outcome of events that were sent; a thread can wait for it."""

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


class Transaction(twins.TransactionBase):
    """See `holdfast.client.Transaction`."""

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


class TransactionGroup(twins.TransactionGroupBase):
    """See `holdfast.client.TransactionGroup`."""

    def commit(self, winners: Iterable[str]) -> None:
        super().commit(list(winners))  # on the program's thread, since the iterable may call members and the group


# It uses only public names of its group and of the producer, which twins have, too.
TransactionGroup.member = aio.TransactionGroup.member  # type: ignore[method-assign, assignment]


class ConsumerClient(twins.ConsumerClientBase):
    """See `holdfast.client.ConsumerClient`."""

    def __iter__(self) -> Iterator[ReceivedEvent]:
        """Yield events; each counts as handed out when the loop has it, so a commit in the loop skips no event."""
        while (lent := self._thread.run(self._inner._lend)) is not None:
            yield from lent


TWINS |= {aio.Delivery: Delivery, aio.Transaction: Transaction, aio.GroupMember: twins.GroupMember}
