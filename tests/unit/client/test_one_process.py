"""A client stays in its process: who pickles it for another one is told what to do instead."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import pytest

import holdfast.client as asynchronous
from holdfast.client import sync

CLIENTS: list[tuple[str, dict[str, Any]]] = [
    ("AdminClient", {}),
    ("ConsumerClient", {"log": "trades"}),
    ("ProducerClient", {"log": "trades"}),
    ("RangeClient", {}),
    ("TransactionGroup", {"writer": "orders", "batch": 1, "run": "1"}),
]


@pytest.mark.parametrize("module", [asynchronous, sync])
@pytest.mark.parametrize(("name", "given"), CLIENTS)
async def test_who_pickles_a_client_is_told_to_open_another_one(
    module: ModuleType, name: str, given: dict[str, Any]
) -> None:
    client = getattr(module, name)("127.0.0.1:1", **given)
    try:
        with pytest.raises(TypeError, match="open a client in the process that uses it"):
            pickle.dumps(client)
    finally:
        closing = client.close()
        if closing is not None:
            await closing
