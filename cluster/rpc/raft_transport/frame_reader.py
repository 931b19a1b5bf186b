"""Reader of a stream's frames, each with the entries that come beside its last message.

The rules: entries come beside the last message of a frame or beside none, and no more of them than a frame could hold;
nothing of a frame is told before all of it is there; an entry is `bytes` from here on. A connection reads a large
message into a `bytearray`, which protobuf, proton and a dictionary's keys refuse, and which somebody could change.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from cluster.raft.raft_pb2 import RaftMessage
from cluster.raft.replication.message_encoding import MAX_ENTRIES_BESIDE, IncomingMessage, ReceivedAppend
from cluster.rpc import options
from cluster.rpc.raft_transport.connection import Buffer
from cluster.rpc.rpc_pb2 import Frame

Received = tuple[Frame, list[IncomingMessage]]
"""A frame, and its messages with their entries."""


class FrameReader:
    """Reader of the frames of one stream."""

    def __init__(self) -> None:
        self._awaiting: Received | None = None  # entries beside its last message
        self._entries: list[bytes] = []
        self._count = self._size = 0  # how many there are to be, and how large they are so far

    def add(self, data: Buffer) -> Received | None:
        """The next piece. None: more of the same must follow.

        Raises:
            DecodeError: it is not what it should be. Nothing more can be made of the stream.
        """
        if self._awaiting is not None:
            return self._entry(self._awaiting, data)
        frame = Frame.FromString(data)  # type: ignore[arg-type]  # it takes any buffer
        messages: list[IncomingMessage] = list(frame.messages)
        apart = [message for message in frame.messages if message.append.entries_beside]
        if not apart:
            return frame, messages
        if len(apart) > 1 or apart[0] is not messages[-1]:
            raise DecodeError("entries come beside a message that is not its last")
        return self._begin((frame, messages), apart[0])

    def _begin(self, received: Received, message: RaftMessage) -> Received | None:
        self._count, self._size, self._entries = len(message.append.entry_terms), 0, []
        if self._count > MAX_ENTRIES_BESIDE:
            raise DecodeError(f"{self._count} entries come beside one append")
        self._awaiting = received
        return self._whole(received)

    def _entry(self, received: Received, data: Buffer) -> Received | None:
        self._size += len(data)
        if self._size > options.MAX_MESSAGE_BYTES:
            raise DecodeError(f"more than {options.MAX_MESSAGE_BYTES} bytes of entries come beside one append")
        self._entries.append(bytes(data))
        return self._whole(received)

    def _whole(self, received: Received) -> Received | None:
        if len(self._entries) < self._count:
            return None
        messages = received[1]
        last = messages[-1]
        assert isinstance(last, RaftMessage), "it came in the frame"
        messages[-1] = ReceivedAppend(last, self._entries)
        self._awaiting, self._entries = None, []
        return received
