"""A stream's end reaches the dialler as the error that the listener raised."""

from __future__ import annotations

import pytest

from cluster.rpc.call_validation import parsed
from cluster.rpc.raft_transport.errors import StreamBroken, StreamError, StreamLost, StreamRefused, from_end, to_end
from cluster.rpc.rpc_pb2 import StreamEnd


@pytest.mark.parametrize(
    "error", [StreamLost("a"), StreamRefused("b"), StreamRefused("c", "start 4"), StreamBroken("d")]
)
def test_an_error_crosses_the_wire(error: StreamError) -> None:
    told = from_end(parsed(StreamEnd, to_end(error).SerializeToString()))
    assert (type(told), str(told), vars(told)) == (type(error), str(error), vars(error))


def test_an_end_of_another_version_keeps_its_text() -> None:
    assert type(from_end(StreamEnd(code=7, detail="the reason"))) is StreamError
    assert str(from_end(StreamEnd(code=7, detail="the reason"))) == "the reason"
    assert "without a reason" in str(from_end(StreamEnd()))
