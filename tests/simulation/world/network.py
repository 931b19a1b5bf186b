"""Links between simulated nodes: FIFO per connection, and everything a reconnect can do to what was under
way.

One link per ordered pair, as in production. A frame is bytes. Faults: latency and stalls (order kept), a
reset (frames in flight are lost, or arrive late, after newer ones of the next connection, or twice), a cut
(frames vanish; the sender notices after a while or never), the replay of old frames. The sender of a link is
told when its connection breaks and returns.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

REMEMBERED_FRAMES = 24


class SimWorld(Protocol):
    """What links need of the schedule."""

    now: float
    randomness: random.Random
    latency_s: float

    def at(self, time: float, action: Callable[[], None]) -> None: ...
    def trace(self, text: str) -> None: ...
    def arrive(self, sender: int, receiver: int, frame: bytes) -> None: ...
    def link_changed(self, sender: int, receiver: int, *, up: bool) -> None: ...


class SimLink:
    def __init__(self, world: SimWorld, sender: int, receiver: int) -> None:
        self._world = world
        self.sender = sender
        self.receiver = receiver
        self.is_up = True
        self.is_cut = False
        self._in_flight: deque[tuple[float, bytes]] = deque()
        self._remembered: deque[bytes] = deque(maxlen=REMEMBERED_FRAMES)
        self._stalled_until = 0.0
        self._stutters_until = 0.0
        self._epoch = 0
        self._pump_at = 0.0

    def send(self, frame: bytes) -> None:
        if not self.is_up:
            return
        self._remembered.append(frame)
        if self.is_cut:
            return
        latency = self._world.randomness.uniform(0.0002, self._world.latency_s)
        if self._world.now < self._stutters_until:
            self._arrive_later(frame, mean_s=self._world.latency_s)
        earliest = self._in_flight[-1][0] if self._in_flight else 0.0
        self._in_flight.append((max(earliest, self._world.now + latency, self._stalled_until), frame))
        if len(self._in_flight) == 1:
            self._schedule()

    def _schedule(self) -> None:
        due, epoch = self._in_flight[0][0], self._epoch
        self._world.at(due, lambda: self._arrivals(epoch))

    def _arrivals(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        while self._in_flight and self._in_flight[0][0] <= self._world.now:
            self._world.arrive(self.sender, self.receiver, self._in_flight.popleft()[1])
        if self._in_flight:
            self._schedule()

    # ---- faults

    def stall(self, seconds: float) -> None:
        """Nothing arrives for a while; nothing is lost."""
        until = self._world.now + seconds
        self._stalled_until = max(self._stalled_until, until)
        self._in_flight = deque((max(due, until), frame) for due, frame in self._in_flight)
        self._epoch += 1
        if self._in_flight:
            self._schedule()

    def reset(self, *, wild: bool) -> None:
        """The connection breaks. `wild`: what was in flight may arrive later all the same, even twice."""
        flying = [frame for _, frame in self._in_flight]
        self._in_flight.clear()
        self._epoch += 1
        self._stalled_until = 0.0
        if wild:
            for frame in flying:
                if self._world.randomness.random() < 0.5:
                    self._arrive_later(frame)
        self._set_up(False)
        self._world.at(self._world.now + self._world.randomness.uniform(0.001, 0.3), self.reconnect)

    def replay(self) -> None:
        """Old frames arrive again, behind newer ones."""
        if self._remembered:
            start = self._world.randomness.randrange(len(self._remembered))
            count = self._world.randomness.randint(1, 6)
            for frame in list(self._remembered)[start : start + count]:
                self._arrive_later(frame)

    def stutter(self, seconds: float) -> None:
        """For a while every frame arrives twice."""
        self._stutters_until = self._world.now + seconds

    def _arrive_later(self, frame: bytes, mean_s: float = 0.15) -> None:
        delay = self._world.randomness.expovariate(1 / mean_s)
        self._world.at(self._world.now + delay, lambda: self._world.arrive(self.sender, self.receiver, frame))

    def cut(self, *, noticed_after: float | None) -> None:
        """From now on frames vanish. The sender notices after a time, or not at all."""
        self.is_cut = True
        self._in_flight.clear()
        self._epoch += 1
        if noticed_after is not None:
            self._world.at(self._world.now + noticed_after, self._notice_cut)

    def _notice_cut(self) -> None:
        if self.is_cut:
            self._set_up(False)

    def heal(self) -> None:
        self.is_cut = False
        self._stalled_until = 0.0
        self.reconnect()

    def reconnect(self) -> None:
        if not self.is_cut:
            self._set_up(True)

    def _set_up(self, up: bool) -> None:
        if self.is_up != up:
            self.is_up = up
            self._world.link_changed(self.sender, self.receiver, up=up)
