"""Pieces of snapshots that nodes ask each other for."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.raft import FetchReply, FetchRequest
from cluster.rpc import Unavailable
from cluster.rpc.grpc_calls import methods, peer_client
from tests.unit.rpc.support import cluster_of


async def test_a_piece_that_cannot_be_read_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def garbled(channel: Any) -> Any:
        return channel.unary_unary(
            methods.FETCH,
            request_serializer=FetchRequest.SerializeToString,
            response_deserializer=lambda data: FetchReply.FromString(data + b"\xff"),
        )

    monkeypatch.setattr(peer_client, "fetch_call", garbled)
    async with cluster_of(1, 2) as nodes:
        nodes[2].network._services._serve_fetch = lambda node, request: FetchReply(group=5)
        with pytest.raises(Unavailable, match="cannot be read"):
            await nodes[1].network.client(2).fetch(FetchRequest(group=5, version=1, number=1, max_bytes=1))
