"""What a workload is given, and how it ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.history.recorder import Recorder
from holdfast.client import HoldfastError, NetworkOptions, RejectedError, Security, TransactionRolledBackError

PARTITIONS_OF_A_LOG = 100
"""In histories the partitions of the second log of a run begin at this number, so that one column tells them apart."""


@dataclass(frozen=True)
class LogName:
    """One log of the run; `number` counts them."""

    name: str
    partitions: int
    number: int = 0

    def told(self, partition: str | int | None) -> int:
        """As histories call a partition of it."""
        return self.number * PARTITIONS_OF_A_LOG + int(partition or 0)

    @property
    def own(self) -> range:
        return range(self.partitions)


@dataclass
class World:
    """`servers`: by class of clients; `security`: as whom they come there. `per_second`: events of a producer. `over`:
    nothing new is begun any more. `quiet`: whoever writes has come to an end, so readers at the tail may find theirs.
    `directory`: of the run."""

    servers: Mapping[str, Sequence[str]]
    logs: list[LogName]
    recorder: Recorder
    chance: random.Random
    per_second: int
    directory: Path = Path()
    over: asyncio.Event = field(default_factory=asyncio.Event)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    crashes: list[asyncio.Event] = field(default_factory=list)  # one for each client that can be thrown away
    transactional_ids: list[str] = field(default_factory=list)
    security: Security = field(default_factory=Security)
    keys: int = 0  # each producer of W1 has so many, and gives its events one of them; 0: it names its partition
    prefix: str = ""  # of names that a cluster has once, and that others may have, too

    @property
    def network(self) -> NetworkOptions:
        """How every client of the workload reaches the cluster."""
        return NetworkOptions(security=self.security)

    @property
    def log(self) -> LogName:
        return self.logs[0]

    def can_crash(self) -> asyncio.Event:
        """Of one client: set when it is to be thrown away; it clears it."""
        crash = asyncio.Event()
        self.crashes.append(crash)
        return crash

    async def pause(self, seconds: float) -> None:
        """Or until it is over."""
        try:
            async with asyncio.timeout(seconds):
                await self.over.wait()
        except TimeoutError:
            return


def outcome_of(error: BaseException) -> str:
    """`fail` only where the answer proves that nothing was stored."""
    return "fail" if isinstance(error, RejectedError | TransactionRolledBackError) else "info"


CLIENT_ERRORS = (HoldfastError, TimeoutError)
