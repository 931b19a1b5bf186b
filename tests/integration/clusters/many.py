"""`python -m tests.integration.clusters.many HOST:PORT COUNT`: a crowd of AMQP connections, until its input is closed.

Says `opened N` when each has got its open, and every hundredth a session; N is COUNT, or what the limit of open files
allows.
"""

from __future__ import annotations

import resource
import sys

from proton import uint

from tests.integration.workloads.raw import (
    AMQP_HEADER,
    BEGIN,
    OPEN,
    Raw,
    frame,
)

RESERVE = 100
"""Descriptors for everything else."""


def main() -> int:
    address, wanted = sys.argv[1], int(sys.argv[2])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(wanted, hard - RESERVE) if hard != resource.RLIM_INFINITY else wanted
    crowd = [
        Raw(address).send(AMQP_HEADER + frame(OPEN, ["raw", "localhost", uint(512)])) for _ in range(max(0, count))
    ]
    for peer in crowd:
        if not peer.read_until(b"\x00\x53\x10", within_s=60):
            print("a connection was not opened", flush=True)
            return 1
    for peer in crowd[::100]:
        peer.send(frame(BEGIN, [None, uint(0), uint(100), uint(100)]))
        if not peer.read_until(b"\x00\x53\x11", within_s=60):
            print("a session did not begin", flush=True)
            return 1
    print(f"opened {len(crowd)}", flush=True)
    sys.stdin.read()
    for peer in crowd:
        peer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
