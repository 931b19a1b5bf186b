"""The thread of a synchronous client ends, whoever ends it, and nobody waits for it in vain."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.client.errors import ClosedError
from holdfast.client.loop_thread import LoopThread
from tests.unit.listener.support.peer import WAIT_S


async def test_a_callback_that_ends_the_loop_while_it_is_closed_leaves_nobody_waiting() -> None:
    def work() -> None:
        background = LoopThread("test")
        asleep = background.start(asyncio.Event().wait)

        def end_while_closing() -> None:
            while not background._closed:
                time.sleep(0.001)  # the loop stands still: what `close` has begun waits behind us
            raise SystemExit(3)

        background.post(end_while_closing)
        background.close()
        assert asleep.cancelled()
        with pytest.raises(ClosedError):
            background.call(threading.get_ident)

    await asyncio.wait_for(asyncio.to_thread(work), WAIT_S)


def test_who_waits_while_another_thread_closes_is_told_so() -> None:
    """So `close` of a client in several threads ends well in each of them."""
    thread, begun = LoopThread("test"), threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thread.run, wait)
        assert begun.wait(WAIT_S)
        thread.close()
        with pytest.raises(ClosedError, match="was closed"):
            waiting.result(WAIT_S)
