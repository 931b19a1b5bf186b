"""When servers refuse connections; run inside a namespace that reaches them.

    watch.py HOST:PORT...

Prints a JSON line when all of them accepted one, and, when standard input ends, a second one: for each the times, in
seconds, between which nobody listened there. A machine that is slow makes no such time: the kernel accepts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

PAUSE_S = 0.1


class Watch:
    def __init__(self, server: str) -> None:
        self.server = server
        self.away: list[list[float]] = []
        self.seen = asyncio.Event()
        self._there = True

    async def run(self) -> None:
        host, _, port = self.server.rpartition(":")
        while True:
            now_s = time.monotonic()
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except ConnectionError:  # refused; or reset, when it ends while it is asked
                if self._there and self.seen.is_set():
                    self.away.append([now_s, now_s])
                self._there = False
            else:
                writer.close()
                if not self._there and self.away:
                    self.away[-1][1] = now_s
                self._there = True
                self.seen.set()
            await asyncio.sleep(PAUSE_S)


async def main() -> None:
    watches = [Watch(server) for server in sys.argv[1:]]
    tasks = [asyncio.create_task(watch.run()) for watch in watches]
    for watch in watches:
        await watch.seen.wait()
    print(json.dumps({"event": "watching"}), flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    over = asyncio.ensure_future(ended.wait())
    await asyncio.wait([over, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()  # what ended it: a watch that is over has seen nothing since
        task.cancel()
    await over
    print(json.dumps({watch.server: watch.away for watch in watches}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
