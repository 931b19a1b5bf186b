"""A synchronous client in a process that was forked: its thread is not there, and nobody hangs."""

from __future__ import annotations

import asyncio
import os

from holdfast.client import InvalidOperationError, sync
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import WAIT_S


async def test_a_forked_process_is_told_to_make_a_client_of_its_own(node: TinyNode) -> None:
    def in_the_child(producer: sync.ProducerClient) -> int:
        try:
            producer.send("from the child", partition="0")
        except InvalidOperationError:
            producer.close()
            return 0
        return 1

    def work() -> None:
        with sync.ProducerClient(node.address, "trades") as producer:
            child = os.fork()
            if child == 0:
                try:
                    os._exit(in_the_child(producer))
                finally:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            producer.send_and_confirm("from the parent", partition="0")

    await asyncio.wait_for(asyncio.to_thread(work), WAIT_S)
    assert node.log.bodies("0") == [b"from the parent"]
