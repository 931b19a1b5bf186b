"""One member of a group, as a process that a test may kill: reads, commits, and writes down what it saw.

Each fact is one line, written in one piece before anything else happens, so that what was seen is known of a process
that was killed right afterwards.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from holdfast.client import ConsumerClient, ConsumerOptions, OwnershipLostError, Start

PR_SET_PDEATHSIG = 1


class Notes:
    def __init__(self, path: str, who: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._who = who

    def write(self, what: str, **more: Any) -> None:
        fact = {"at_s": time.monotonic(), "who": self._who, "what": what, **more}
        os.write(self._file, json.dumps(fact).encode() + b"\n")


async def read(servers: list[str], log: str, group: str, notes: Notes) -> None:
    options = ConsumerOptions(prefetch=200, reconnect_timeout_s=60.0)
    consumer = ConsumerClient(servers, log, group=group, start=Start.earliest(), options=options)
    claims: dict[str, int] = {}
    async with consumer:
        notes.write("ready")
        while True:
            events = await consumer.receive(max_events=100, timeout_s=1.0)
            if not events:
                continue
            partition = events[0].partition
            claims[partition] = consumer.assignment[partition]
            offsets = [int(event.offset, 16) for event in events]
            for first, last in _runs(offsets):
                notes.write("got", partition=partition, claim=claims[partition], first=first, last=last)
            await asyncio.sleep(random.uniform(0.0, 0.02))  # the work
            with suppress(OwnershipLostError):
                for name, offset in (await consumer.commit(events[-1])).items():
                    notes.write("committed", partition=name, claim=claims[name], last=int(offset, 16))


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Offsets without a hole between them, as first and last."""
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            yield first, last
            first = offset
        last = offset
    yield first, last


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    path, who, log, group, *servers = sys.argv[1:]
    asyncio.run(read(servers, log, group, Notes(path, who)))
