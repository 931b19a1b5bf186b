"""A load driver on our own Python client, with the plans and reports of all drivers.

It shows the rates of a program that uses Holdfast's own client. `sending` and `receiving` have the ways to send and to
read.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from time import perf_counter_ns

import uvloop

from benchmarks.client.receiving import ClientReceiver, receiver
from benchmarks.client.sending import SENDERS, ClientSender
from benchmarks.driver.bounded import POLL_S, LoadPlan
from benchmarks.driver.library import LibraryLoad
from benchmarks.driver.measure import NS_PER_MS, Window
from benchmarks.driver.wire import PeerError
from holdfast.client import HoldfastError

SENDING_NS = 5 * NS_PER_MS  # longest turn while there is always room for more events


class ClientLoad(LibraryLoad[ClientSender, ClientReceiver]):
    """A run on our client. Each turn runs the event loop until events were confirmed or received, or may be sent."""

    def __init__(self, plan: LoadPlan) -> None:
        super().__init__(plan)
        self._loop = uvloop.new_event_loop()
        self._something = asyncio.Event()

    def _attach(self, run: int) -> None:
        try:
            self._loop.run_until_complete(self._start(run))
        except HoldfastError as error:
            raise PeerError(f"{self.plan.name}: {error}") from error

    async def _start(self, run: int) -> None:
        for end in self._sending_ends(run):
            self.senders.append(SENDERS[self.plan.sending](end, self._something.set))
            await self.senders[-1].start()
        for end in self._receiving_ends(run):
            self.receivers.append(receiver(end, self._something.set))
            await self.receivers[-1].start()

    def _drive(self, window: Window) -> None:
        """Take all turns in one run of the event loop, since starting and ending it for each turn is expensive."""
        self._loop.run_until_complete(self._take_turns(window))

    async def _take_turns(self, window: Window) -> None:
        for _ in self._turns(window):
            await self._take_turn(window)

    def _turn(self, window: Window) -> None:
        self._loop.run_until_complete(self._take_turn(window))

    async def _take_turn(self, window: Window) -> None:
        try:
            await self._move()
            for endpoint in self._endpoints:
                endpoint.counted(perf_counter_ns(), window)
        except HoldfastError as error:
            raise PeerError(f"{self.plan.name}: {error}") from error

    async def _move(self) -> None:
        since_ns = perf_counter_ns()
        while True:
            for sender in self.senders:
                await sender.work()
            if not any(sender.room > 0 for sender in self.senders):
                break
            if perf_counter_ns() - since_ns > SENDING_NS:
                return
        try:
            async with asyncio.timeout(POLL_S):
                await self._something.wait()
        except TimeoutError:
            return
        self._something.clear()

    def _close(self) -> None:
        for endpoint in self._endpoints:
            self._loop.run_until_complete(endpoint.close())
        self._loop.close()


if __name__ == "__main__":  # for a client of another checkout: see `benchmarks.matrix.cell`
    sys.stdout.buffer.write(pickle.dumps(ClientLoad(pickle.load(sys.stdin.buffer)).run()))
