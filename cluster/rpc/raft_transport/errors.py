"""The ways in which a stream between two nodes ends.

The rules: a caller that hears of the end gets one of these errors, whichever side ended the stream. Its text is for
operators: it says what happened, and whose fault it is where that is known. A `StreamEnd` carries the text to the
dialler, with the number of its class.
"""

from __future__ import annotations

from typing import ClassVar

from cluster.rpc.rpc_pb2 import StreamEnd


class StreamError(Exception):
    """The stream is over. The dialler opens another one."""

    NUMBER: ClassVar[int] = 2


class StreamLost(StreamError):
    """The connection could not be made or has ended, or one side gave the stream up."""

    NUMBER = 14


class StreamRefused(StreamError):
    """The listener does not let the dialler in."""

    NUMBER = 9

    def __init__(self, reason: str, copy: str = "", *, removed: bool = False) -> None:
        """`copy`: in what the dialler's data are a copy, when that is the reason. `removed`: the reason is that the
        dialler was removed, with the data that it has. No later start of them helps, in either case."""
        super().__init__(reason)
        self.copy = copy
        self.removed = removed


class StreamBroken(StreamError):
    """One side cannot make use of what the other one said: either has a defect, or they run different versions."""

    NUMBER = 3


_BY_NUMBER = {kind.NUMBER: kind for kind in (StreamLost, StreamRefused, StreamBroken)}


def to_end(error: StreamError) -> StreamEnd:
    end = StreamEnd(code=error.NUMBER, detail=str(error))
    if isinstance(error, StreamRefused):
        end.copy, end.removed = error.copy, error.removed
    return end


def from_end(end: StreamEnd) -> StreamError:
    """The error that the listener told; a plain StreamError if this version does not know its number."""
    kind = _BY_NUMBER.get(end.code, StreamError)
    detail = end.detail or "the peer ended the stream without a reason"
    return StreamRefused(detail, end.copy, removed=end.removed) if kind is StreamRefused else kind(detail)
