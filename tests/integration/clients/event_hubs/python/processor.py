"""A producer or a processor on the Python SDK of Event Hubs, with the SDK's own Blob store.

    processor.py send|process|process-sync CONNECTION_STRING [STORE_STRING GROUP]

What it learns it writes as JSON, one object a line; it goes on until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient
from azure.eventhub.aio import EventHubConsumerClient as AsyncConsumerClient
from azure.eventhub.aio import EventHubProducerClient
from azure.eventhub.exceptions import ConnectionLostError
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.eventhub.extensions.checkpointstoreblobaio import BlobCheckpointStore as AsyncBlobCheckpointStore

PACE_S = 0.02
"""Between two batches: what is tested is failures, and a full speed would only hide them behind load."""

PATIENCE = {"retry_total": 1000, "retry_mode": "fixed"}
"""The asyncio consumer counts its retries over its whole life: the fourth connection that it loses is told as an error,
and the longer it lives the longer it waits."""

SOON = {"initial_backoff": 1, "increment_base": 2, "random_jitter_range": 1}
"""The store waits for 15 s before it repeats a request, and the partition with it."""

OPTIONS = {"load_balancing_interval": 1, "partition_ownership_expiration_interval": 10}


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def input_ended() -> None:
    sys.stdin.read()


async def send(text: str) -> None:
    over = asyncio.create_task(asyncio.to_thread(input_ended))
    async with EventHubProducerClient.from_connection_string(text) as producer:
        partitions = await producer.get_partition_ids()
        number = 0
        while not over.done():
            partition = partitions[number % len(partitions)]
            body = f"{partition} {number}"
            batch = await producer.create_batch(partition_id=partition)
            batch.add(EventData(body))
            await producer.send_batch(batch)
            say(acknowledged=[body])
            number += 1
            await asyncio.sleep(PACE_S)


def tell(context: Any, event: Any) -> None:
    say(event=event.body_as_str(), at=context.partition_id, sequence=event.sequence_number)


def note(context: Any, error: Exception) -> None:
    """An error, unless it says that another processor has the partition now."""
    if not (isinstance(error, ConnectionLostError) and "link:stolen" in str(error)):
        say(failed=repr(error), at=context.partition_id)


async def process(text: str, store_text: str, group: str) -> None:
    async def on_event(context: Any, event: Any) -> None:
        tell(context, event)
        await context.update_checkpoint(event)

    async def on_error(context: Any, error: Exception) -> None:
        note(context, error)

    async def owns(context: Any) -> None:
        say(owns=context.partition_id)

    async def loses(context: Any, reason: Any) -> None:
        say(lost=context.partition_id, reason=str(reason))

    store = AsyncBlobCheckpointStore.from_connection_string(store_text, "checkpoints", **SOON)
    options = {"checkpoint_store": store, **OPTIONS, **PATIENCE}
    async with AsyncConsumerClient.from_connection_string(text, group, **options) as consumer:
        receiving = asyncio.create_task(
            consumer.receive(
                on_event,
                on_error=on_error,
                on_partition_initialize=owns,
                on_partition_close=loses,
                starting_position="-1",
            )
        )
        await asyncio.to_thread(input_ended)
    await receiving


def process_sync(text: str, store_text: str, group: str) -> None:
    def on_event(context: Any, event: Any) -> None:
        tell(context, event)
        context.update_checkpoint(event)

    store = BlobCheckpointStore.from_connection_string(store_text, "checkpoints", **SOON)
    consumer = EventHubConsumerClient.from_connection_string(text, group, checkpoint_store=store, **OPTIONS)
    receiving = threading.Thread(
        target=lambda: consumer.receive(
            on_event,
            on_error=note,
            on_partition_initialize=lambda context: say(owns=context.partition_id),
            on_partition_close=lambda context, reason: say(lost=context.partition_id, reason=str(reason)),
            starting_position="-1",
        )
    )
    receiving.start()
    input_ended()
    consumer.close()
    receiving.join()


def main() -> None:
    kind, *words = sys.argv[1:]
    if kind == "process-sync":
        process_sync(*words)
    else:
        asyncio.run({"send": send, "process": process}[kind](*words))


if __name__ == "__main__":
    main()
