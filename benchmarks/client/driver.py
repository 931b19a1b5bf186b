"""A load driver on our own Python client, behind the plan and the report that all drivers share: what a program gets
that uses Holdfast as Holdfast means it.

What it sends with, and what it makes of what it reads: `sending`, `receiving`.
"""

from __future__ import annotations

import asyncio
from time import perf_counter_ns

import uvloop

from benchmarks.client.receiving import ClientReceiver, receiver
from benchmarks.client.sending import SENDERS, ClientSender
from benchmarks.driver.bounded import POLL_S, LoadPlan
from benchmarks.driver.library import LibraryLoad
from benchmarks.driver.measure import NS_PER_MS, Window
from benchmarks.driver.wire import PeerError
from holdfast.client import HoldfastError

SENDING_NS = 5 * NS_PER_MS  # of a turn in which there is always room for more


class ClientLoad(LibraryLoad[ClientSender, ClientReceiver]):
    """Each turn runs the event loop until something was confirmed or received, or more may be sent."""

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
        """In one run of the loop: to start and end one costs 50 us, as much as fifty events of 100 bytes."""
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
