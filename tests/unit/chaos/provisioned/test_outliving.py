"""The child that undoes what its parent did is still there when the parent is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, time
from chaos.cluster.provisioned.on_host.outliving import outlive_parent

asked, answers = int(sys.argv[1]), int(sys.argv[2])
reads, writes = os.pipe()
child = os.fork()
if child == 0:
    outlive_parent()
    os.write(writes, b"x")
    if os.read(asked, 1):
        os.write(answers, b"here")
    os._exit(0)
os.close(answers)
os.read(reads, 1)
print(child, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_neither_ends_with_its_parent_nor_holds_its_streams(number: int) -> None:
    asked, ask = os.pipe()
    answer, answers = os.pipe()
    command = [sys.executable, "-c", PROGRAM, str(asked), str(answers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(asked, answers), start_new_session=True) as parent:
        os.close(asked)
        os.close(answers)
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            assert os.getsid(child) == child
            os.kill(child, number)
            os.killpg(parent.pid, signal.SIGKILL)
            said, _ = parent.communicate(timeout=60)  # its end comes when nobody holds the stream any more
            assert said == b""
            os.write(ask, b"?")
            assert os.read(answer, 10) == b"here"
        finally:
            parent.kill()
            os.close(ask)  # the child ends, if it is there
            os.close(answer)
