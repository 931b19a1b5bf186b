"""Holes of the streams between nodes: what Raft takes for granted of one, broken on purpose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from cluster.rpc.raft_transport import frame_reader
from cluster.rpc.raft_transport.frame_writer import Encodable, PartQueue
from cluster.rpc.raft_transport.inbound import InboundStream
from cluster.rpc.raft_transport.outbound import OutboundLink


@contextlib.contextmanager
def frames_lose_what_does_not_fit() -> Iterator[None]:
    """The message before which a frame is cut goes into no frame."""
    take = PartQueue.take

    def careless(self: PartQueue, *bounds: int) -> tuple[bytes, int]:
        frame = take(self, *bounds)
        if self._parts:
            head, data = self._parts.popleft()
            self.bytes -= len(head) + len(data)
        return frame

    with mock.patch.object(PartQueue, "take", careless):
        yield


@contextlib.contextmanager
def queues_turn_round() -> Iterator[None]:
    """What was pushed last goes first."""
    push = PartQueue.push

    def in_front(self: PartQueue, field: int, messages: Iterable[Encodable]) -> None:
        before = len(self)
        push(self, field, messages)
        self._parts.rotate(len(self) - before)

    with mock.patch.object(PartQueue, "push", in_front):
        yield


def entries_stay_as_they_came() -> AbstractContextManager[Any]:
    """In the memory into which the connection read them."""
    return mock.patch.object(frame_reader, "bytes", lambda data: data, create=True)


def full_backlogs_lose_messages() -> AbstractContextManager[Any]:
    """A stream whose backlog is full goes on without it."""

    def lose(self: OutboundLink) -> None:
        if self.backlog > self._backlog_bytes:
            self._queue.clear()

    return mock.patch.object(OutboundLink, "_check_backlog", lose)


def messages_outlive_their_stream() -> AbstractContextManager[Any]:
    """What waits when a stream ends goes down the next one."""
    return mock.patch.object(PartQueue, "clear", return_value=None)


def earlier_streams_are_heard() -> AbstractContextManager[Any]:
    """A node that comes again is heard on both of its streams."""
    return mock.patch.object(InboundStream, "end", return_value=None)
