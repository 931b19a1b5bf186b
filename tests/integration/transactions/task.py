"""A task attempt of a batch: a process of its own, which a test stops, wakes or kills at any moment.

It writes one event into each partition as a member of the batch, says `written`, prepares when it is told to by a line
on its standard input, and says what came of it.
"""

from __future__ import annotations

import asyncio
import json
import sys

from holdfast.client import HoldfastError, ProducerClient

PARTITIONS = 4


async def write(servers: list[str], log: str, writer: str, batch: int, run: str, part: str, attempt: str) -> None:
    async with ProducerClient(servers, log) as producer:
        names = {"writer": writer, "run": run, "part": part, "attempt": attempt}
        async with producer.member(batch=batch, lease_s=3.0, **names) as member:
            for partition in range(PARTITIONS):
                await (await member.send(f"{batch}-{part}-{attempt}", partition=str(partition)))
            say(written=True)
            await asyncio.to_thread(sys.stdin.readline)
            say(member=await member.prepare())


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    *addresses, log_name, own_writer, own_batch, own_run, own_part, own_attempt = sys.argv[1:]
    try:
        asyncio.run(write(addresses, log_name, own_writer, int(own_batch), own_run, own_part, own_attempt))
    except HoldfastError as error:
        say(error=type(error).__name__, text=str(error))
