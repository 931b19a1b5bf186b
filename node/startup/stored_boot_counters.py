"""Memory of the last start of each peer's data that this node has heard of, on its own disk.

One row for each peer, rewritten when the peer was restarted or has other data. The rule: the row is durable before the
peer is let in (`cluster/rpc/peer_boot_counters.py`), so that no loss of power here lets an older copy of the peer in
there.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Callable

from cluster.stale_copy_detection import NEVER_STARTED, KnownStart
from node.storage import StorageDamaged, StorageError, Store

KIND = b"p"
_KEY = struct.Struct(">cI")
_ROW = struct.Struct(">QQII")  # incarnation, boot, mark, CRC of what stands before it

Row = tuple[int, KnownStart]


class StoredStarts:
    """Implements `cluster.rpc.StartMemory`."""

    def __init__(self, disk: Store, on_failed: Callable[[Exception], None]) -> None:
        self._disk = disk
        self._on_failed = on_failed
        self._rows: dict[int, Row] = {}
        self._durable: dict[int, Row] = {}
        for key, value in disk.scan(KIND, KIND + b"\xff" * 5):
            self._rows[_KEY.unpack(key)[1]] = _decoded(value, disk)
        self._durable.update(self._rows)

    def latest(self, node: int, incarnation: int) -> KnownStart:
        known_by, start = self._rows.get(node, (0, NEVER_STARTED))
        return start if known_by == incarnation else NEVER_STARTED

    async def remember(self, node: int, incarnation: int, start: KnownStart) -> None:
        row = (incarnation, start)
        try:
            if self._rows.get(node) != row:
                self._rows[node] = row
                batch = self._disk.batch()
                batch.put(_KEY.pack(KIND, node), _encoded(row))
                self._disk.write(batch)
            if self._durable.get(node) != row:
                await asyncio.get_running_loop().run_in_executor(None, self._disk.sync)
                self._durable[node] = row
        except StorageError as error:
            self._on_failed(error)
            raise


def _encoded(row: Row) -> bytes:
    incarnation, start = row
    body = _ROW.pack(incarnation, start.boot, start.mark, 0)[:-4]
    return body + zlib.crc32(body).to_bytes(4, "big")


def _decoded(data: bytes, disk: Store) -> Row:
    if len(data) != _ROW.size or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise StorageDamaged(disk.path, "what it remembers of a peer's starts is unreadable")
    incarnation, boot, mark, _ = _ROW.unpack(data)
    return incarnation, KnownStart(boot, mark)
