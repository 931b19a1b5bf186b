"""The child that undoes what its parent did is still there when the parent is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, time
from chaos.cluster.provisioned.on_host.outliving import outlive_parent

reads, writes = os.pipe()
child = os.fork()
if child == 0:
    outlive_parent()
    os.write(writes, b"x")
    time.sleep(600)
    os._exit(0)
os.read(reads, 1)
print(child, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_neither_ends_with_its_parent_nor_holds_its_streams(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert os.getsid(child) == child
            os.kill(child, number)
            os.killpg(parent.pid, signal.SIGKILL)
            said, _ = parent.communicate(timeout=60)  # its end comes when nobody holds the stream any more
            assert said == b""
            with open(f"/proc/{child}/stat") as file:
                assert file.read().rpartition(")")[2].split()[0] not in "ZX"
        finally:
            os.kill(child, signal.SIGKILL)
