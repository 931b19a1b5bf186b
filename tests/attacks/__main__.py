"""One attack on one port, or `all`, one after the other; see `table.py`. Tells how many connections each took, and the
seconds of processor that were used up to its end."""

from __future__ import annotations

import asyncio
import sys
import time

from tests.attacks import table

if __name__ == "__main__":
    name, port, seconds, connections, log = sys.argv[1:]
    for one in table.ATTACKS if name == "all" else [name]:
        print(one, asyncio.run(table.run(one, int(port), float(seconds), int(connections), log)), time.process_time())
