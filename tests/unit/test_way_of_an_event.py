"""Counts the files that a batch is handed through: from `send_many` to the client's socket, and from the leader's
socket to its write-ahead log. docs/internals/architecture.md tells the numbers. They may only become smaller."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.client import ProducerClient
from holdfast.client.produce.batch_queue import BatchQueue
from holdfast.client.produce.delivery import Delivery, PendingBatch
from holdfast.records.record_batch import OpenBatch, RecordBatch
from node.listener.incoming.append_queue import QueuedBatch
from tests.unit.listener.support.single import SingleNode

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("cluster", "node", "holdfast")

AT_THE_CLIENT = 8
AT_THE_LEADER = 11
EVENTS, EVENT = 100, b"x" * 100

BATCHES = (RecordBatch, OpenBatch, PendingBatch, QueuedBatch, BatchQueue, Delivery)


def is_a_batch(value: Any) -> bool:
    """Tell whether it is, or holds, the events that were sent; a batch of them has 10 kB."""
    if isinstance(value, list | tuple):
        return any(map(is_a_batch, value[:3])) or len(value) == EVENTS
    return isinstance(value, BATCHES) or (isinstance(value, bytes | bytearray | memoryview) and len(value) > 9000)


@contextmanager
def handed(wanted: Callable[[str], bool]) -> Iterator[list[str]]:
    """Files whose functions get a batch in this thread, in the order of the first call."""
    files: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(ROOT):
            return
        name = path.relative_to(ROOT).as_posix()
        if name in files or name.split("/")[0] not in PRODUCT or not wanted(name):
            return
        if any(map(is_a_batch, list(frame.f_locals.values()))):
            files.append(name)

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


class NodeThread:
    """A node with one partition, on a thread of its own, so that its calls are told from the client's."""

    def __init__(self, path: Path) -> None:
        self._path, self._listens, self._over = path, threading.Event(), threading.Event()
        self.files: list[str] = []
        self.address = ""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> NodeThread:
        self._thread.start()
        assert self._listens.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    async def _main(self) -> None:
        node = await SingleNode(self._path).start()
        await node.create("trades")
        self.address = f"127.0.0.1:{node.port}"
        with handed(lambda name: not name.startswith("holdfast/client")) as self.files:
            self._listens.set()
            await asyncio.get_running_loop().run_in_executor(None, self._over.wait)
        await node.stop()


def up_to(files: list[str], last: str) -> list[str]:
    """The files up to the last one whose name begins so."""
    at = max(place for place, name in enumerate(files) if name.startswith(last))
    return files[: at + 1]


async def test_a_batch_is_handed_through_few_files(tmp_path: Path) -> None:
    with NodeThread(tmp_path) as node:
        async with ProducerClient(node.address, "trades") as producer:
            await producer.send(b"opens the link", partition="0")
            await producer.flush()
            with handed(lambda name: name.startswith("holdfast")) as client:
                delivery = await producer.send_many([EVENT] * EVENTS, partition="0")
                sent = asyncio.ensure_future(delivery)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await sent
    leader = up_to(node.files, "node/storage/wal")
    assert 3 < len(client) <= AT_THE_CLIENT, client
    assert 3 < len(leader) <= AT_THE_LEADER, leader
