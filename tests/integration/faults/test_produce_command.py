"""`holdfast produce` when a majority goes down in the middle: what is stored in the end has no hole."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import sys
import threading
import time

import pytest

from holdfast.client import ConsumerOptions, Start, sync
from tests.integration.clusters.cluster import READY_WITHIN_S, Cluster, wait_until

pytestmark = pytest.mark.cluster

PATIENCE_S = "3"
LINES = 20
PACE_S = 0.005
"""So many lines are written then: few enough that all can be read, whatever the command takes."""


def body(number: int) -> bytes:
    return b"line %d" % number


class Feeder(threading.Thread):
    """Writes lines as long as the command takes them."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.start()

    def run(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            for first in itertools.count(1, LINES):
                self._process.stdin.write(b"".join(body(first + place) + b"\n" for place in range(LINES)))
                time.sleep(PACE_S)


def last_offset(cluster: Cluster, log: str) -> int:
    return int(cluster.info(log)["0"].latest_offset or "0", 16)


def stored(cluster: Cluster, log: str) -> list[bytes]:
    options = ConsumerOptions(until_end=True)
    with sync.ConsumerClient(cluster.addresses, log, start=Start.earliest(), options=options) as consumer:
        return [event.body for event in consumer]


def test_a_majority_that_is_down_leaves_no_hole(own_cluster: Cluster, log_name: str) -> None:
    own_cluster.create(log_name, 1)
    command = [sys.executable, "-m", "holdfast.cli", "produce", log_name, "--partition", "0", "--timeout-s", PATIENCE_S]
    command += [part for address in own_cluster.addresses for part in ("--server", address)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stderr is not None
        bound = threading.Timer(READY_WITHIN_S, process.kill)
        bound.start()
        try:
            feeder = Feeder(process)
            wait_until(lambda: last_offset(own_cluster, log_name) > 2000, "some lines to be stored")
            own_cluster.kill(2, 3)
            while b"were given up" not in (line := process.stderr.readline()):
                assert line, "the command ended without a word about events that were given up"
            own_cluster.start(2, 3)
            said = process.stderr.read().decode()
            assert process.wait() == 1
            feeder.join()
        finally:
            bound.cancel()
            process.kill()
    told = re.search(r"every line of standard input up to line ([\d,]+) is stored\n", said)
    assert told is not None, said
    last = int(told[1].replace(",", ""))
    found = list(dict.fromkeys(stored(own_cluster, log_name)))  # an event whose answer got lost may stand twice
    assert len(found) >= last > 2000
    assert found == [body(number) for number in range(1, len(found) + 1)]
