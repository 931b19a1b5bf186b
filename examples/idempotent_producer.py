"""Publish a file's lines so that the log has each once, however often this program dies and is started again:

    python examples/idempotent_producer.py LOG FILE STATE --server 127.0.0.1:5672

The state file has the producer's identity and the number of the last line that is known to be published. Lines that
were published after that note are sent again with the same numbers, and the node recognises them. That works because a
batch has the same lines each time: the number of a line is its place in the file.
"""

import argparse
import asyncio
import json
import os
from dataclasses import asdict
from pathlib import Path

from holdfast.client import (
    HoldfastError,
    OutOfOrderError,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
    ProducerClient,
    ProducerStolenError,
)

PARTITION = "0"  # an idempotent producer names its partition
BATCH_LINES = 100


def load(state: Path) -> PartitionPublishingOptions:
    return PartitionPublishingOptions(**(json.loads(state.read_text()) if state.exists() else {}))


def save(state: Path, properties: PartitionPublishingProperties) -> None:
    """Write the state atomically: a half-written state would be worse than an old one."""
    new = state.with_suffix(".new")
    new.write_text(json.dumps(asdict(properties.to_options())))
    os.replace(new, state)


async def publish(servers: list[str], log: str, lines: list[bytes], state: Path) -> None:
    async with ProducerClient(servers, log, idempotent=True, partition_options={PARTITION: load(state)}) as producer:
        properties = await producer.get_partition_publishing_properties(PARTITION)
        save(state, properties)  # from now on our identity is known
        done = properties.last_published_sequence_number or 0  # numbers begin with 1, so this is a count
        print(f"producer {properties.producer_group_id}: {done} lines are known to stand")
        for first in range(done, len(lines), BATCH_LINES):
            batch = await producer.create_batch(partition=PARTITION)
            for line in lines[first : first + BATCH_LINES]:
                batch.add(line)
            await producer.send_batch(batch)
            save(state, await producer.get_partition_publishing_properties(PARTITION))
            print(f"lines up to {first + len(batch)}: numbers from {batch.starting_published_sequence_number} on")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("file", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--server", action="append", help="host:port of a node; may be repeated")
    given = parser.parse_args()
    try:
        lines = given.file.read_bytes().splitlines()
        asyncio.run(publish(given.server or ["127.0.0.1:5672"], given.log, lines, given.state))
    except ProducerStolenError as error:
        raise SystemExit(f"another instance has taken over: {error}") from error
    except OutOfOrderError as error:
        raise SystemExit(f"the file or the state is not the one of before: {error}") from error
    except HoldfastError as error:
        raise SystemExit(f"{error}\n{error.advice}") from error


if __name__ == "__main__":
    main()
