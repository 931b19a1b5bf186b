"""One member of a group, as a process that a test may kill: reads, commits, and writes down what it saw.

Each fact is one line, written in one piece before anything else happens, so that what was seen is known of a process
that was killed right afterwards. It leaves the group on SIGTERM.

    python -m tests.integration.workloads.group_member [--ownership zk://... --session-s S] [--work-s S]
        HISTORY WHO LOG GROUP SERVER...
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

from holdfast.client import ConsumerClient, ConsumerOptions, OwnershipLostError, Start, ZooKeeperOwnership

PR_SET_PDEATHSIG = 1


class MemberNotes:
    def __init__(self, path: str, who: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._who = who

    def write(self, what: str, **more: Any) -> None:
        fact = {"at_s": time.monotonic(), "who": self._who, "what": what, **more}
        os.write(self._file, json.dumps(fact).encode() + b"\n")


async def read(given: argparse.Namespace, notes: MemberNotes) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    options = ConsumerOptions(prefetch=200, reconnect_timeout_s=60.0)
    ownership = None
    if given.ownership:
        ownership = ZooKeeperOwnership(given.ownership, session_timeout_s=given.session_s, settle_s=0.3)

    def assigned(partition: str) -> None:
        notes.write("assigned", partition=partition, epoch=consumer.epochs[partition])

    def revoked(partition: str) -> None:
        notes.write("revoked", partition=partition)

    consumer = ConsumerClient(
        given.servers, given.log, group=given.group, start=Start.earliest(),
        on_assigned=assigned, on_revoked=revoked, ownership=ownership, options=options,
    )  # fmt: skip
    claims: dict[str, int] = {}
    async with consumer:
        notes.write("ready")
        while not stopping.is_set():
            events = await consumer.receive(max_events=100, timeout_s=1.0)
            if not events:
                continue
            partition = events[0].partition
            claims[partition] = consumer.assignment[partition]
            offsets = [int(event.offset, 16) for event in events]
            for first, last in _runs(offsets):
                notes.write("got", partition=partition, claim=claims[partition], first=first, last=last)
            await asyncio.sleep(random.uniform(0.0, given.work_s))  # the work
            # Who is stopped now may miss the answer.
            notes.write("commits", partition=partition, claim=claims[partition])
            try:
                for name, offset in (await consumer.commit(events[-1])).items():
                    notes.write("committed", partition=name, claim=claims[name], last=int(offset, 16))
            except OwnershipLostError:
                notes.write("refused", partition=partition, claim=claims[partition])


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
    parser = argparse.ArgumentParser()
    parser.add_argument("--ownership", default="")
    parser.add_argument("--session-s", type=float, default=2.0)
    parser.add_argument("--work-s", type=float, default=0.02)
    for name in ("path", "who", "log", "group"):
        parser.add_argument(name)
    parser.add_argument("servers", nargs="+")
    given = parser.parse_args()
    asyncio.run(read(given, MemberNotes(given.path, given.who)))
