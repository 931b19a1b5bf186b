"""Context of a workload: the cluster's addresses, the recorder, and the signals for its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.history.recorder import Recorder
from holdfast.client import HoldfastError, NetworkOptions, RejectedError, Security, TransactionRolledBackError

PARTITIONS_OF_A_LOG = 100
"""Distance of two logs' partitions in histories, so that one column tells the partitions of all logs apart."""


@dataclass(frozen=True)
class LogName:
    """One log of the run; `number` counts them."""

    name: str
    partitions: int
    number: int = 0

    def told(self, partition: str | int | None) -> int:
        """Return the number of one of its partitions in histories."""
        return self.number * PARTITIONS_OF_A_LOG + int(partition or 0)

    @property
    def own(self) -> range:
        return range(self.partitions)


@dataclass
class World:
    """Everything that a workload needs from its run.

    `servers`: addresses by class of clients; `security`: their login. `per_second`: events of a producer. `over`: no
    client begins anything new. `quiet`: all writers have ended, so readers at the tail may end, too. `directory`: the
    run's."""

    servers: Mapping[str, Sequence[str]]
    logs: list[LogName]
    recorder: Recorder
    chance: random.Random
    per_second: int
    directory: Path = Path()
    over: asyncio.Event = field(default_factory=asyncio.Event)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    crashes: list[asyncio.Event] = field(default_factory=list)  # one for each client that can crash
    transactional_ids: list[str] = field(default_factory=list)
    security: Security = field(default_factory=Security)
    keys: int = 0  # keys of each producer of W1; 0: it names its partition
    prefix: str = ""  # prefix of names that are unique in a cluster which others use, too

    @property
    def network(self) -> NetworkOptions:
        """Network options of every client of the workload."""
        return NetworkOptions(security=self.security)

    @property
    def log(self) -> LogName:
        return self.logs[0]

    def can_crash(self) -> asyncio.Event:
        """Make an event for one client; it is set when the client is to crash, and the client clears it."""
        crash = asyncio.Event()
        self.crashes.append(crash)
        return crash

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until the run is over."""
        try:
            async with asyncio.timeout(seconds):
                await self.over.wait()
        except TimeoutError:
            return


def outcome_of(error: BaseException) -> str:
    """Return `fail` if the error proves that nothing was stored, else `info`."""
    return "fail" if isinstance(error, RejectedError | TransactionRolledBackError) else "info"


CLIENT_ERRORS = (HoldfastError, TimeoutError)
